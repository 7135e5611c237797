"""Joining late: back copies of a recorder, then the live stream, each message once and in the order of its sender."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import vivum
from live_processes.director import Cast
from vivum.core.errors import UsageError
from vivum.live.replay.back_copies import FROM_THE_BEGINNING
from vivum.live.replay.catching_up import read_start
from vivum.pipeline.recording import serving
from vivum.pipeline.recording.serving import read_piece
from vivum.protocols.keyed.keys import heads_of
from vivum.storage.errors import StorageError
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_log import SegmentLog
from vivum.storage.segment_reader import LogReader

pytestmark = pytest.mark.slow

TOPIC = "/swx/NESN"
PATIENCE_S = 120
QUERY = bytes(range(16))


@pytest.fixture
def domain(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name[:40]}-{os.getpid()}"


@pytest.fixture
def cast(domain: str) -> Iterator[Cast]:
    made = Cast(domain)
    yield made
    made.end()


def start(*words: str, out: Path = Path(os.devnull)) -> "subprocess.Popen[bytes]":
    with out.open("wb") as file:
        return subprocess.Popen([sys.executable, "-m", "vivum.cli", *words], stdout=file)


def record(domain: str, folder: Path, *more: str) -> "subprocess.Popen[bytes]":
    return start("record", "/swx/**", "--to", str(folder), "--domain", domain, *more)


def end(*processes: "subprocess.Popen[bytes]") -> None:
    for each in processes:
        each.kill()
        each.wait()


@asynccontextmanager
async def recorded_topic(domain: str, folder: Path, **options: Any) -> AsyncIterator[vivum.Topic[bytes]]:
    """A node with a topic that a recorder in another process writes down."""
    async with vivum.connect(domain, **options) as node:
        recorder = record(domain, folder)
        try:
            topic = await node.enter(TOPIC, bytes, own=False)
            await topic.wait_for_members(2)
            yield topic
        finally:
            end(recorder)


async def take(topic: vivum.Topic[bytes], count: int) -> list[vivum.TopicEvent[bytes]]:
    return [await topic.receive() for _ in range(count)]


async def read_all(topic: vivum.Topic[bytes], into: list[bytes]) -> None:
    async for event in topic:
        into.append(event.value)


def numbers(stop: int, size: int = 0) -> list[bytes]:
    return [b"%d" % number + bytes(size) for number in range(stop)]


# With real processes, under load.


def test_joiners_under_load_see_every_message_once_and_in_order(cast, domain, tmp_path):
    """Two senders, a recorder and four joiners, all processes, all losing packets; joiners come while messages flow."""
    senders = cast.start(2, loss=0.02)
    recorder = record(domain, tmp_path / "log", "--loss", "2")
    joiners: list[subprocess.Popen[bytes]] = []
    rounds, burst = 80, 100
    try:
        for each in senders:
            each.ask("enter", topics=[TOPIC])
        for each in senders:
            each.ask("members", topic=TOPIC, count=3)
        for number in range(rounds):
            if number % 15 == 3 and len(joiners) < 4:
                words = ("sub", TOPIC, "--replay", "all", "--names", "--count", str(2 * rounds * burst), "--loss", "2")
                joiners.append(start(*words, "--domain", domain, out=tmp_path / f"{len(joiners)}.txt"))
            for tag, each in enumerate(senders):
                each.tell("send", topic=TOPIC, tag=str(tag), count=burst, size=20, first=number * burst)
            for each in senders:
                each.answer()
                each.ask("flush", topic=TOPIC)
        codes = [each.wait(PATIENCE_S) for each in joiners]
    finally:
        end(recorder, *joiners)
    assert codes == [0] * 4
    for place in range(4):
        seen: dict[str, list[tuple[int, int]]] = {}
        for line in (tmp_path / f"{place}.txt").read_text().splitlines():
            _, sender, sequence, _, number, *_ = line.split(" ")
            seen.setdefault(sender, []).append((int(sequence), int(number)))
        assert len(seen) == 2
        for found in seen.values():
            assert found == [(number, number) for number in range(rounds * burst)]


def test_a_reader_that_is_slow_and_small_misses_nothing(domain, tmp_path):
    """The reader may hold 64 KB; many times that comes live before the back copies are read."""

    async def scene() -> list[bytes]:
        async with recorded_topic(domain, tmp_path) as sender, vivum.connect(domain) as other:
            await sender.send_many(numbers(500, 1000))
            late = await other.enter(TOPIC, bytes, replay="all", receive_bytes_max=64 * 1024)
            for number in range(500, 1500):
                await sender.send(b"%d" % number + bytes(1000))
            await sender.flush()
            return [event.value.rstrip(b"\0") for event in await take(late, 1500)]

    found = asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))
    assert found == numbers(1500)


def test_offsets_times_and_callbacks(domain, tmp_path):
    async def scene() -> None:
        async with recorded_topic(domain, tmp_path) as sender, vivum.connect(domain) as other:
            await sender.send_many(numbers(100))
            await sender.flush()
            async with await other.enter(TOPIC, bytes, replay="all") as whole:
                events = await take(whole, 100)
            middle = events[50]
            assert [event.value for event in events] == numbers(100)
            assert middle.sender == sender.members[0]
            assert (middle.sequence, middle.topic) == (50, TOPIC)
            # The node opened a line to the recorder, closed it, and opens another.
            async with await other.enter(TOPIC, bytes, replay=60) as rest:
                assert [event.value for event in await take(rest, 40)] == numbers(100)[60:]
            now = datetime.now(UTC)
            async with await other.enter(TOPIC, bytes, replay=now) as after:
                seen: list[bytes] = []
                after.on(lambda event: seen.append(event.value))
                await sender.send(b"new")
                await sender.flush()
                while not after.is_live:
                    await asyncio.sleep(0.01)
                assert seen == [b"new"]
            with pytest.raises(vivum.UsageError, match="no back copies"):
                await other.enter(TOPIC, bytes, replay=10**9)

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))


def test_another_recorder_goes_on_where_one_dies(domain, tmp_path):
    count = 3000

    async def scene() -> list[bytes]:
        async with vivum.connect(domain) as node, vivum.connect(domain) as other:
            recorders = [record(domain, tmp_path / each) for each in ("first", "second")]
            try:
                sender = await node.enter(TOPIC, bytes, own=False)
                await sender.wait_for_members(3)
                await sender.send_many(numbers(count, 1000))
                await sender.flush()
                late = await other.enter(TOPIC, bytes, replay="all", receive_bytes_max=256 * 1024)
                found = await take(late, 10)
                assert late._catching_up is not None
                asked = late._catching_up._recorder
                (name,) = [each.name for each in await node.nodes() if each.member == asked]
                (used,) = [each for each in recorders if f"/{each.pid}/" in name]
                used.send_signal(signal.SIGKILL)
                found += await take(late, count - 10)
            finally:
                end(*recorders)
            return [event.value.rstrip(b"\0") for event in found]

    assert asyncio.run(asyncio.wait_for(scene(), PATIENCE_S)) == numbers(count)


def test_a_recorder_that_goes_away_is_told_and_the_live_stream_goes_on(domain, tmp_path):
    count = 3000

    async def scene() -> tuple[int, bytes]:
        async with vivum.connect(domain) as node, vivum.connect(domain) as other:
            recorder = record(domain, tmp_path)
            sender = await node.enter(TOPIC, bytes, own=False)
            await sender.wait_for_members(2)
            await sender.send_many(numbers(count, 1000))
            await sender.flush()
            late = await other.enter(TOPIC, bytes, replay="all", receive_bytes_max=256 * 1024)
            await take(late, 10)
            end(recorder)
            received: list[bytes] = []
            with pytest.raises(vivum.MissedMessages, match="what lies between is missing"):
                await read_all(late, received)
            await sender.send(b"last")
            return len(received), (await late.receive()).value

    received, last = asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))
    assert 0 < received < count
    assert last == b"last"


def test_leaving_in_the_middle_ends_the_replay(domain, tmp_path):
    async def scene() -> None:
        async with recorded_topic(domain, tmp_path) as sender, vivum.connect(domain) as other:
            await sender.send_many(numbers(3000, 1000))
            await sender.flush()
            late = await other.enter(TOPIC, bytes, replay="all", receive_bytes_max=64 * 1024)
            await take(late, 5)
            await late.leave()
            async with await other.enter(TOPIC, bytes, replay="all", receive_bytes_max=64 * 1024) as again:
                assert (await again.receive()).sequence == 0

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))


# Wrong use.


def test_without_a_recorder_entering_says_so(domain):
    async def scene() -> None:
        async with vivum.connect(domain) as node:
            with pytest.raises(vivum.NoRecorderError, match=f"nobody .* has back copies of {TOPIC}.*vivum record"):
                await node.enter(TOPIC, bytes, replay="all")
            assert node.statistics().topics == 0

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))


def test_a_topic_that_is_not_numbered_without_a_gap_is_refused(domain):
    async def scene() -> None:
        async with vivum.connect(domain) as node:
            with pytest.raises(UsageError, match="replay= needs 'reliable' or 'keyed'"):
                await node.enter(TOPIC, bytes, guarantee=vivum.BEST_EFFORT, replay="all")

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))


def test_back_copies_of_a_keyed_topic_have_keys_so_a_batch_that_is_sent_again_is_seen_once(domain, tmp_path):
    async def keyed(node: vivum.NodeHandle) -> Any:
        await (await node.enter(TOPIC, bytes, guarantee=vivum.KEYED, receive=False)).wait_for_members(2)
        (seat,) = await node.take_seats([TOPIC], '"bytes"', vivum.KEYED, lambda _: None)
        return seat

    async def scene() -> tuple[list[bytes], int]:
        async with vivum.connect(domain) as first, vivum.connect(domain) as second:
            recorder = record(domain, tmp_path)
            try:
                seat = await keyed(first)
                await seat.send([b"a", b"b"], heads=heads_of(QUERY, 3, 0, 2))
                await seat.flush()
                async with vivum.connect(domain) as late:
                    topic = await late.enter(TOPIC, bytes, guarantee=vivum.KEYED, replay="all")
                    found = [event.value for event in await take(topic, 2)]
                    # The batch begins anew, from another sender.
                    again = await keyed(second)
                    await again.send([b"a", b"b", b"c"], heads=heads_of(QUERY, 3, 0, 3))
                    await again.send([b"c"])
                    found += [event.value for event in await take(topic, 2)]
                    repeated = topic.statistics().repeated
                # Whoever comes now gets all of it from the recorder.
                async with vivum.connect(domain) as later:
                    topic = await later.enter(TOPIC, bytes, guarantee=vivum.KEYED, replay="all")
                    found += [event.value for event in await take(topic, 4)]
            finally:
                end(recorder)
            return found, repeated

    found, repeated = asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))
    assert found == [b"a", b"b", b"c", b"c"] * 2
    assert repeated == 2


@pytest.mark.parametrize("start", ["some", "", -1, -0.5, float("nan"), True])
def test_a_start_that_makes_no_sense_is_refused(start):
    with pytest.raises(UsageError, match="replay="):
        read_start(start)


def test_a_start_is_an_offset_or_a_time():
    assert read_start("all") == (FROM_THE_BEGINNING, 0)
    assert read_start(7) == (7, 0)
    assert read_start(1.5) == (FROM_THE_BEGINNING, 1_500_000_000)
    assert read_start(datetime(1970, 1, 1, 0, 0, 2)) == (FROM_THE_BEGINNING, 2_000_000_000)


@pytest.mark.parametrize("words", [["--replay", "soon"], ["--replay", "all", "/swx/*"]])
def test_the_command_refuses_what_it_cannot_do(words):
    told = subprocess.run(
        [sys.executable, "-m", "vivum.cli", "sub", *words, *([] if "/swx/*" in words else [TOPIC])],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 2
    assert "--replay" in told.stderr


# Pieces.


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogReader]:
    with SegmentLog(tmp_path / "log") as made:
        for place in range(4):
            made.append(
                [
                    RecordedRun("/a", 1, 1, 10 * place, 1, place, 1000 + place, [b"%d" % n for n in range(10)]),
                    RecordedRun("/b", 2, 3, 5 * place, 2, place, 1000 + place, [b"b" * 100] * 5),
                ]
            )
        yield LogReader(tmp_path / "log")


def test_a_piece_has_the_messages_of_one_topic_in_runs(log):
    offset, is_end, runs = read_piece(log, "/b", FROM_THE_BEGINNING, 0)
    assert (offset, is_end) == (60, True)
    assert [run[:5] for run in runs] == [(2, 3, 5 * place, 2, place) for place in range(4)]
    assert [len(run[5]) for run in runs] == [5] * 4


def test_pieces_follow_each_other_without_gap_or_copy(log, monkeypatch):
    monkeypatch.setattr(serving, "PIECE_BYTES", 250)
    offset, is_end, sizes, sequences = FROM_THE_BEGINNING, False, [], []
    while not is_end:
        offset, is_end, runs = read_piece(log, "/b", offset, 0)
        sizes.append(sum(len(run[5]) for run in runs))
        sequences += [run[2] + place for run in runs for place in range(len(run[5]))]
    assert sequences == list(range(20))
    assert max(sizes) <= 3


def test_a_message_larger_than_a_piece_is_a_piece(log, monkeypatch):
    monkeypatch.setattr(serving, "PIECE_BYTES", 10)
    offset, is_end, runs = read_piece(log, "/b", FROM_THE_BEGINNING, 0)
    assert ([len(run[5]) for run in runs], is_end) == ([1], False)
    assert offset == 11


def test_a_piece_ends_after_so_many_rows_even_if_none_of_them_is_wanted(log, monkeypatch):
    monkeypatch.setattr(serving, "SCANNED_ROWS_MAX", 15)
    assert read_piece(log, "/nobody", FROM_THE_BEGINNING, 0) == (15, False, [])


def test_a_piece_begins_at_a_time_or_an_offset(log):
    assert read_piece(log, "/a", FROM_THE_BEGINNING, 1002)[2][0][2] == 20
    assert read_piece(log, "/a", 33, 0)[2][0][2] == 23
    assert read_piece(log, "/a", FROM_THE_BEGINNING, 10**18) == (60, True, [])
    with pytest.raises(StorageError, match="the next is 60"):
        read_piece(log, "/a", 61, 0)
