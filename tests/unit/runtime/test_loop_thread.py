"""The loop in a thread of its own: every caller gets an answer, also when it ends."""

import threading

import pytest

from vivum.core.errors import UsageError
from vivum.runtime.loop_thread import LoopThread


def test_work_that_has_not_begun_when_the_loop_stops_is_refused() -> None:
    thread = LoopThread("test")
    goes_on, is_asked = threading.Event(), threading.Event()
    told: list[BaseException] = []

    async def work() -> None:
        raise AssertionError("it must not begin")

    def ask() -> None:
        with pytest.raises(UsageError, match="closed") as refused:
            thread.call(work, 10)
        told.append(refused.value)

    def block() -> None:
        is_asked.set()
        assert goes_on.wait(10)

    thread._loop.call_soon_threadsafe(block)
    assert is_asked.wait(10)
    asking = threading.Thread(target=ask)
    asking.start()
    while not thread._requests:
        pass
    thread._loop.call_soon_threadsafe(thread._stop_all)
    goes_on.set()
    asking.join(10)
    assert told
