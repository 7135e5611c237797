"""Live nodes that write traces and lose on purpose: everything arrives all the same, and the traces say so."""

import asyncio
from pathlib import Path

import pytest

import vivum
from planted.judged import check_history
from vivum.core.errors import UsageError
from vivum.guarantees import all_promises, promises_of
from vivum.observe.trace import GroupNamed, MessageDelivered, MessageSent, NodeStarted, NodeStopped
from vivum.storage.errors import StorageError
from vivum.storage.traces import read_promises, read_trace

pytestmark = pytest.mark.slow

MESSAGES, TOPICS, NODES = 40, 10, 3


async def talk(domain: str, folder: Path, loss: float) -> list[vivum.NodeStatistics]:
    nodes = [await vivum.connect(domain, trace=folder, loss=loss, timeout_s=30) for _ in range(NODES)]
    names = [f"/swx/{number}" for number in range(TOPICS)]
    topics = [await node.enter_many(names, bytes, receive=False) for node in nodes]
    # All of them: who sends in a view that the third is not in yet does not send to the third.
    for topic in [topic for entered in topics for topic in entered]:
        await topic.wait_for_members(NODES)
    for number in range(MESSAGES):
        for sender in (0, 1):
            for topic in topics[sender]:
                await topic.send(b"%d" % number)
        await asyncio.sleep(0.005)
    for sender in (0, 1):
        for topic in topics[sender]:
            await topic.flush()
    told = [node.statistics() for node in nodes]
    # The first carries the service: if it left first and another right after it, the third could begin a new life
    # (tests/simulation/test_live_worlds.py says when).
    for node in reversed(nodes):
        await node.close()
    return told


def test_traces_of_live_nodes_that_lose_packets_keep_every_promise(domain_name, tmp_path):
    told = asyncio.run(asyncio.wait_for(talk(domain_name, tmp_path, 0.1), 60))
    assert all(each.lost_on_purpose > 0 for each in told)
    assert sum(each.counters["repairs_received"] for each in told) > 0
    records = list(read_trace(tmp_path))
    sent = 2 * TOPICS * MESSAGES
    assert sum(isinstance(each, MessageSent) for each in records) == sent
    assert sum(isinstance(each, MessageDelivered) for each in records) == NODES * sent
    for kind in (NodeStarted, NodeStopped):
        assert sum(isinstance(each, kind) for each in records) == NODES
    assert read_promises(tmp_path) == set(), "groups without names promise nothing"
    assert {each.guarantee for each in records if isinstance(each, GroupNamed)} == {"reliable"}
    assert check_history(records, all_promises(), promises_of=promises_of, several_clocks=True) == []


def test_a_node_that_loses_nothing_counts_nothing(domain_name, tmp_path):
    told = asyncio.run(asyncio.wait_for(talk(domain_name, tmp_path, 0.0), 60))
    assert [each.lost_on_purpose for each in told] == [0] * NODES


def test_topics_of_best_effort_are_traced_like_others(domain_name, tmp_path):
    async def scene() -> None:
        async with vivum.connect(domain_name, trace=tmp_path) as node:
            topic = await node.enter("/x", bytes, guarantee=vivum.BEST_EFFORT)
            await topic.send(b"once")
            assert (await topic.receive()).value == b"once"

    asyncio.run(asyncio.wait_for(scene(), 60))
    records = list(read_trace(tmp_path))
    (sent,) = [each for each in records if isinstance(each, MessageSent)]
    (given,) = [each for each in records if isinstance(each, MessageDelivered)]
    assert (sent.sequence, sent.digest) == (given.sequence, given.digest)
    assert "best_effort" in {each.guarantee for each in records if isinstance(each, GroupNamed)}
    assert check_history(records, all_promises(), promises_of=promises_of, several_clocks=True) == []


def test_a_trace_that_cannot_be_written_does_not_stop_the_node_and_is_told_at_the_end(domain_name, tmp_path):
    folder = tmp_path / "trace"

    async def scene() -> None:
        node = await vivum.connect(domain_name, trace=folder)
        topic = await node.enter("/x", bytes)
        folder.rmdir()
        await topic.send_many([b"."] * 40_000)
        await topic.flush()
        await node.close()

    with pytest.raises(StorageError, match="cannot write the trace"):
        asyncio.run(asyncio.wait_for(scene(), 60))


@pytest.mark.parametrize("loss", [-0.1, 0.6, float("nan")])
def test_a_share_that_is_none_is_refused(loss):
    with pytest.raises(UsageError, match="loss"):
        vivum.connect("x", loss=loss)
