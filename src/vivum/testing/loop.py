"""An asyncio event loop in virtual time: deterministic, and it never sleeps.

Waiting means running the simulator's agenda up to the next thing that is due, so a minute of `asyncio.sleep` takes no
time. Callbacks run in the order in which they were scheduled, timers of one instant too. A turn of the loop costs
`TURN_NS`, so that a task that polls with `asyncio.sleep(0)` lets time pass.

Tasks and futures hash by the order in which they were made: sets of them, as asyncio's own, iterate in the same order
in every run. Work for threads (`asyncio.to_thread`) runs at once, in the loop.

Callbacks carry their process in their context (`PROCESS`), which may hold them back while it is paused and drops them
when it is dead. Knows nothing of nodes and networks.
"""

import asyncio
import gc
import heapq
import os
import weakref
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import Executor
from contextvars import Context, ContextVar
from math import ceil
from typing import Any, NoReturn, Protocol, TypeVar, TypeVarTuple

from vivum.core.errors import UsageError, VivumError
from vivum.core.time import MICROSECOND, SECOND
from vivum.sim.scheduler import Scheduler

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TURN_NS = MICROSECOND
"""What a turn of the loop costs in virtual time."""

COLLECT_EVERY = 20_000
"""Turns between two collections of garbage. The interpreter should not collect by itself while the loop runs: when it
does depends on what ran before, and collecting may run code of the program."""

WAITING_SHOWN_MAX = 20
"""Tasks that an error names."""

_ASYNCIO = os.path.dirname(asyncio.__file__)

_NOT_SIMULATED = {
    "network": (
        "add_reader add_writer remove_reader remove_writer sock_recv sock_recv_into sock_recvfrom sock_recvfrom_into "
        "sock_sendall sock_sendto sock_connect sock_accept sock_sendfile create_connection create_server "
        "create_datagram_endpoint create_unix_connection create_unix_server connect_accepted_socket sendfile start_tls "
        "getaddrinfo getnameinfo"
    ),
    "pipes and processes": "connect_read_pipe connect_write_pipe subprocess_exec subprocess_shell",
    "signals": "add_signal_handler remove_signal_handler",
}


class Deadlock(VivumError):  # noqa: N818
    """The program waits for something that cannot happen any more, or not within the time limit."""


class Gatekeeper(Protocol):
    """Decides over the callbacks of a simulated process."""

    label: str

    def admits(self, callback: asyncio.Handle) -> bool:
        """Return whether a callback may run now. One that may not is kept for later, or dropped."""
        ...


PROCESS: ContextVar[Gatekeeper | None] = ContextVar("simulated process", default=None)
"""The process that a task or callback belongs to; None for the test that drives the world."""


class _Callback(asyncio.Handle):
    __slots__ = ()

    def _run(self) -> None:
        process = self._context.get(PROCESS)  # type: ignore[attr-defined]
        if process is None or process.admits(self):
            super()._run()


class _Timer(asyncio.TimerHandle):
    __slots__ = ("number",)

    number: int

    def _run(self) -> None:
        process = self._context.get(PROCESS)  # type: ignore[attr-defined]
        if process is None or process.admits(self):
            super()._run()

    def __lt__(self, other: object) -> bool:
        assert isinstance(other, _Timer)
        return (self.when(), self.number) < (other.when(), other.number)


class VirtualFuture(asyncio.Future[Any]):
    """A future that hashes by the order of making."""

    def __init__(self, *, loop: "VirtualLoop") -> None:
        self.number = loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class VirtualTask(asyncio.Task[Any]):
    """A task that hashes by the order of making, and knows its process."""

    def __init__(self, work: Any, *, loop: "VirtualLoop", name: str | None, context: Context | None) -> None:
        self.number = loop.next_number()
        self.process = PROCESS.get() if context is None else context.get(PROCESS)
        super().__init__(work, loop=loop, name=name or f"Task-{self.number}", context=context)

    def __hash__(self) -> int:
        return self.number

    def is_failure_unseen(self) -> bool:
        """Return whether it raised what nobody has looked at."""
        return self.done() and bool(self._log_traceback)


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs coroutines in the virtual time of a scheduler."""

    def __init__(self, scheduler: Scheduler, time_limit_ns: int | None = None) -> None:
        """Make a loop that stands where its scheduler does. Waiting past the limit raises `Deadlock`."""
        self._numbers = 0
        self._turns = 0
        self._made: weakref.WeakValueDictionary[int, VirtualTask] = weakref.WeakValueDictionary()
        self._scheduler = scheduler
        self._time_limit_ns = time_limit_ns
        self.is_ending = False
        """Nothing is scheduled any more: what is left is being thrown away."""

        super().__init__()
        self.set_debug(False)
        # What `BaseEventLoop` expects of those who complete it.
        self._clock_resolution = 1 / SECOND
        self._selector = self

    def next_number(self) -> int:
        """Count what is made, for an order that no address and no hash seed decides."""
        self._numbers += 1
        return self._numbers

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._scheduler.now_ns / SECOND

    # What asyncio schedules.

    def _call_soon(self, callback: Any, args: Sequence[Any], context: Context | None) -> asyncio.Handle:
        handle = _Callback(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call back at a time. Timers of one instant are called in the order in which they were set."""
        self._check_closed()  # type: ignore[attr-defined]
        timer = _Timer(when, callback, args, self, context)
        timer.number = self.next_number()
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_again(self, callbacks: list[asyncio.Handle]) -> None:
        """Let callbacks run that were held back, in their order."""
        self._ready.extend(callbacks)  # type: ignore[attr-defined]

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future."""
        return VirtualFuture(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **_: Any,
    ) -> asyncio.Task[T]:
        """Make a task. It never starts eagerly."""
        self._check_closed()  # type: ignore[attr-defined]
        task = VirtualTask(coro, loop=self, name=None if name is None else str(name), context=context)
        self._made[task.number] = task
        return task

    def tasks(self) -> Iterator[VirtualTask]:
        """Iterate over the tasks that are there, in the order of making."""
        for _, task in sorted(self._made.items()):
            yield task

    def run_in_executor(
        self,
        executor: Executor | None,  # noqa: ARG002
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Call the function now, whatever the executor: a thread would end at a time that nobody can foresee."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    # Waiting.

    def select(self, timeout: float | None) -> tuple[()]:
        """Run the agenda until there is something to call, or for this many seconds."""
        self._turns += 1
        if not self._turns % COLLECT_EVERY:
            gc.collect()
        scheduler = self._scheduler
        stop_ns = None if timeout is None else scheduler.now_ns + ceil(timeout * SECOND)
        scheduler.run_until(scheduler.now_ns + TURN_NS)
        limit_ns = self._time_limit_ns
        if limit_ns is not None and scheduler.now_ns > limit_ns and not self.is_ending:
            raise Deadlock(f"the program did not end within {limit_ns / SECOND:g} s of virtual time; {self._waiting()}")
        while not self._ready:  # type: ignore[attr-defined]
            next_ns = scheduler.next_ns
            if stop_ns is not None and (next_ns is None or next_ns > stop_ns):
                scheduler.run_until(max(stop_ns, scheduler.now_ns))
                break
            if next_ns is None:
                raise Deadlock(f"nothing will ever happen any more, but the program has not ended; {self._waiting()}")
            scheduler.run_until(next_ns)
            if limit_ns is not None and scheduler.now_ns > limit_ns:
                break
        return ()

    def _process_events(self, events: tuple[()]) -> None:
        pass

    def _write_to_self(self) -> None:
        # `call_soon_threadsafe` has put it where the next turn finds it; nobody sleeps.
        pass

    def _waiting(self) -> str:
        lines = [_where(task) for task in self.tasks() if not task.done()]
        more = len(lines) - WAITING_SHOWN_MAX
        shown = lines[:WAITING_SHOWN_MAX] + ([f"and {more} more"] if more > 0 else [])
        return "\n  ".join([f"{len(lines)} tasks wait:", *shown])

    # What is not simulated.

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        if not self.is_ending:
            super()._asyncgen_finalizer_hook(agen)  # type: ignore[misc]


def _refuse(name: str, what: str) -> Callable[..., NoReturn]:
    def refuse(self: VirtualLoop, *_: Any, **__: Any) -> NoReturn:  # noqa: ARG001
        raise UsageError(
            f"loop.{name}(): a simulated program has no access to the computer's {what}; let nodes talk by "
            "`vivum.connect`, and pass in a stand-in for whatever else the program talks to"
        )

    return refuse


for _what, _names in _NOT_SIMULATED.items():
    for _name in _names.split():
        setattr(VirtualLoop, _name, _refuse(_name, _what))


def _where(task: VirtualTask) -> str:
    """Say where a task waits: its coroutine, and the innermost line that awaits and is not asyncio's own."""
    work: Any = task.get_coro()
    name = getattr(work, "__qualname__", str(work))
    at = ""
    while work is not None:
        frame = getattr(work, "cr_frame", None)
        if frame is not None and not frame.f_code.co_filename.startswith(_ASYNCIO):
            at = f" in {frame.f_code.co_qualname}, {frame.f_code.co_filename}:{frame.f_lineno}"
        work = getattr(work, "cr_await", None)
    of = "" if task.process is None else f" of {task.process.label}"
    return f"{task.get_name()}{of}: {name}{at}"
