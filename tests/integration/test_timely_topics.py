"""Topics with the guarantee TIMELY, over real sockets that lose a tenth of what arrives."""

import asyncio

import pytest

import vivum

TIMEOUT_S = 30
MESSAGES = 400


def test_on_lossy_sockets_every_message_arrives_once_and_in_order_and_receivers_repaired_some(
    domain_name: str,
) -> None:
    async def scenario() -> None:
        async with (
            vivum.connect(domain_name) as sending,
            vivum.connect(domain_name, loss=0.1) as first,
            vivum.connect(domain_name, loss=0.1) as second,
            vivum.connect(domain_name, loss=0.1) as third,
        ):
            receivers = [
                await node.enter("/quotes", bytes, guarantee="timely", repair=(4, 3)) for node in (first, second, third)
            ]
            topic = await sending.enter("/quotes", guarantee=vivum.TIMELY, receive=False)
            await topic.wait_for_members(4)
            for number in range(MESSAGES):
                await topic.send(b"%d" % number)
                await asyncio.sleep(0.001)
            await topic.flush()
            for receiver in receivers:
                events = [await receiver.receive() for _ in range(MESSAGES)]
                assert [each.value for each in events] == [b"%d" % number for number in range(MESSAGES)]
                assert [each.sequence for each in events] == list(range(MESSAGES))
            counters = [node.statistics().counters for node in (first, second, third)]
            assert sum(each["lateral_rebuilt"] for each in counters) > 0
            assert all(each["messages_lost"] == 0 for each in counters)

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


def test_a_deadline_is_for_timely_topics(domain_name: str) -> None:
    async def scenario() -> None:
        async with vivum.connect(domain_name) as node:
            with pytest.raises(vivum.UsageError, match=r"deadline_ms= and repair= are for timely topics"):
                await node.enter("/quotes", bytes, deadline_ms=5)
            with pytest.raises(vivum.UsageError, match="expected a number of milliseconds"):
                await node.enter("/quotes", bytes, guarantee="timely", deadline_ms=-1)
            topic = await node.enter("/quotes", bytes, guarantee="timely", deadline_ms=5)
            await topic.send(b"1")
            assert (await topic.receive()).value == b"1"

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))
