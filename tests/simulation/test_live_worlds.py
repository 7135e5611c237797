"""Whole nodes in a simulated world: from `connect` to the reader, deterministic, and judged by the checkers."""

import asyncio

import pytest

import vivum
from vivum.testing import World


@pytest.mark.parametrize("away_s", [0.0, 0.002, 0.01, 0.03])
def test_a_reader_that_comes_back_gets_nothing_of_its_former_stay(away_s: float) -> None:
    world = World(seed=1, loss=0.05)
    numbers: list[int] = []

    async def send() -> None:
        async with vivum.connect("d") as node:
            topic = await node.enter("/t", bytes, receive=False)
            await topic.wait_for_members(2)
            while True:
                await topic.send(b"x")
                await asyncio.sleep(0.001)

    async def read() -> None:
        async with vivum.connect("d") as node:
            first = await node.enter("/t", bytes)
            await first.receive()
            await first.leave()
            await asyncio.sleep(away_s)
            second = await node.enter("/t", bytes)
            while len(numbers) < 200:
                numbers.append((await second.receive()).sequence)

    async def rehearse() -> None:
        world.host("a").start(send)
        await world.host("b").start(read)

    world.run(rehearse())
    assert numbers == list(range(numbers[0], numbers[0] + 200))
