"""What becomes of topics when another service takes over that knows them otherwise."""

import asyncio
from collections.abc import Sequence

import pytest

import vivum
from vivum.testing import World
from vivum.wire.directory import TopicEntry, TopicRecord


def test_a_topic_that_has_another_type_under_another_service_is_left_and_all_are_told() -> None:
    """Its old group is now that of another topic, which must not be mixed up with it."""
    world = World()

    async def program() -> None:
        async with vivum.connect("d") as node:
            changed, kept = await node.enter_many(["/changed", "/kept"], bytes)
            seat = node.seat_of("/changed")
            assert seat is not None

            async def enter(entries: Sequence[TopicEntry]) -> list[TopicRecord]:
                assert [each.name for each in entries] == ["/changed", "/kept"]
                return [
                    TopicRecord("/changed", 77, 1, '"another type"', "reliable", 0),
                    TopicRecord("/kept", seat.group, 2, entries[1].schema, "reliable", 0),
                ]

            node.browser.enter = enter  # type: ignore[method-assign]
            reading = asyncio.create_task(changed.receive())
            waiting = asyncio.create_task(changed.wait_for_members(2))
            await asyncio.sleep(0.1)
            await node._enter_all_again()
            with pytest.raises(vivum.MissedMessages, match="nothing more comes of /changed"):
                await asyncio.wait_for(reading, 1)
            with pytest.raises(vivum.TypeMismatch):
                await asyncio.wait_for(waiting, 1)
            with pytest.raises(vivum.TypeMismatch):
                await changed.send(b"x")
            await changed.leave()
            await asyncio.sleep(1)
            await kept.send(b"y")
            assert (await asyncio.wait_for(kept.receive(), 1)).topic == "/kept"
            assert node.statistics().topics == 1

    async def rehearse() -> None:
        await world.host("a").start(program)

    world.run(rehearse())
