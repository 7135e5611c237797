"""The segment log: whole after any crash, every byte checked, offsets never used twice."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recorded.crashed import KilledLog, crash, kill_writer, write_with_little_room
from vivum.core.errors import UsageError
from vivum.storage.batch_buffer import BatchBuffer
from vivum.storage.errors import CorruptLogError, StorageError
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_files import find_segments
from vivum.storage.segment_format import HEADER_BYTES, SEGMENT_ROWS_MAX, decode_batch, log_schema
from vivum.storage.segment_log import SegmentLog
from vivum.storage.segment_reader import LogReader

END = 1 << 62


def run(first: int, *payloads: bytes, topic: str = "/a", at: int = 1000, **more: Any) -> RecordedRun:
    return RecordedRun(topic, 1, 1, first, 3, at - 10, at, payloads, **more)


def rows(directory: Path, start: int = 0, stop: int = END) -> list[dict[str, Any]]:
    return [row for batch in LogReader(directory).batches(start, stop) for row in batch.to_pylist()]


def payloads(directory: Path) -> list[bytes]:
    return [row["payload"] for row in rows(directory)]


@pytest.fixture
def three(tmp_path: Path) -> KilledLog:
    """A log of three batches whose writer was killed."""
    log = SegmentLog(tmp_path / "log")
    for number in range(3):
        log.append([run(number * 2, b"x" * number, b"second")])
    return kill_writer(log)


def test_what_is_appended_is_read_back_with_all_columns(tmp_path):
    with SegmentLog(tmp_path) as log:
        assert log.append([run(7, b"one", b"two"), run(1, b"three", topic="/b", first_position=40)]) == range(3)
    assert rows(tmp_path)[1:] == [
        {
            "offset": 1, "topic": "/a", "sender": 1, "incarnation": 1, "sequence": 8, "view": 3,
            "position": None, "sent_ns": 990, "delivered_ns": 1000, "payload": b"two",
        },
        {
            "offset": 2, "topic": "/b", "sender": 1, "incarnation": 1, "sequence": 1, "view": 3,
            "position": 40, "sent_ns": 990, "delivered_ns": 1000, "payload": b"three",
        },
    ]  # fmt: skip


@settings(derandomize=True, database=None, deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["/a", "/b/c"]),
            st.integers(0, 2**62),
            st.none() | st.integers(0, 2**62),
            st.lists(st.binary(max_size=1200), min_size=1, max_size=5),
        ),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 2**62),
)
def test_columns_of_runs_equal_those_made_row_by_row(drawn, first_offset):
    runs = [RecordedRun(t, 5, 6, s, 7, 8, 9, p, q) for t, s, q, p in drawn]
    expected = []
    for each in runs:
        for place, payload in enumerate(each.payloads):
            position = None if each.first_position is None else each.first_position + place
            row = (each.topic, 5, 6, each.first_sequence + place, 7, position, 8, 9, payload)
            expected.append((first_offset + len(expected), *row))
    buffer = BatchBuffer()
    entry = buffer.lay_out(runs, first_offset, 0)
    batch = decode_batch(buffer.seal(entry), entry, log_schema(), "memory")
    batch.validate(full=True)
    assert [tuple(row.values()) for row in batch.to_pylist()] == expected


def test_a_batch_is_made_while_the_one_before_is_written_and_they_are_appended_in_their_order(tmp_path):
    with SegmentLog(tmp_path, segment_bytes=1000) as log:
        for first in range(0, 40, 4):
            one, two = log.prepare([run(first, b"1", b"2")]), log.prepare([run(first + 2, b"3", b"4")])
            with pytest.raises(UsageError, match="2 batches wait"):
                log.prepare([run(99, b"no")])
            with pytest.raises(UsageError, match="comes before this one"):
                log.append_prepared(two)
            assert log.append_prepared(one) == range(first, first + 2)
            assert log.append_prepared(two) == range(first + 2, first + 4)
            with pytest.raises(UsageError, match="comes before this one"):
                log.append_prepared(two)
    assert len(find_segments(tmp_path)) > 5
    assert [row["sequence"] for row in rows(tmp_path)] == [row["offset"] for row in rows(tmp_path)] == list(range(40))


def test_a_batch_that_cannot_be_written_takes_those_behind_it_with_it(tmp_path, monkeypatch):
    def fail(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with SegmentLog(tmp_path) as log:
        log.append([run(0, b"a")])
        one, two = log.prepare([run(1, b"b")]), log.prepare([run(2, b"c")])
        monkeypatch.setattr(os, "pwrite", fail)
        with pytest.raises(StorageError, match="No space left"):
            log.append_prepared(one)
        monkeypatch.undo()
        for each in (one, two):
            with pytest.raises(UsageError, match="prepare it anew"):
                log.append_prepared(each)
        assert log.append([run(3, b"d")]) == range(1, 2)
    assert payloads(tmp_path) == [b"a", b"d"]


@pytest.mark.slow
def test_a_log_cut_at_any_byte_keeps_every_whole_batch_and_never_repeats_an_offset(three, monkeypatch):
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda file: None)  # Thousands of logs; the disk is not what is tested.
    for cut in range(len(three.whole)):
        directory = three.cut(cut)
        kept = [each for each in three.entries if each.stop <= cut]
        with SegmentLog(directory) as log:
            assert log.append([run(9, b"new")]).start == SEGMENT_ROWS_MAX
            assert log.damage == []
        found = rows(directory)
        assert [row["offset"] for row in found] == [*range(2 * len(kept)), SEGMENT_ROWS_MAX]
        assert found[-1]["payload"] == b"new"


@pytest.mark.slow
def test_any_flipped_byte_is_noticed_or_harmless(three):
    directory, path, whole, _ = three
    expected = rows(directory)
    noticed = 0
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 0x40
        path.write_bytes(changed)
        try:
            # A damaged header of the last batch looks like a batch that is still being written.
            found = rows(directory)
            assert found == expected[: len(found)]
            assert len(found) in (len(expected), len(expected) - 2, 2, 0)
            noticed += len(found) < len(expected)
        except CorruptLogError:
            noticed += 1
    assert noticed > len(whole) / 2


def test_a_flipped_byte_in_the_middle_is_told_by_the_writer_and_by_the_reader_and_the_rest_is_kept(three):
    directory, _, whole, _ = three
    segment = find_segments(directory)[0]
    second = segment.entries()[1]
    for place in (second.at + 5, second.at + HEADER_BYTES + 3):
        changed = bytearray(whole)
        changed[place] ^= 1
        segment.path.write_bytes(changed)
        with SegmentLog(directory) as log:
            assert len(log.damage) == 1
            assert f"damaged between bytes {second.at}" in log.damage[0]
            assert log.bytes_cut == 0
        reader = LogReader(directory)
        assert [row["offset"] for batch in reader.batches(4, END) for row in batch.to_pylist()] == [4, 5]
        with pytest.raises(CorruptLogError, match="offsets 2 to 3 cannot be read"):
            list(reader.batches(0, END))
        segment.index_path.unlink()


def test_flipped_bytes_of_an_index_do_not_matter(tmp_path):
    with SegmentLog(tmp_path) as log:
        log.append([run(1, b"one")])
        log.append([run(2, b"two")])
    index = find_segments(tmp_path)[0].index_path
    whole = index.read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 0x10
        index.write_bytes(changed)
        assert payloads(tmp_path) == [b"one", b"two"]


def test_offsets_go_on_without_a_jump_after_a_clean_end(tmp_path):
    with SegmentLog(tmp_path) as log:
        log.append([run(1, b"one")])
    with SegmentLog(tmp_path) as log:
        assert log.append([run(2, b"two")]) == range(1, 2)
    assert payloads(tmp_path) == [b"one", b"two"]


@pytest.mark.parametrize(("segment_bytes", "size"), [(5000, 300), (2_000_000, 400_000)])
def test_a_killed_writer_loses_nothing_that_it_appended(tmp_path, segment_bytes, size):
    text = f"""
from vivum.storage.segment_log import SegmentLog
from vivum.storage.runs import RecordedRun
log = SegmentLog({str(tmp_path)!r}, segment_bytes={segment_bytes})
number = 0
while True:
    number += 1
    log.append([RecordedRun("/a", 1, 1, number, 1, 0, 0, [b"x" * {size}])])
    print(number, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = 0
        for line in process.stdout:
            told = int(line)
            if told == 50:
                process.kill()
                break
        rest = process.stdout.read().split()
        told = int(rest[-1]) if rest else told
    with SegmentLog(tmp_path) as log:
        first = log.append([run(1, b"new")]).start
    found = rows(tmp_path)
    assert [row["sequence"] for row in found[:told]] == list(range(1, told + 1))
    assert len({row["offset"] for row in found}) == len(found)
    assert first == max(row["offset"] for row in found)


def test_a_reader_sees_whole_batches_while_a_writer_appends(tmp_path):
    with SegmentLog(tmp_path) as log:
        log.append([run(1, b"one")])
        reader = LogReader(tmp_path)
        assert (reader.first_offset(), reader.stop_offset()) == (0, 1)
        log.append([run(2, b"two", b"three")])
        assert reader.stop_offset() == 3
        assert [batch.column("payload").to_pylist() for batch in reader.batches(1, 2)] == [[b"two"]]


def test_segments_end_by_size_and_by_age(tmp_path):
    now = [0]
    with SegmentLog(tmp_path, segment_bytes=2000, segment_age_ns=50, clock=lambda: now[0]) as log:
        log.append([run(1, b"x" * 2000)])
        log.append([run(2, b"next, as the first is full")])
        now[0] = 49
        log.append([run(3, b"not old enough")])
        now[0] = 50
        log.append([run(4, b"next, as the second is old")])
    assert [each.first_offset for each in find_segments(tmp_path)] == [0, 1, 3]


def test_retention_by_size_deletes_the_oldest_and_keeps_the_newest(tmp_path):
    with SegmentLog(tmp_path, segment_bytes=1000, keep_bytes=4000) as log:
        for number in range(10):
            log.append([run(number, b"x" * 800)])
    reader = LogReader(tmp_path)
    assert 0 < reader.first_offset() < reader.stop_offset() == 10
    with SegmentLog(tmp_path, keep_bytes=1) as log:
        log.retain()
        assert log.append([run(1, b"new")]) == range(10, 11)


def test_retention_by_age_looks_at_the_time_of_delivery(tmp_path):
    with SegmentLog(tmp_path, segment_bytes=200, keep_age_ns=100, clock=lambda: 1000) as log:
        for at in (800, 899, 900, 901):
            log.append([run(1, b"x", at=at)])
        log.append([run(1, b"x", at=1000)])
    assert [row["delivered_ns"] for row in rows(tmp_path)] == [900, 901, 1000]


def test_a_time_leads_to_the_batch_that_has_it(tmp_path):
    with SegmentLog(tmp_path, segment_bytes=1500) as log:
        for number in range(6):
            log.append([run(number, b"x" * 100, b"y", at=1000 * number)])
    reader = LogReader(tmp_path)
    assert [reader.offset_at(time) for time in (0, 1, 1000, 4500, 5000, 5001)] == [0, 2, 2, 10, 10, 12]


def test_a_second_writer_is_refused(tmp_path):
    with SegmentLog(tmp_path), pytest.raises(UsageError, match="another recorder writes the log"):
        SegmentLog(tmp_path)
    SegmentLog(tmp_path).close()


FULL = """
import resource, sys
from vivum.storage.batch_buffer import BatchBuffer
from vivum.storage.errors import StorageError
from vivum.storage.segment_log import SegmentLog
from vivum.storage.runs import RecordedRun
log = SegmentLog(sys.argv[1])
number = 0
try:
    while True:
        number += 1
        log.append([RecordedRun("/a", 1, 1, number, 1, 0, 0, [bytes(5000)])])
except StorageError as error:
    print(number - 1, str(error), sep="\\n")
try:
    log.append([RecordedRun("/a", 1, 1, number, 1, 0, 0, [bytes(5000)])])
except StorageError:
    print("refused again")
log.append([RecordedRun("/a", 1, 1, number, 1, 0, 0, [b"small"])])
log.close()
"""


def test_a_full_disk_is_told_and_leaves_a_good_log(tmp_path):
    appended, message, again = write_with_little_room(FULL, tmp_path, 23_000)
    assert message.startswith(f"cannot write the log {tmp_path}: File too large; make room")
    assert again == "refused again"
    found = rows(tmp_path)
    assert [row["sequence"] for row in found] == list(range(1, int(appended) + 2))
    assert found[-1]["payload"] == b"small"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_really_full_disk_is_told_and_leaves_a_good_log(tmp_path):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        log = SegmentLog(tmp_path)
        count = 0
        while count < 100:
            try:
                log.append([run(count + 1, bytes(1500))])
            except StorageError as error:
                told = str(error)
                break
            count += 1
        assert "No space left on device" in told
        assert count > 20
        assert [row["sequence"] for row in rows(tmp_path)] == list(range(1, count + 1))
        crash(log)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_wrong_use_is_told(tmp_path):
    with pytest.raises(UsageError, match="fsync='sometimes' is unknown; policies are none, interval, always"):
        SegmentLog(tmp_path, fsync="sometimes")
    log = SegmentLog(tmp_path)
    with pytest.raises(UsageError, match="at least one message"):
        log.append([])
    log.close()
    with pytest.raises(UsageError, match="is closed"):
        log.append([run(1, b"x")])
    with pytest.raises(StorageError, match=r"cannot read the log .*: No such file or directory"):
        LogReader(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write the log"):
        SegmentLog(tmp_path / "file")


@pytest.mark.parametrize(("policy", "forces"), [("none", 0), ("interval", 2), ("always", 5)])
def test_the_fsync_policy_decides_how_often_the_disk_is_forced(tmp_path, monkeypatch, policy, forces):
    now = [0]
    log = SegmentLog(tmp_path, fsync=policy, fsync_interval_ns=20, clock=lambda: now[0])
    log.append([run(0, b"makes the segment")])
    done = []
    monkeypatch.setattr(os, "fdatasync", done.append)
    for number in range(5):
        now[0] += 10
        log.append([run(number + 1, b"x")])
    assert len(done) == forces
    monkeypatch.undo()
    log.close()


def test_after_a_failed_force_the_log_takes_nothing_more(tmp_path, monkeypatch):
    log = SegmentLog(tmp_path, fsync="none")
    log.append([run(1, b"x")])

    def fail(file: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StorageError, match="Input/output error"):
        log.sync()
    monkeypatch.undo()
    with pytest.raises(StorageError, match="takes nothing any more"):
        log.append([run(2, b"x")])
    crash(log)


def test_damage_of_a_closed_segment_is_told_when_the_log_is_opened(tmp_path):
    def open_damaged(spoil: Any) -> list[str]:
        directory = Path(tempfile.mkdtemp(dir=tmp_path))
        with SegmentLog(directory) as log:
            for number in range(3):
                log.append([run(number, b"x" * 100)])
        (segment,) = find_segments(directory)
        spoil(segment, segment.entries()[1])
        with SegmentLog(directory) as log:
            assert log.bytes_cut == 0
            assert log.append([run(9, b"new")])
            found = log.damage
        with SegmentLog(directory) as log:
            assert log.damage == found, "said once, and never again"
        return [each.replace(str(directory), "LOG") for each in found]

    def flip(path: Path, place: int) -> None:
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)

    assert open_damaged(lambda segment, entry: None) == []
    name = "LOG/00000000000000000000.segment is damaged"
    for told, spoil in (
        (f"{name}: 1 of 3 batches", lambda segment, entry: flip(segment.path, entry.at + 5)),
        (f"{name}: 1 of 3 batches", lambda segment, entry: flip(segment.path, entry.at + HEADER_BYTES + 3)),
        (f"{name}: 2 of 3 batches", lambda segment, entry: os.truncate(segment.path, entry.stop - 1)),
        ("LOG/00000000000000000000.segment", lambda segment, entry: os.truncate(segment.path, 0)),
        ("LOG/00000000000000000000.segment", lambda segment, entry: flip(segment.path, 3)),
    ):
        (found,) = open_damaged(spoil)
        assert found.startswith(told), found
