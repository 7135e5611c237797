"""What is done can be awaited, and made a task of, as the coroutine that it stands for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from vivum.live.done import DONE


async def awaited() -> Any:
    return await DONE


@pytest.mark.parametrize(
    "use",
    [
        awaited,
        lambda: asyncio.create_task(DONE),
        lambda: asyncio.ensure_future(DONE),
        lambda: asyncio.wait_for(DONE, 1),
    ],
)
def test_it_is_awaited_to_none_again_and_again(use: Callable[[], Awaitable[Any]]) -> None:
    async def scenario() -> None:
        for _ in range(3):
            assert await use() is None

    asyncio.run(scenario())


def test_many_of_them_are_gathered_and_a_group_of_tasks_takes_them() -> None:
    async def scenario() -> None:
        assert await asyncio.gather(DONE, DONE, asyncio.sleep(0, "slept")) == [None, None, "slept"]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(DONE) for _ in range(3)]
        assert [task.result() for task in tasks] == [None] * 3

    asyncio.run(scenario())


def test_awaiting_it_does_not_suspend() -> None:
    async def scenario() -> None:
        turns: list[int] = []
        asyncio.get_running_loop().call_soon(turns.append, 1)
        for _ in range(100):
            await DONE
        assert not turns

    asyncio.run(scenario())


def test_a_task_of_it_that_is_cancelled_before_it_begins_is_cancelled() -> None:
    async def scenario() -> None:
        task = asyncio.create_task(DONE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


def test_several_are_one_where_a_set_is_made_of_them_and_tasks_of_them_are_not() -> None:
    async def scenario() -> None:
        assert [await each for each in asyncio.as_completed([DONE, DONE])] == [None]
        tasks = [asyncio.create_task(DONE) for _ in range(2)]
        assert [await each for each in asyncio.as_completed(tasks)] == [None, None]

    asyncio.run(scenario())
