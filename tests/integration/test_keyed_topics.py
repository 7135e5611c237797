"""Topics with the guarantee KEYED, over real sockets: whoever sends a key, a node hands it over once."""

import asyncio
from typing import Any

import pytest

import vivum
from vivum.protocols.keyed.keys import heads_of

TIMEOUT_S = 30
QUERY = bytes(range(16))


async def keyed_seat(node: vivum.NodeHandle, topic: "vivum.Topic[bytes]") -> Any:
    (seat,) = await node.take_seats([topic.name], '"bytes"', vivum.KEYED, lambda _: None)
    return seat


@pytest.mark.slow
def test_a_sender_that_died_half_way_is_replaced_and_readers_see_each_message_once(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as reading:
            topic = await reading.enter("/results", guarantee=vivum.KEYED)
            async with reading.subscribe("/*", bytes, guarantee=vivum.KEYED) as subscription:
                await subscription.wait_for_topics(1)
                first = await vivum.connect(domain_name)
                sending = await first.enter("/results", guarantee=vivum.KEYED, receive=False)
                await (await keyed_seat(first, sending)).send([b"a", b"b"], heads=heads_of(QUERY, 0, 0, 2))
                await sending.flush()
                first.close_now()
                async with vivum.connect(domain_name) as second:
                    again = await second.enter("/results", guarantee=vivum.KEYED, receive=False)
                    await (await keyed_seat(second, again)).send([b"a", b"b", b"c"], heads=heads_of(QUERY, 0, 0, 3))
                    # Without a key, as anybody may: the same value is another message.
                    await again.send(b"c")
                    assert again.try_send(b"d")
                    events = [await topic.receive() for _ in range(5)]
                    assert [each.value for each in events] == [b"a", b"b", b"c", b"c", b"d"]
                    # Of the second sender's messages, 0 and 1 are left out; the others keep their numbers.
                    assert [each.sequence for each in events] == [0, 1, 2, 3, 4]
                    found: list[bytes] = []
                    async for batch in subscription.batches():
                        found += batch.payloads
                        if len(found) == 5:
                            break
                    assert found == [b"a", b"b", b"c", b"c", b"d"]
                    assert topic.statistics().repeated == 2

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


def test_bytes_without_a_head_in_a_keyed_topic_are_counted_and_reach_nobody(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as node:
            topic = await node.enter("/results", guarantee=vivum.KEYED)
            seat = await keyed_seat(node, topic)
            await seat.send([b"odd", b""], heads=[b"\7", b""])
            await topic.send(b"good")
            assert (await topic.receive()).value == b"good"
            assert topic.statistics().undecodable == 2

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))
