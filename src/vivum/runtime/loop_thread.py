"""An event loop in a thread of its own, with a queue through which other threads hand it work.

The queue is a deque, whose ends are thread-safe. One wake-up serves all requests that wait (seed 004: applications talk
to the core thread through a lock-free queue).
"""

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from vivum.core.errors import UsageError

R = TypeVar("R")

Work = Callable[[], Coroutine[Any, Any, Any]]

STOP_S = 5.0
"""How long `stop` waits for the thread to end."""


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's where it is installed, otherwise asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run_on_loop(work: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine to its end, as `asyncio.run` does, on a loop of `new_loop`."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)


class LoopThread:
    """Runs coroutines for other threads. A daemon: it never keeps a process alive."""

    def __init__(self, name: str) -> None:
        self._owner = os.getpid()
        self._loop = new_loop()
        self._requests: deque[tuple[Work, Future[Any]]] = deque()
        self._tasks: dict[asyncio.Task[None], Future[Any]] = {}
        self._is_awake = False
        self._is_stopped = False
        # Set when the loop runs nothing more: whoever asks after that refuses all requests that are left.
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._has_ended = True
            self._refuse_requests()
            self._loop.close()

    @property
    def is_here(self) -> bool:
        """Whether the thread is in this process: a forked child has a copy of this object, but no thread."""
        return os.getpid() == self._owner

    def check_caller(self) -> None:
        """Raise `UsageError` in a callback: it runs in the loop, and would wait for itself."""
        if threading.current_thread() is self._thread:
            raise UsageError("a callback of vivum.sync must not call back into it; hand the work to another thread")

    def call(self, work: Work, timeout_s: float | None = None) -> Any:
        """Run a coroutine in the loop and return its result. Raises `TimeoutError` after `timeout_s`.

        The thread must be in this process.
        """
        self.check_caller()
        if not self.is_here:
            raise UsageError("this process was forked from the one that the node is in; connect again here")
        if self._is_stopped:
            raise UsageError("the node was closed; connect again")
        future: Future[Any] = Future()
        self._requests.append((work, future))
        if not self._is_awake:
            # A race can wake the loop once too often, but never misses a request: the flag is cleared before the read.
            self._is_awake = True
            with contextlib.suppress(RuntimeError):
                # Raised by a loop that was closed meanwhile.
                self._loop.call_soon_threadsafe(self._take)
        if self._has_ended:
            self._refuse_requests()
        try:
            return future.result(timeout_s)
        except BaseException:
            # Cancel on Ctrl-C in the calling thread too: nobody waits for the result any more.
            future.cancel()
            raise

    def ask(self, question: Callable[[], R]) -> R:
        """Return what a function returns that looks at what the loop's thread works on.

        It is called in that thread, between its callbacks. The caller calls it itself if it is that thread, if the
        thread has ended, and in a forked child, which has none.
        """
        if threading.current_thread() is self._thread or not self.is_here:
            return question()
        if self._is_stopped:
            self._thread.join(STOP_S)
            return question()

        async def answer() -> R:
            return question()

        answered: R = self.call(answer)
        return answered

    def _take(self) -> None:
        self._is_awake = False
        while self._requests:
            work, future = self._requests.popleft()
            task = self._loop.create_task(self._do(work, future))
            self._tasks[task] = future
            task.add_done_callback(self._tasks.pop)

    async def _do(self, work: Work, future: "Future[Any]") -> None:
        task = asyncio.current_task()
        assert task is not None

        def cancel(done: "Future[Any]") -> None:
            if done.cancelled():
                self._loop.call_soon_threadsafe(task.cancel)

        future.add_done_callback(cancel)
        if future.cancelled():
            return
        try:
            result = await work()
        except asyncio.CancelledError:
            self._refuse(future)
        except BaseException as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)

    @staticmethod
    def _refuse(future: "Future[Any]") -> None:
        if not future.done():
            future.set_exception(UsageError("the node was closed while it worked; connect again"))

    def _refuse_requests(self) -> None:
        with contextlib.suppress(IndexError):
            # Several threads may do this at once.
            while True:
                _, future = self._requests.popleft()
                self._refuse(future)

    def stop(self) -> None:
        """End the loop and its thread. May be called again, and does nothing in a forked child."""
        if self._is_stopped or not self.is_here:
            return
        self._is_stopped = True
        self._loop.call_soon_threadsafe(self._stop_all)
        self._thread.join(STOP_S)

    def _stop_all(self) -> None:
        for task, future in self._tasks.items():
            task.cancel()
            # A task that has not begun never will, and cannot fail its future itself.
            self._refuse(future)
        self._loop.call_soon(self._loop.stop)
