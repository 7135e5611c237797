"""The thread that writes a log: nothing that it was given vanishes, whatever the disk does."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import vivum
from vivum.core.ids import Incarnation, Member, NodeId, ViewNumber
from vivum.core.machine import Delivery
from vivum.live.failures import MissedMessages
from vivum.pipeline.recording import log_writer
from vivum.pipeline.recording.log_writer import LogWriter
from vivum.pipeline.recording.recorder import Recorder
from vivum.storage.errors import StorageError
from vivum.storage.gaps import GAPS_TOPIC
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_log import SegmentLog
from vivum.storage.segment_reader import LogReader
from vivum.wire import codec
from vivum.wire.codec import PackedRun

PAYLOAD = bytes(1000 - log_writer.MESSAGE_BYTES)


def run(number: int) -> RecordedRun:
    return RecordedRun("/a", 1, 1, number, 1, 0, 0, [PAYLOAD])


def sequences(directory: Any) -> list[int]:
    rows = [row for batch in LogReader(directory).batches(0, 1 << 62) for row in batch.to_pylist()]
    return [row["sequence"] for row in rows if row["topic"] != GAPS_TOPIC]


def test_what_is_taken_is_written_and_what_is_refused_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(log_writer, "GIVE_WAY_S", 0.0)
    written: list[RecordedRun] = []
    with SegmentLog(tmp_path) as log:
        writer = LogWriter(log, written.extend, held_bytes_max=10_000)
        taken = [number for number in range(100) if writer.put(run(number))]
        assert taken == list(range(10))
        assert writer.unwritten == 10
        writer.stop()
        writer.run()
        assert writer.unwritten == 0
    assert [each.first_sequence for each in written] == taken
    assert sequences(tmp_path) == taken


def test_there_is_room_again_when_the_disk_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(log_writer, "GIVE_WAY_S", 0.0)
    with SegmentLog(tmp_path) as log:
        noted = Event()
        writer = LogWriter(log, lambda runs: noted.set(), held_bytes_max=10_000)
        while writer.put(run(0)):
            pass
        thread = Thread(target=writer.run)
        thread.start()
        assert noted.wait(30)
        assert writer.put(run(1))
        writer.stop()
        thread.join(30)
    assert sequences(tmp_path) == [0] * 10 + [1]


def test_who_hands_over_gives_way_once_to_a_disk_that_stands_still(tmp_path, monkeypatch):
    waits = []
    with SegmentLog(tmp_path) as log:
        writer = LogWriter(log, lambda runs: None, held_bytes_max=10_000)
        monkeypatch.setattr(writer._has_written, "wait", lambda timeout: waits.append(timeout) or False)
        for number in range(100):
            writer.put(run(number))
        assert waits == [log_writer.GIVE_WAY_S]
        writer.stop()
        writer.run()
        for number in range(100):
            writer.put(run(number))
        assert len(waits) == 2


def test_messages_that_a_full_disk_did_not_take_are_known(tmp_path, monkeypatch):
    def fail(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with SegmentLog(tmp_path) as log:
        writer = LogWriter(log, lambda runs: None)
        for number in range(5):
            writer.put(run(number))
        monkeypatch.setattr(os, "pwrite", fail)
        with pytest.raises(StorageError, match="No space left on device"):
            writer.run()
        monkeypatch.undo()
    assert writer.unwritten == 5


@asynccontextmanager
async def recorded_topic(
    folder: Path, log: SegmentLog, **options: Any
) -> AsyncIterator[tuple[Recorder, vivum.Topic[bytes]]]:
    """Give a recorder at work and the topic that it records, on one node."""
    async with vivum.connect(f"{folder.name} {os.getpid()}") as node:
        recorder = Recorder(node, ["/swx/**"], log, **options)
        recording = asyncio.create_task(recorder.run())
        topic = await node.enter("/swx/raw", bytes)
        while recorder.recorded == 0:
            # Those before the recorder entered are not its own.
            await send(topic, 1)
            await asyncio.sleep(0.01)
        await recorder.settle()
        yield recorder, topic
        recording.cancel()
        await asyncio.wait([recording])
        assert recording.cancelled()


async def send(topic: vivum.Topic[bytes], count: int) -> None:
    """Send messages, each alone: as one run they would be taken whole or not at all."""
    for _ in range(count):
        await topic.send(PAYLOAD)
        await topic.flush()


def test_numbers_that_no_log_can_have_are_missed_and_the_recorder_goes_on(tmp_path):
    async def scene(log: SegmentLog) -> Recorder:
        async with recorded_topic(tmp_path, log) as (recorder, topic):
            before = recorder.recorded
            stranger = Member(NodeId(9), Incarnation(9))
            for sequence, sent_ns in ((0, 1 << 63), ((1 << 63) - 1, 1), ((1 << 64) - 2, (1 << 64) - 1)):
                ((seat, listener),) = recorder._seats
                listener.put(Delivery(seat.group, stranger, sequence, [PAYLOAD], ViewNumber(1), sent_ns))
            assert recorder.missed == 3
            await send(topic, 2)
            await recorder.settle()
            assert recorder.recorded == before + 2
        return recorder

    with SegmentLog(tmp_path) as log:
        recorder = asyncio.run(asyncio.wait_for(scene(log), 60))
    assert len(sequences(tmp_path)) == recorder.recorded


def test_a_recorder_on_a_disk_that_stands_still_counts_every_message_that_it_does_not_write(tmp_path, monkeypatch):
    goes_on = Event()
    goes_on.set()
    plain = os.pwrite

    def wait_and_write(file: int, data: Any, at: int) -> int:
        goes_on.wait(60)
        return plain(file, data, at)

    monkeypatch.setattr(os, "pwrite", wait_and_write)

    async def scene(log: SegmentLog) -> Recorder:
        async with recorded_topic(tmp_path, log, held_bytes_max=20_000) as (recorder, topic):
            before = recorder.recorded
            goes_on.clear()
            await send(topic, 60)
            goes_on.set()
            assert recorder.missed >= 60 - 20
            await recorder.settle()
            # Its number shows the same gap again.
            await send(topic, 1)
        assert recorder.recorded - before + recorder.missed == 61
        return recorder

    with SegmentLog(tmp_path) as log:
        recorder = asyncio.run(asyncio.wait_for(scene(log), 60))
    assert len(sequences(tmp_path)) == recorder.recorded


@pytest.mark.parametrize("told", [True, False])
def test_messages_that_a_recorder_never_saw_are_counted_by_the_numbers_around_them(tmp_path, told):
    async def scene(log: SegmentLog) -> Recorder:
        async with recorded_topic(tmp_path, log) as (recorder, topic):
            ((seat, listener),) = recorder._seats
            seat.unlisten(listener)
            await send(topic, 7)
            if told:
                listener.interrupt(MissedMessages("the node was dropped", None))
                assert recorder.missed == 1
            seat.listen(listener)
            await send(topic, 1)
        return recorder

    with SegmentLog(tmp_path) as log:
        recorder = asyncio.run(asyncio.wait_for(scene(log), 60))
    assert recorder.missed == 7


def test_frames_are_recorded_as_they_came_and_readers_beside_get_messages(tmp_path):
    payloads = [number.to_bytes(4, "little") * 250 for number in range(5000)]
    seen: list[RecordedRun] = []
    read: list[bytes] = []

    async def scene(log: SegmentLog) -> Recorder:
        domain = f"{tmp_path.name} {os.getpid()}"
        async with vivum.connect(domain) as sender, vivum.connect(domain) as other:
            topic = await sender.enter("/swx/raw", bytes, own=False)
            recorder = Recorder(other, ["/swx/**"], log)
            note = recorder._writer._on_written
            recorder._writer._on_written = lambda runs: (seen.extend(runs), note(runs))
            recording = asyncio.create_task(recorder.run())
            await topic.wait_for_members(2)
            reader = await other.enter("/swx/raw", bytes)
            for first in range(0, len(payloads), 500):
                await topic.send_many(payloads[first : first + 500])
            async for batch in reader.batches():
                assert type(batch.payloads) is list
                read.extend(batch.payloads)
                if len(read) == len(payloads):
                    break
            await topic.flush()
            await recorder.settle()
            recording.cancel()
            await asyncio.wait([recording])
        return recorder

    with SegmentLog(tmp_path) as log:
        recorder = asyncio.run(asyncio.wait_for(scene(log), 60))
    assert (recorder.recorded, recorder.missed) == (len(payloads), 0)
    assert read == payloads
    found = [row for batch in LogReader(tmp_path).batches(0, 1 << 62) for row in batch.to_pylist()]
    assert [row["payload"] for row in found] == payloads
    assert [row["sequence"] for row in found] == list(range(len(payloads)))
    packed = sum(len(each.payloads) for each in seen if isinstance(each.payloads, PackedRun))
    assert packed > len(payloads) // 2


def packed_run(first: int) -> RecordedRun:
    """Make a run that was not cut: its frame is a third padding, and held as it came."""
    builder = codec.FrameBuilder(3000)
    builder.extend(1, first, [PAYLOAD, PAYLOAD])
    frames = codec.split(builder.seal(1, 2, 3, 4, 5, 6, 7, 8, pad_to=3000))
    ((*_, found),) = codec.take_runs(frames, 9, {1})
    assert isinstance(found, PackedRun)
    return RecordedRun("/a", 1, 1, first, 1, 0, 0, found)


def test_what_frames_take_in_memory_counts_against_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(log_writer, "GIVE_WAY_S", 0.0)
    each = 3000 + 2 * log_writer.MESSAGE_BYTES
    with SegmentLog(tmp_path) as log:
        writer = LogWriter(log, lambda runs: None, held_bytes_max=5 * each)
        taken = [first for first in range(0, 100, 2) if writer.put(packed_run(first))]
        assert taken == [0, 2, 4, 6, 8]
        assert writer.unwritten == 10
        writer.stop()
        writer.run()
        assert writer.unwritten == 0
    assert sequences(tmp_path) == list(range(10))
