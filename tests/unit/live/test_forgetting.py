"""A node forgets topics that it left, once all that it sent there is settled."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import vivum
from vivum.testing import World


def run(reader: Callable[[], Coroutine[Any, Any, None]], program: Callable[[], Coroutine[Any, Any, None]]) -> World:
    """Run a program at a node, with another one in the same domain."""
    world = World(loss=0.02)

    async def rehearse() -> None:
        world.host("other").start(reader)
        await asyncio.sleep(1)
        await world.host("a").start(program)

    world.run(rehearse())
    return world


async def stay() -> None:
    async with vivum.connect("d") as node:
        await node.enter("/t", bytes)
        await asyncio.Event().wait()


@pytest.mark.parametrize("guarantee", ["reliable", "best_effort"])
def test_topics_that_were_left_are_forgotten(guarantee: str) -> None:
    async def program() -> None:
        async with vivum.connect("d") as node:
            for number in range(5):
                async with await node.enter(f"/line/{number}", bytes, guarantee=guarantee) as topic:
                    await topic.send(b"x")
            await asyncio.sleep(3)
            assert list(node.seats) == []
            assert node._by_group == {}

    run(stay, program)


def test_numbers_go_on_and_a_flush_still_tells_after_a_topic_was_forgotten() -> None:
    async def program() -> None:
        async with vivum.connect("d") as node:
            first = await node.enter("/t", bytes)
            await first.wait_for_members(2)
            await first.send_many([b"x"] * 3)
            await first.leave()
            await asyncio.sleep(3)
            assert node.seat_of("/t") is None
            await first.flush()
            with pytest.raises(vivum.ClosedError):
                await first.send(b"y")
            second = await node.enter("/t", bytes)
            seat = node.seat_of("/t")
            assert seat is not None
            assert seat.numbered == 3
            await second.send(b"z")
            await second.flush()
            assert (await second.receive()).sequence == 3

    run(stay, program)


def test_a_topic_that_was_left_is_remembered_until_what_was_sent_is_settled() -> None:
    async def program() -> None:
        async with vivum.connect("d") as node:
            topic = await node.enter("/t", bytes)
            await topic.wait_for_members(2)
            await topic.send(b"x")
            flushing = asyncio.create_task(topic.flush())
            await topic.leave()
            assert node.seat_of("/t") is not None
            await asyncio.wait_for(flushing, 20)

    run(stay, program)


def test_what_a_closed_subscription_received_still_has_its_name() -> None:
    async def program() -> None:
        async with vivum.connect("d") as node:
            subscription = node.subscribe("/*", bytes)
            async with subscription:
                await subscription.wait_for_topics(1)
                async with await node.enter("/t", bytes, receive=False) as topic:
                    await topic.send(b"x")
                await asyncio.sleep(0.5)
            await asyncio.sleep(3)
            assert node.seat_of("/t") is None
            assert [event.topic async for event in subscription] == ["/t"]

    run(stay, program)


def test_a_topic_is_entered_again_while_it_is_being_forgotten() -> None:
    async def program() -> None:
        async with vivum.connect("d") as node:
            for number in range(50):
                topic = await node.enter("/t", bytes)
                await topic.send(b"x")
                await topic.leave()
                await asyncio.sleep(number * 0.002)
                # Another topic has to be asked for meanwhile.
                one, other = await node.enter_many(["/t", f"/new/{number}"], bytes)
                await one.leave()
                await other.leave()

    run(stay, program)


def test_a_seat_that_is_taken_again_is_not_forgotten_by_a_late_confirmation() -> None:
    async def program() -> None:
        async with vivum.connect("d") as node:
            topic = await node.enter("/t", bytes)
            await topic.wait_for_members(2)
            await topic.send(b"x")
            await topic.leave()
            seat = node.seat_of("/t")
            assert seat is not None
            seat.has_left = True
            # Taken, and not entered yet.
            seat.holders += 1
            await asyncio.sleep(3)
            assert seat.is_settled
            assert node.seat_of("/t") is seat
            node.give_back(seat, None)
            assert node.seat_of("/t") is None

    run(stay, program)
