"""The event loop in virtual time: order, timers, no sleeping, no threads, no sockets, and what a deadlock says."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from vivum.core.errors import UsageError
from vivum.core.time import SECOND
from vivum.sim.scheduler import Scheduler
from vivum.testing import Deadlock, VirtualLoop


def run(work: Coroutine[Any, Any, Any], time_limit_s: float | None = None) -> Any:
    loop = VirtualLoop(Scheduler(), None if time_limit_s is None else round(time_limit_s * SECOND))
    try:
        return loop.run_until_complete(work)
    finally:
        loop.is_ending = True
        for task in list(loop.tasks()):
            task._log_destroy_pending = False
            task.get_coro().close()
        loop.close()


def test_a_day_takes_no_time() -> None:
    async def wait() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    began = time.perf_counter()
    assert run(wait()) == pytest.approx(86_400, abs=1e-5)
    assert time.perf_counter() - began < 5


def test_timers_fire_when_they_are_due_and_those_of_one_instant_in_the_order_of_setting() -> None:
    async def wait() -> list[tuple[str, float]]:
        loop, called = asyncio.get_running_loop(), []
        base = loop.time()
        for name, at in [("b", 2.0), ("a", 1.0), ("c", 2.0), ("d", 2.0), ("e", 2.0), ("f", 1.5)]:
            loop.call_at(base + at, lambda name=name: called.append((name, round(loop.time() - base, 6))))
        await asyncio.sleep(3)
        return called

    assert run(wait()) == [("a", 1.0), ("f", 1.5), ("b", 2.0), ("c", 2.0), ("d", 2.0), ("e", 2.0)]


def test_a_timer_that_was_cancelled_does_not_fire() -> None:
    async def wait() -> list[str]:
        called: list[str] = []
        timer = asyncio.get_running_loop().call_later(1, called.append, "late")
        timer.cancel()
        await asyncio.sleep(2)
        return called

    assert run(wait()) == []


def test_time_out_and_cancellation_are_those_of_asyncio() -> None:
    async def wait() -> tuple[bool, float]:
        try:
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        except TimeoutError:
            return True, round(asyncio.get_running_loop().time(), 4)
        return False, 0

    assert run(wait()) == (True, 5.0)


def test_a_task_that_polls_lets_time_pass() -> None:
    async def poll() -> int:
        turns, is_set = 0, asyncio.Event()
        asyncio.get_running_loop().call_later(0.001, is_set.set)
        while not is_set.is_set():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert 900 < run(poll()) < 1100


def test_sets_of_tasks_iterate_in_the_order_of_making() -> None:
    async def race() -> list[int]:
        order: list[int] = []

        async def fail(number: int) -> None:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                order.append(number)
                raise

        async def fail_together() -> None:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(fail(number)) for number in range(50)]
                assert [task.get_name() for task in set(tasks)] == [task.get_name() for task in tasks]
                await asyncio.sleep(1)
                raise ValueError

        with pytest.raises(ExceptionGroup):
            await fail_together()
        return order

    assert run(race()) == list(range(50))


def test_work_for_threads_is_done_at_once_in_the_loop() -> None:
    async def work() -> tuple[bool, int]:
        import threading

        main = threading.get_ident()
        where = await asyncio.to_thread(threading.get_ident)
        with pytest.raises(ZeroDivisionError):
            await asyncio.get_running_loop().run_in_executor(None, lambda: 1 // 0)
        return where == main, await asyncio.to_thread(max, 1, 2)

    assert run(work()) == (True, 2)


def test_a_call_that_is_safe_for_threads_is_made() -> None:
    async def work() -> bool:
        is_set = asyncio.Event()
        asyncio.get_running_loop().call_soon_threadsafe(is_set.set)
        await is_set.wait()
        return True

    assert run(work())


async def hold_forever() -> None:
    await asyncio.Event().wait()


def test_a_deadlock_names_who_waits_and_where() -> None:
    async def wait() -> None:
        helper = asyncio.create_task(hold_forever(), name="helper")
        await helper

    with pytest.raises(Deadlock, match=r"(?s)nothing will ever happen.*2 tasks wait.*helper: hold_forever .*test_loop"):
        run(wait())


def test_a_program_that_goes_on_for_too_long_is_stopped() -> None:
    async def tick() -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(Deadlock, match="did not end within 60 s of virtual time"):
        run(tick(), 60)


@pytest.mark.parametrize(
    "ask",
    [
        lambda loop: asyncio.open_connection("127.0.0.1", 80),
        lambda loop: asyncio.create_subprocess_exec("true"),
        lambda loop: loop.getaddrinfo("localhost", 80),
    ],
)
def test_what_is_not_simulated_says_so(ask: Any) -> None:
    async def work() -> None:
        await ask(asyncio.get_running_loop())

    with pytest.raises(UsageError, match="a simulated program has no access to the computer's"):
        run(work())
