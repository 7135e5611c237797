"""A simulated process: one run of a program on a simulated computer, with all its tasks, timers and callbacks.

They carry it in their context. While it is paused its callbacks are held, and run when it goes on; when it is dead they
never run again, so that no `finally` and no `except` of the program sees its end.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from random import Random
from typing import TYPE_CHECKING, Any

from vivum.core.errors import HostError, VivumError
from vivum.runtime.defaults import Defaults
from vivum.runtime.environment import BUFFER_BYTES, TraceSink, set_environment
from vivum.testing.link import SimulatedPort
from vivum.testing.loop import PROCESS, VirtualTask

if TYPE_CHECKING:
    from vivum.testing.world import NodeSink, SimulatedHost

FIRST_FREE_PORT = 32_768
"""Ports that the system chooses begin here, as on Linux."""

CLOSINGS_MAX = 100
"""How often a coroutine may await while it is thrown away."""

Program = Callable[..., Coroutine[Any, Any, Any]]


class ProcessKilled(VivumError):  # noqa: N818
    """The process that is waited for was killed."""


class Process:
    """One run of a program. Made by `SimulatedHost.start`; awaiting it gives what the program returned or raised."""

    polls = False

    def __init__(self, host: "SimulatedHost", number: int) -> None:
        self.host = host
        self.label = f"{host.name}#{number}"
        self.error: Exception | None = None
        """What the program raised, unless somebody has awaited the process."""

        self.is_running = True
        self.ports: list[SimulatedPort] = []
        self._number = number
        self._sinks: list[NodeSink] = []
        self._sources = 0
        self._names = 0
        self._asleep_until_ns = 0
        self._datagrams_left: int | None = None
        self._main: asyncio.Task[None] | None = None
        self._held: list[asyncio.Handle] = []
        self._killed: list[VirtualTask] = []
        self._loop = host.world.loop
        self._end = self._loop.create_future()
        self.context: Context = copy_context()
        self.context.run(self._enter)

    def _enter(self) -> None:
        PROCESS.set(self)
        set_environment(self)

    def __repr__(self) -> str:
        return f"<process {self.label} {'running' if self.is_running else 'ended'}>"

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            return (yield from asyncio.shield(self._end).__await__())
        finally:
            self.error = None

    # Life and death.

    def run(self, main: Program, arguments: tuple[Any, ...]) -> None:
        """Begin the program."""
        # Kept: nobody else may hold it, and a task that nobody holds is garbage, whatever it waits for.
        self._main = self._loop.create_task(self._run(main, arguments), name=f"{self.label} main", context=self.context)

    async def _run(self, main: Program, arguments: tuple[Any, ...]) -> None:
        result: Any = None
        failure: Exception | None = None
        try:
            result = await main(*arguments)
        except SystemExit as ended:
            result = ended.code
        except asyncio.CancelledError:
            failure = VivumError(f"the program of {self.label} cancelled itself")
        except Exception as error:
            failure = error
        if not self.is_running:
            # Killed by what it sent last.
            return
        await self._end_tasks()
        self._stop("exit")
        if failure is None:
            self._end.set_result(result)
        else:
            self.error = failure
            self._end.set_exception(failure)
            # The world tells of it, if nobody awaits the process.
            self._end.exception()

    async def call(self, function: Program, arguments: tuple[Any, ...]) -> Any:
        """Run a coroutine function as a task of this process, and return its result."""
        task = self._loop.create_task(function(*arguments), context=self.context.copy())
        try:
            await asyncio.wait([task, self._end], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not task.done():
            raise ProcessKilled(f"process {self.label} ended while it was called into")
        return task.result()

    async def _end_tasks(self) -> None:
        """Cancel what the program left running, as `asyncio.run` does."""
        own = asyncio.current_task()
        left = [task for task in self._tasks() if task is not own]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    def _tasks(self) -> list[VirtualTask]:
        return [task for task in self._loop.tasks() if task.process is self and not task.done()]

    def kill(self) -> None:
        """End without a word: no callback runs any more, and the sockets are gone. May be called again."""
        if not self.is_running:
            return
        # Nobody may collect them: that would run their `finally` blocks.
        self._killed = self._tasks()
        self._stop("crash")
        if not self._end.done():
            self._end.set_exception(ProcessKilled(f"process {self.label} was killed"))
            self._end.exception()

    def kill_after(self, datagrams: int) -> None:
        """End without a word as `kill` does, but between two effects of a node: behind this many more datagrams.

        The callback that sends the last one runs to its end, since Python cannot be stopped in the middle of one.
        Nobody hears of that: the sockets are gone.
        """
        if not datagrams:
            self.kill()
            return
        self._datagrams_left = datagrams
        for port in self.ports:
            port.on_sent = self._on_sent

    def _on_sent(self) -> None:
        assert self._datagrams_left is not None
        self._datagrams_left -= 1
        if not self._datagrams_left:
            self.kill()

    @property
    def is_dying(self) -> bool:
        """Whether it will die between two effects that are to come."""
        return self.is_running and self._datagrams_left is not None

    def _stop(self, cause: str) -> None:
        self.is_running = False
        self._held.clear()
        for port in list(self.ports):
            port.close()
        for sink in self._sinks:
            sink.end(cause)

    def dispose(self) -> None:
        """Throw away the coroutines of a process that was killed. Their `finally` blocks run now, to no effect."""
        while tasks := [*self._killed, *self._tasks()]:
            self._killed = []
            for task in tasks:
                throw_away(task, self.context)

    def pause(self, duration_ns: int) -> None:
        """Sleep, as a process does that is not scheduled: arrivals pile up in its sockets."""
        scheduler = self.host.world.scheduler
        self._asleep_until_ns = max(self._asleep_until_ns, scheduler.now_ns + duration_ns)
        scheduler.at(self._asleep_until_ns, self._on_wake)

    def resume(self) -> None:
        """End a pause before its time."""
        self._asleep_until_ns = 0
        self._on_wake()

    def _on_wake(self, _: None = None) -> None:
        if self.is_running and not self.is_asleep:
            held, self._held = self._held, []
            self._loop.call_again(held)

    @property
    def is_asleep(self) -> bool:
        """Whether a pause is on."""
        return self._asleep_until_ns > self.host.world.scheduler.now_ns

    def admits(self, callback: asyncio.Handle) -> bool:
        """Return whether a callback may run now; hold it for the end of a pause, or forget it."""
        if self._asleep_until_ns and self.is_running and self.is_asleep:
            self._held.append(callback)
            return False
        return self.is_running

    # The environment of its nodes.

    def address(self, interface: str) -> str:  # noqa: ARG002
        """Return the address of the computer: it has one interface."""
        return self.host.address

    def resolve(self, host: str) -> str:
        """Return the address of a computer of this world."""
        return self.host.world.resolve(host)

    def hears_multicast(self, domain: int, interface: str, probes: int = 1) -> bool:  # noqa: ARG002
        """Return whether the world's network carries multicast."""
        return self.host.world.multicast

    def payload_bytes(self, interface: str) -> int:  # noqa: ARG002
        """Return what fits an Ethernet frame."""
        return 1472

    def open_port(
        self,
        domain: int,
        interface: str,  # noqa: ARG002
        *,
        port: int = 0,
        buffer_bytes: int = BUFFER_BYTES,
        ttl: int = 1,  # noqa: ARG002
        multicast: bool = True,  # noqa: ARG002
        shared_memory: bool | None = None,  # noqa: ARG002
        loss: float = 0.0,
    ) -> SimulatedPort:
        """Open a socket on the simulated network."""
        if not self.is_running:
            raise HostError(f"process {self.label} has ended; it opens no sockets")
        opened = self.host.plug_in(domain, port, buffer_bytes, loss, self.ports.remove)
        opened.bind_context(self.context)
        opened.on_sent = self._on_sent if self.is_dying else None
        self.ports.append(opened)
        return opened

    def reserve_heap(self) -> None:
        """Keep none: there may be hundreds of nodes in this process."""

    def random(self) -> Random:
        """Make a source that the world's seed decides."""
        self._sources += 1
        return self.host.world.random.fork("process", self.host.name, self._number, self._sources)

    def default_name(self) -> str:
        """Name a node after its process."""
        self._names += 1
        return f"{self.label}/{self._names}"

    def defaults(self) -> Defaults:
        """Return Vivum's own: a simulated computer does not know this one's environment."""
        return Defaults()

    def trace_sink(self, domain: str) -> TraceSink:
        """Return where the world's checkers read."""
        sink = self.host.world.make_sink(domain)
        self._sinks.append(sink)
        return sink


def throw_away(task: VirtualTask, context: Context) -> None:
    """Close a task's coroutine, however often it awaits while it is closed, and say nothing about it."""
    # For asyncio a task that goes while it is pending is a mistake.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    _close(task.get_coro(), context)
    # It ends as cancelled, so that nobody counts it as waiting.
    asyncio.Future.cancel(task)


def _close(work: Any, context: Context) -> None:
    """Close a coroutine from the inside out: one that awaits while it is closed would else be left to the collector."""
    for _ in range(CLOSINGS_MAX):
        if getattr(work, "cr_frame", None) is None:
            break
        inner = work.cr_await
        if inner is not None and inner is not work:
            _close(inner, context)
        try:
            context.run(work.close)
        except KeyboardInterrupt:
            raise
        except BaseException:
            # Whatever it is, a group with `GeneratorExit` in it for one: nobody is left to hear it.
            continue
