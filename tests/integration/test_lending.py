"""Frames that receivers read in their sender's memory, and pass on from there: with loss, and when the sender dies."""

import asyncio
import time

import pytest

import vivum
from live_processes.director import Cast
from vivum.runtime import boards

pytestmark = pytest.mark.skipif(not boards.READABLE, reason="the compiled part was not built")

TOPIC = "/lending/one"


def test_what_a_receiver_lost_comes_from_others_that_have_it_on_loan() -> None:
    async def scenario() -> None:
        name = f"lending {time.monotonic_ns()}"
        payloads = [number.to_bytes(4, "big") * 250 for number in range(20_000)]

        async def read(topic: vivum.Topic[bytes]) -> list[bytes]:
            taken: list[bytes] = []
            async for batch in topic.batches():
                taken += batch.values()
                if len(taken) >= len(payloads):
                    break
            return taken

        async with (
            asyncio.timeout(60),
            vivum.connect(name) as sender,
            vivum.connect(name, loss=0.1) as first,
            vivum.connect(name, loss=0.1) as second,
            vivum.connect(name) as third,
        ):
            nodes = (sender, first, second, third)
            topics = [await each.enter(TOPIC, bytes, own=False) for each in nodes]
            await topics[0].wait_for_members(4)
            readers = [asyncio.create_task(read(each)) for each in topics[1:]]
            await topics[0].send_many(payloads)
            for taken in await asyncio.gather(*readers):
                assert taken == payloads
            await topics[0].flush()
            assert sender.statistics().shared_frames_sent > 200
            counts = [each.statistics().counters for each in nodes]
            assert counts[1]["repairs_received"] > 0
            assert sum(each["repairs_sent"] for each in counts[1:]) > 0

    asyncio.run(scenario())


@pytest.mark.slow
def test_what_one_got_of_a_sender_that_is_killed_the_other_gets_from_its_loan(cast: Cast) -> None:
    (carrier,) = cast.start()
    (other,) = cast.start(loss=0.1)
    (sender,) = cast.start()
    for each in (carrier, other, sender):
        each.ask("enter", topics=[TOPIC])
    sender.ask("members", topic=TOPIC, count=3)
    sender.tell("send", topic=TOPIC, tag="dead", count=10_000_000, size=1_000)
    carrier.ask("expect", topic=TOPIC, tag="dead", count=10_000)
    sender.kill()
    for each in (carrier, other):
        each.ask("members", topic=TOPIC, count=2)
    reached = carrier.ask("expect", topic=TOPIC, tag="dead", count=10_000)
    # It lost a tenth of all frames, and has all that the carrier has: nobody else could give them.
    assert other.ask("expect", topic=TOPIC, tag="dead", count=reached) == reached
    for each in (carrier, other):
        report = each.ask("report")
        assert (report["out_of_order"], report["missed"]) == ([], [])
