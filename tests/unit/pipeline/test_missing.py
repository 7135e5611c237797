"""What a log does not have: found by numbers, by what the node tells, and across the lives of a recorder."""

import asyncio
import os

import msgspec
import pytest

import vivum
from recorded.crashed import crash
from vivum.core.ids import Incarnation, Member, NodeId
from vivum.live.failures import MissedMessages
from vivum.pipeline.recording.missing import Missing
from vivum.pipeline.recording.recorder import Recorder
from vivum.storage.gaps import GAPS_TOPIC, MISSED, NOT_RECORDED, REFUSED, Gap
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_log import SegmentLog
from vivum.storage.segment_reader import LogReader
from vivum.storage.tips import TIPS_MAX, Tips
from vivum.storage.topic_types import TopicTypes
from vivum.wire.schema import describe_type

SENDER = Member(NodeId(3), Incarnation(2))


def fresh() -> Missing:
    missing = Missing(Tips(), 0)
    missing.begin(5)
    return missing


def ranges(gaps: list[Gap]) -> list[tuple[str, int, int]]:
    return [(each.what, each.first, each.count) for each in gaps]


def test_numbers_that_follow_each_other_leave_no_gap_and_others_do():
    missing = fresh()
    for first, stop in ((7, 9), (9, 12), (15, 16)):
        missing.look("/a", SENDER, first, stop, 100)
    (gap,) = missing.take()
    assert gap == Gap(MISSED, "/a", 3, 2, 12, 3, until_ns=100, text="not delivered")
    assert (missing.count, missing.take()) == (3, [])


def test_what_the_node_tells_exactly_is_one_gap_also_when_the_number_tells_it_again():
    missing = fresh()
    missing.look("/a", SENDER, 0, 4, 1)
    missing.interrupt("/a", MissedMessages("4 to 6 are gone", 3, SENDER, 4), 2)
    missing.look("/a", SENDER, 7, 8, 3)
    assert ranges(missing.take()) == [(MISSED, 4, 3)]
    missing.interrupt("/a", MissedMessages("they came meanwhile", 3, SENDER, 4), 4)
    assert (missing.take(), missing.count) == ([], 3)


def test_what_nobody_can_count_is_told_and_the_numbers_tell_the_rest():
    missing = fresh()
    missing.look("/a", SENDER, 0, 4, 1)
    missing.interrupt("/a", MissedMessages("dropped", None), 2)
    assert missing.count == 1
    missing.look("/a", SENDER, 9, 10, 3)
    assert ranges(missing.take()) == [(MISSED, 0, 0), (MISSED, 4, 5)]
    assert missing.count == 5


def test_runs_that_were_refused_one_after_the_other_are_one_gap():
    missing = fresh()
    for first in range(0, 50, 5):
        missing.look("/a", SENDER, first, first + 5, first)
        missing.refuse("/a", SENDER, first, first + 5, first)
    (gap,) = missing.take()
    assert (gap.what, gap.first, gap.count, gap.until_ns) == (REFUSED, 0, 50, 45)
    assert missing.count == 50


def test_in_topics_with_heads_numbers_have_holes_and_only_the_node_tells():
    missing = fresh()
    missing.headed.add("/k")
    missing.look("/k", SENDER, 0, 4, 1)
    missing.look("/k", SENDER, 9, 12, 1)
    assert missing.take() == []
    missing.interrupt("/k", MissedMessages("gone", 2, SENDER, 12), 2)
    assert ranges(missing.take()) == [(MISSED, 12, 2)]


def test_what_was_sent_between_two_lives_is_told_for_each_sender_and_for_the_time():
    tips = Tips()
    tips.note("/a", (3, 2), 40)
    missing = Missing(tips, 1000)
    missing.begin(3000)
    missing.look("/a", SENDER, 55, 60, 3001)
    missing.look("/a", Member(NodeId(9), Incarnation(1)), 6, 7, 3002)
    missing.look("/a", Member(NodeId(10), Incarnation(1)), 0, 7, 3002)
    time, known, unknown = missing.take()
    assert (time.what, time.topic, time.since_ns, time.until_ns) == (NOT_RECORDED, "", 1000, 3000)
    assert (known.first, known.count, known.since_ns, known.until_ns) == (40, 15, 1000, 3000)
    assert (unknown.sender, unknown.first, unknown.count) == (9, 0, 6)
    assert missing.count == 0, "it was not this recorder that missed them"


def test_a_continued_log_knows_how_far_each_sender_was_after_a_clean_end_and_after_a_crash(tmp_path):
    def run(topic: str, sender: int, first: int) -> RecordedRun:
        return RecordedRun(topic, sender, 1, first, 1, 0, first, [b"x", b"y"])

    with SegmentLog(tmp_path, segment_bytes=300) as log:
        for number in range(5):
            log.append([run("/a", 1, 2 * number), run("/b", 2, 4 * number)])
    log = SegmentLog(tmp_path)
    assert log.tips.topics == {"/a": {(1, 1): 10}, "/b": {(2, 1): 18}}
    log.append([run("/a", 1, 20), run("/a", 5, 0)])
    crash(log)
    with SegmentLog(tmp_path) as log:
        assert log.tips.topics == {"/a": {(1, 1): 22, (5, 1): 2}, "/b": {(2, 1): 18}}
        assert log.delivered_ns == 20


def test_senders_beyond_the_limit_are_forgotten_the_one_that_is_silent_for_longest_first():
    tips = Tips()
    for number in range(TIPS_MAX + 2):
        tips.note("/a", (number, 0), 1)
        tips.note("/a", (0, 0), number)
    assert len(tips.topics["/a"]) == TIPS_MAX
    assert (0, 0) in tips.topics["/a"]
    assert (1, 0) not in tips.topics["/a"]
    assert Tips.decode(tips.encode()).topics == tips.topics


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_recorder_that_comes_back_tells_what_was_sent_while_it_was_away(tmp_path, is_killed):
    async def record(domain: str, topic: "vivum.Topic[bytes]", count: int) -> SegmentLog:
        log = SegmentLog(tmp_path)
        async with vivum.connect(domain) as node:
            recorder = Recorder(node, ["/swx/**"], log)
            task = asyncio.create_task(recorder.run())
            await topic.wait_for_members(2)
            for number in range(count):
                await topic.send(b"%d" % number)
            await topic.flush()
            await recorder.settle()
            assert recorder.missed == 0
            task.cancel()
            await asyncio.wait([task])
        (crash if is_killed else SegmentLog.close)(log)
        return log

    async def scene() -> None:
        domain = f"{tmp_path.name} {os.getpid()}"
        async with vivum.connect(domain) as sender, await sender.enter("/swx/raw", bytes, own=False) as topic:
            await record(domain, topic, 5)
            await topic.send_many([b"nobody records this"] * 30)
            await topic.flush()
            await record(domain, topic, 4)

    asyncio.run(asyncio.wait_for(scene(), 60))
    rows = [row for batch in LogReader(tmp_path).batches(0, 1 << 62) for row in batch.to_pylist()]
    time, gap = (msgspec.msgpack.decode(row["payload"], type=Gap) for row in rows if row["topic"] == GAPS_TOPIC)
    assert (time.what, gap.what, gap.topic, gap.first, gap.count) == (NOT_RECORDED, NOT_RECORDED, "/swx/raw", 5, 30)
    assert [row["sequence"] for row in rows if row["topic"] == "/swx/raw"] == [*range(5), *range(35, 39)]
    assert TopicTypes.read(tmp_path).types[GAPS_TOPIC] == describe_type(Gap)
