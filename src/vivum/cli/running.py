"""Runs the work of a command on an event loop until it ends, or until Ctrl-C or SIGTERM ends it in order."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from vivum.cli.conventions import Terminated
from vivum.runtime.loop_thread import new_loop

R = TypeVar("R")


def run_command(work: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine and return its result. SIGTERM cancels it, as Ctrl-C does, and `Terminated` is raised."""
    result, was_terminated = _run(work)
    if was_terminated or result is None:
        raise Terminated
    return result[0]


def run_until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that goes on until it is stopped. SIGTERM is its usual end, and no failure."""
    _run(work)


def _run(work: Coroutine[Any, Any, R]) -> tuple[tuple[R] | None, bool]:
    before = signal.getsignal(signal.SIGTERM)
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(_until_terminated(work))
    finally:
        # The loop's own handler left none behind.
        signal.signal(signal.SIGTERM, before)


async def _until_terminated(work: Coroutine[Any, Any, R]) -> tuple[tuple[R] | None, bool]:
    task = asyncio.ensure_future(work)
    came: list[bool] = []

    def on_sigterm() -> None:
        came.append(True)
        task.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, on_sigterm)
    try:
        return ((await task),), False
    except asyncio.CancelledError:
        if not came:
            raise  # Ctrl-C, which cancels what waits here, and so the work.
        return None, True
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
