"""Run whole asyncio programs on computers of a simulated network, from one seed, in virtual time.

    world = World(seed=1, loss=0.05)

    async def rehearse() -> None:
        server = world.host("server").start(serve)
        client = world.host("client").start(ask, "question")
        await asyncio.sleep(2)
        world.split(["server"], ["client"])
        await asyncio.sleep(5)
        world.heal()
        assert await client == "answer"

    world.run(rehearse())
    world.verdict().check()

Programs use `vivum.connect()` without any change. `loop.time()`, `asyncio.sleep` and `asyncio.timeout` are virtual. The
seed does not decide what programs take from elsewhere: the wall clock, `random`, threads, files.
"""

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextvars import copy_context
from typing import Any, TypeVar

import msgspec

from vivum.checkers.registry import CheckerSet, make_checkers
from vivum.core.errors import HostError, UsageError
from vivum.core.ids import Endpoint, NodeId
from vivum.core.randomness import RandomSource
from vivum.core.time import SECOND
from vivum.guarantees import all_promises, final_promises_of
from vivum.observe.trace import (
    FaultInjected,
    HashTrace,
    MessageDelivered,
    MessageSent,
    MessagesFailed,
    NodeStarted,
    NodeStopped,
    Tracer,
    TraceRecord,
)
from vivum.runtime.environment import set_environment
from vivum.sim.clock import DriftingClock
from vivum.sim.loss import IndependentLoss
from vivum.sim.network import LinkProfile, Network
from vivum.sim.scheduler import Scheduler
from vivum.testing.link import SimulatedPort
from vivum.testing.loop import PROCESS, VirtualLoop, VirtualTask
from vivum.testing.process import FIRST_FREE_PORT, Process, Program, throw_away
from vivum.testing.verdict import WorldVerdict

T = TypeVar("T")

EPOCH_NS = 1_767_225_600 * SECOND
"""The time on its programs' clocks when a world begins: the first of January 2026."""

TIME_LIMIT_S = 3600.0
"""How long a world may run by default."""

UNDER_WAY_NS = 1 * SECOND
"""Messages sent this shortly before the end may still be under way: they need not have arrived."""


class SimulatedHost:
    """A computer with a clock of its own, a link to the network, and one process at a time."""

    def __init__(self, world: "World", name: str, number: int, clock: DriftingClock) -> None:
        self.world = world
        self.name = name
        self.address = f"10.0.{number >> 8}.{number & 255}"
        self.clock = clock
        self.process: Process | None = None
        """The latest process, running or ended."""

        self.loss = 0.0
        """Share of what arrives that is lost. Set by `World.loss`."""

        self._starts = 0
        self._next_port = FIRST_FREE_PORT
        self._ports: dict[Endpoint, SimulatedPort] = {}

    def __repr__(self) -> str:
        return f"<host {self.name} {self.address}>"

    @property
    def is_running(self) -> bool:
        """Whether a process runs here."""
        return self.process is not None and self.process.is_running

    def start(self, main: Program, *arguments: Any) -> Process:
        """Start a program: a coroutine function and what it is called with. Raises `UsageError` if one is running."""
        if self.is_running:
            raise UsageError(f"host {self.name} runs a program already; kill it first, or take another host")
        self._starts += 1
        self.world.note(f"start of {self.name}")
        self.process = Process(self, self._starts)
        self.world.processes.append(self.process)
        self.process.run(main, arguments)
        return self.process

    async def call(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Call a coroutine function inside the running process: it pauses and dies with it.

        Raises `ProcessKilled` if the process ends meanwhile, `UsageError` if none runs.
        """
        if self.process is None or not self.process.is_running:
            raise UsageError(f"host {self.name} runs no program that could be called into")
        result: T = await self.process.call(function, arguments)
        return result

    def kill(self, *, after_datagrams: int = 0) -> None:
        """End the process abruptly, as `kill -9` or a power cut does. Nothing happens if none runs.

        With `after_datagrams` it first sends this many more datagrams, and dies between two effects of its node: some
        hosts get its last news, and others do not.
        """
        if self.process is not None and self.process.is_running:
            self.world.note(f"kill of {self.name}" + (f" after {after_datagrams} datagrams" if after_datagrams else ""))
            self.process.kill_after(after_datagrams)

    def pause(self, seconds: float) -> None:
        """Stop the process for a while, as a long garbage collection or `SIGSTOP` does. Its socket keeps filling."""
        if self.process is not None and self.process.is_running:
            self.world.note(f"pause of {self.name} for {seconds:g} s")
            self.process.pause(round(seconds * SECOND))

    def resume(self) -> None:
        """End a pause before its time."""
        if self.process is not None:
            self.process.resume()

    # For processes.

    def plug_in(
        self, domain: int, port: int, buffer_bytes: int, loss: float, on_closed: Callable[[SimulatedPort], None]
    ) -> SimulatedPort:
        """Open a socket. Raises `HostError` if the port is taken."""
        if not port:
            while Endpoint(self.address, self._next_port) in self._ports:
                self._next_port += 1
            port = self._next_port
            self._next_port += 1
        endpoint = Endpoint(self.address, port)
        if endpoint in self._ports:
            raise HostError(f"port {port} of host {self.name} is taken")

        def forget(closed: SimulatedPort) -> None:
            del self._ports[endpoint]
            on_closed(closed)
            self.world.unplug(closed)

        made = self.world.plug_in(self, endpoint, domain, buffer_bytes, loss, self._ports.get, forget)
        self._ports[endpoint] = made
        return made


class NodeSink:
    """Takes the trace of one node, in the world's time."""

    def __init__(self, world: "World", domain: str) -> None:
        self._world = world
        self._domain = domain
        self._life: tuple[int, int] | None = None
        self._has_ended = False

    def __call__(self, record: TraceRecord) -> None:
        """Hand a record to the checkers."""
        if self._has_ended:
            return
        if type(record) is NodeStarted:
            self._life = (record.node, record.incarnation)
        elif type(record) is NodeStopped:
            self._life = None
        self._world.take(self._domain, msgspec.structs.replace(record, time_ns=self._world.scheduler.now_ns))

    def end(self, cause: str) -> None:
        """Record the end of a process whose node did not close."""
        if self._life is not None:
            self(NodeStopped(0, *self._life, cause))
        self._has_ended = True

    def close(self) -> None:
        """Do nothing: records are handed over at once."""


class World:
    """Computers, the network between them, and their faults."""

    def __init__(
        self,
        seed: int = 1,
        *,
        loss: float = 0.0,
        duplicates: float = 0.0,
        reordering: float = 0.0,
        delay_s: float = 0.0001,
        jitter_s: float = 0.00002,
        bandwidth_bps: int = 1_000_000_000,
        socket_bytes: int = 425_984,
        clock_offset_s: float = 0.1,
        clock_drift_ppm: int = 50,
        multicast: bool = True,
        time_limit_s: float = TIME_LIMIT_S,
        trace: Tracer | None = None,
    ) -> None:
        """Make an empty world.

        `loss`, `duplicates` and `reordering` are shares of the datagrams that arrive at a host, 0 to 1. Each host's
        clock is off by up to `clock_offset_s` seconds and `clock_drift_ppm` parts per million. `socket_bytes` bounds
        what waits in a socket. `trace` gets every record that the checkers read.
        """
        for name, share in (("loss", loss), ("duplicates", duplicates), ("reordering", reordering)):
            _check_share(name, share)
        self.seed = seed
        self.random = RandomSource(seed).fork("testing")
        """Randomness for programs and tests, decided by the seed."""

        self.multicast = multicast
        self.scheduler = Scheduler()
        self.loop = VirtualLoop(self.scheduler, round(time_limit_s * SECOND))
        self.hosts: dict[str, SimulatedHost] = {}
        self.processes: list[Process] = []
        self.network = Network(
            self.scheduler,
            LinkProfile(bandwidth_bps, round(delay_s * SECOND), round(jitter_s * SECOND), 1_000_000, 1_000_000),
        )
        self._socket_bytes = socket_bytes
        self._clock_offset_ns = round(clock_offset_s * SECOND)
        self._clock_drift_ppm = clock_drift_ppm
        self._base_loss = loss
        self._duplicates = duplicates
        self._reordering = reordering
        self._sides: list[set[str]] = []
        self._ports: dict[SimulatedPort, tuple[SimulatedHost, float]] = {}
        self._opened = 0
        self._trace = trace
        self._hash = HashTrace()
        self._checkers: dict[str, CheckerSet] = {}
        self._sent = self._delivered = 0
        self._recent: deque[tuple[str, MessageSent]] = deque()
        self._failures: list[str] = []
        self._verdict: WorldVerdict | None = None
        self._has_run = False
        self.loop.set_exception_handler(self._on_error)

    # Hosts.

    def host(self, name: str) -> SimulatedHost:
        """Return the computer of this name. The first call makes it."""
        known = self.hosts.get(name)
        if known is None:
            rng = self.random.fork("host", name)
            offset_ns = rng.randint(-self._clock_offset_ns, self._clock_offset_ns)
            clock = DriftingClock(EPOCH_NS + offset_ns, rng.randint(-self._clock_drift_ppm, self._clock_drift_ppm))
            known = self.hosts[name] = SimulatedHost(self, name, len(self.hosts) + 1, clock)
            known.loss = self._base_loss
        return known

    def resolve(self, host: str) -> str:
        """Return the address of a computer. Raises `OSError` if there is none of this name or address."""
        for each in self.hosts.values():
            if host in (each.name, each.address):
                return each.address
        raise OSError(0, f"no host of this world has that name; there are {', '.join(self.hosts)}")

    # Faults.

    def split(self, *sides: Iterable[SimulatedHost | str]) -> None:
        """Cut the network into sides that do not hear each other, instead of any former split.

        Hosts not named form a side of their own. Without sides the network is whole again.
        """
        self._sides = [{self._host_of(each).name for each in side} for side in sides]
        named = [name for side in self._sides for name in sorted(side)]
        if len(set(named)) != len(named):
            raise UsageError(f"a host is on two sides of the split: {', '.join(sorted(named))}")
        self.note("split " + " | ".join(" ".join(sorted(side)) for side in self._sides) if sides else "no split")
        self._apply_faults()

    def loss(self, share: float, *hosts: SimulatedHost | str) -> None:
        """Lose this share of what arrives at these hosts, or at all hosts if none are named; 0 ends the loss."""
        _check_share("loss", share)
        chosen = [self._host_of(each) for each in hosts] or list(self.hosts.values())
        if not hosts:
            self._base_loss = share
        for each in chosen:
            each.loss = share
        self.note(f"loss of {share:g} at {' '.join(each.name for each in chosen)}")
        self._apply_faults()

    def duplicates(self, share: float) -> None:
        """Deliver this share of datagrams twice."""
        self._duplicates = _check_share("duplicates", share)
        self.note(f"duplicates {share:g}")
        self._apply_faults()

    def reordering(self, share: float) -> None:
        """Let this share of datagrams be overtaken by others."""
        self._reordering = _check_share("reordering", share)
        self.note(f"reordering {share:g}")
        self._apply_faults()

    def heal(self) -> None:
        """End every fault of the network, and every pause. The dead stay dead."""
        self.note("everything heals")
        self._sides = []
        self._base_loss = self._duplicates = self._reordering = 0.0
        for host in self.hosts.values():
            host.loss = 0.0
            host.resume()
        self._apply_faults()

    def _host_of(self, host: SimulatedHost | str) -> SimulatedHost:
        if isinstance(host, SimulatedHost):
            return host
        if host not in self.hosts:
            raise UsageError(f"there is no host {host!r}; there are {', '.join(self.hosts)}")
        return self.hosts[host]

    def _side_of(self, host: SimulatedHost) -> int:
        return next((index for index, side in enumerate(self._sides) if host.name in side), -1)

    def _apply_faults(self) -> None:
        reorder_ns = 10 * self.network.profile.delay_ns
        for port, (host, own_loss) in self._ports.items():
            link, side = port.link, self._side_of(host)
            link.heal()
            link.loss += [IndependentLoss(share) for share in (host.loss, own_loss) if share]
            link.duplicates += [self._duplicates] if self._duplicates else []
            link.reorders += [(self._reordering, reorder_ns)] if self._reordering else []
            away = [other.node_id for other, (where, _) in self._ports.items() if self._side_of(where) != side]
            link.blocks += [frozenset(away)] if away else []
            link.update()

    # For hosts and their processes.

    def plug_in(
        self,
        host: SimulatedHost,
        endpoint: Endpoint,
        domain: int,
        buffer_bytes: int,
        loss: float,
        neighbour: Callable[[Endpoint], SimulatedPort | None],
        on_closed: Callable[[SimulatedPort], None],
    ) -> SimulatedPort:
        """Connect a socket to a link."""
        self._opened += 1
        port = SimulatedPort(
            NodeId(self._opened),
            endpoint,
            domain,
            self.loop,
            self.scheduler,
            self.network,
            host.clock,
            self.random.fork("link", self._opened),
            min(buffer_bytes, self._socket_bytes),
            neighbour,
            on_closed,
        )
        self._ports[port] = (host, loss)
        self._apply_faults()
        return port

    def unplug(self, port: SimulatedPort) -> None:
        """Disconnect a socket from its link."""
        del self._ports[port]

    def make_sink(self, domain: str) -> NodeSink:
        """Make a sink for the trace of one node of a domain."""
        return NodeSink(self, domain)

    def take(self, domain: str, record: TraceRecord) -> None:
        """Hand a record to the checkers of its domain, until the verdict."""
        if self._verdict is not None:
            return
        if type(record) is MessageSent:
            self._sent += 1
            self._note_sent(domain, record)
        elif type(record) is MessageDelivered:
            self._delivered += 1
        checkers = self._checkers.get(domain)
        if checkers is None:
            checkers = self._checkers[domain] = CheckerSet(make_checkers(all_promises()), final_promises_of)
        checkers(record)
        self._hash(record)
        if self._trace is not None:
            self._trace(record)

    def _note_sent(self, domain: str, record: MessageSent) -> None:
        self._recent.append((domain, record))
        while self._recent[0][1].time_ns < record.time_ns - UNDER_WAY_NS:
            self._recent.popleft()

    def note(self, what: str) -> None:
        """Add a line to the trace about what a test does to its world."""
        record = FaultInjected(self.scheduler.now_ns, 0, 0, what)
        self._hash(record)
        if self._trace is not None:
            self._trace(record)

    # Running.

    @staticmethod
    async def sleep(seconds: float) -> None:
        """Let virtual time pass; the same as `asyncio.sleep`."""
        await asyncio.sleep(seconds)

    def run(self, test: Coroutine[Any, Any, T]) -> T:
        """Run a test to its end, and return what it returns. Processes that still run then are discarded.

        Raises `Deadlock`, which names the tasks that wait, if the test cannot end or takes longer than the limit.
        """
        if self._has_run:
            test.close()
            raise UsageError("a world runs once; make another one, with the same seed for the same run")
        self._has_run = True
        collects = gc.isenabled()
        gc.disable()
        context = copy_context()
        context.run(set_environment, _Nowhere())
        try:
            return self.loop.run_until_complete(self.loop.create_task(test, name="the test", context=context))
        finally:
            self._conclude()
            self._end()
            if collects:
                gc.enable()

    @property
    def records(self) -> int:
        """The number of trace records so far."""
        return self._hash.count

    def verdict(self) -> WorldVerdict:
        """Return what the checkers found up to the end of the run. Raises `UsageError` before it."""
        if self._verdict is None:
            raise UsageError("the verdict is there when the world has run; call world.run(...) first")
        return self._verdict

    @property
    def trace_hash(self) -> str:
        """The digest of every trace record so far, and of the numbers of datagrams and events."""
        return self.verdict().trace_hash if self._verdict is not None else self._digest()

    def _digest(self) -> str:
        counts = f"{self.network.arrivals} arrivals, {self.scheduler.events} events"
        closing = HashTrace()
        closing(FaultInjected(self.scheduler.now_ns, 0, 0, f"{self._hash.hexdigest()}, {counts}"))
        return closing.hexdigest()

    def _conclude(self) -> None:
        for process in self.processes:
            if process.error is not None:
                self._failures.append(f"{process.label}: {_text(process.error)}")
        for task in self.loop.tasks():
            if task.is_failure_unseen():
                self._on_error(self.loop, {"message": task.get_name(), "exception": task.exception(), "task": task})
        for domain, sent in self._recent:
            if sent.time_ns >= self.scheduler.now_ns - UNDER_WAY_NS:
                life, message = (sent.node, sent.incarnation), (sent.group, sent.sequence, sent.sequence + 1)
                self._checkers[domain](MessagesFailed(self.scheduler.now_ns, *life, *message, 0, "the world ended"))
        violations = [each for checkers in self._checkers.values() for each in checkers.finish()]
        self._verdict = WorldVerdict(
            self.seed,
            self._digest(),
            self.scheduler.now_ns / SECOND,
            self._sent,
            self._delivered,
            tuple(violations),
            tuple(self._failures),
        )

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG002
        task, handle = context.get("task") or context.get("future"), context.get("handle")
        process = PROCESS.get() if handle is None else handle._context.get(PROCESS)
        if isinstance(task, VirtualTask):
            process = task.process
        where = "the test" if process is None else process.label
        error = context.get("exception")
        self._failures.append(f"{where}: {context['message']}" + ("" if error is None else f": {_text(error)}"))

    def _end(self) -> None:
        """Discard what still runs: cancel tasks of the test as `asyncio.run` does, and kill processes."""

        async def end() -> None:
            own = asyncio.current_task()
            for process in self.processes:
                process.kill()
            for process in self.processes:
                process.dispose()
            for task in list(self.loop.tasks()):
                if task is not own and not task.done():
                    throw_away(task, copy_context())

        self.loop.is_ending = True
        self.loop.run_until_complete(end())
        self.loop.close()


class _Nowhere:
    """The environment of the test itself, which runs on no computer of its world."""

    def __getattr__(self, name: str) -> Any:
        raise UsageError("a test has no computer of its own; connect in a program that a host of the world runs")


def _check_share(name: str, share: float) -> float:
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"{name} {share:g} is out of range; it is a share, 0 to 1")
    return share


def _text(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(map(_text, error.exceptions))
    return f"{type(error).__name__}: {error}"
