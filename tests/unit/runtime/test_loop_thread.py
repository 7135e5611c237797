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


def test_work_that_comes_when_the_loop_has_ended_is_refused() -> None:
    """A thread that asked just before another one closed the node waited for ever."""
    thread = LoopThread("test")

    async def work() -> None:
        raise AssertionError("it must not begin")

    def end_unseen() -> None:
        # As if `stop` had ended the loop between the caller's look and its request.
        thread._loop.stop()

    thread._loop.call_soon_threadsafe(end_unseen)
    thread._thread.join(10)
    with pytest.raises(UsageError, match="closed"):
        thread.call(work, 10)


def test_a_question_is_answered_in_the_thread_of_the_loop_and_by_the_caller_when_that_has_ended() -> None:
    thread = LoopThread("test")
    assert thread.ask(threading.current_thread) is thread._thread

    async def ask_inside() -> threading.Thread:
        return thread.ask(threading.current_thread)

    assert thread.call(ask_inside, 10) is thread._thread
    thread.stop()
    assert thread.ask(threading.current_thread) is threading.current_thread()
