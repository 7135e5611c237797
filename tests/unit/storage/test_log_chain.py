"""The chain of a log's segments: what is missing, exchanged, damaged or of another log is told, never passed over."""

import os
import shutil
from pathlib import Path
from zlib import crc32

import pytest

from recorded.crashed import crash
from vivum.core.errors import UsageError
from vivum.storage.errors import CorruptLogError, StorageError
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_files import SegmentFile, find_segments
from vivum.storage.segment_format import HEADER_BYTES, SEGMENT_ROWS_MAX
from vivum.storage.segment_log import SegmentLog
from vivum.storage.segment_reader import LogReader, LostRows, read_rows

END = 1 << 62


def write(directory: Path, segments: int, rows: int = 2) -> None:
    """Write segments of so many batches, of one row each."""
    for _ in range(segments):
        with SegmentLog(directory) as log:
            for number in range(rows):
                log.append([RecordedRun("/a", 1, 1, log.next_offset, 1, number, number, [b"x" * 50])])


def offsets(directory: Path) -> list[int]:
    return [each for batch in LogReader(directory).batches(0, END) for each in batch.column("offset").to_pylist()]


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def taken(segment: SegmentFile, start: int, stop: int, at: int | None = None) -> tuple[list[int], list[LostRows]]:
    rows: list[int] = []
    lost: list[LostRows] = []
    for each in read_rows(segment, start, stop, at):
        if isinstance(each, LostRows):
            lost.append(each)
        else:
            rows += each.column("offset").to_pylist()
    return rows, lost


def test_a_log_keeps_its_identity_when_it_is_continued_and_moved_and_another_one_has_another(tmp_path):
    write(tmp_path / "one", 2)
    first = LogReader(tmp_path / "one").log_id()
    write(tmp_path / "one", 1)
    shutil.move(tmp_path / "one", tmp_path / "moved")
    assert first is not None
    assert LogReader(tmp_path / "moved").log_id() == first
    write(tmp_path / "one", 1)
    assert LogReader(tmp_path / "one").log_id() != first


def test_segments_of_two_logs_in_one_folder_are_refused_by_reader_and_writer(tmp_path):
    write(tmp_path / "one", 1)
    write(tmp_path / "two", 2)
    for each in find_segments(tmp_path / "two")[1:]:
        for path in (each.path, each.index_path):
            shutil.copy(path, tmp_path / "one")
    with pytest.raises(StorageError, match=r"has segments of different logs: 0*\.segment and 0*2\.segment"):
        LogReader(tmp_path / "one").segments()
    with pytest.raises(UsageError, match="has segments of different logs"):
        SegmentLog(tmp_path / "one")


def test_a_missing_segment_is_told_and_the_jump_after_a_crash_is_none(tmp_path):
    write(tmp_path, 1)
    log = SegmentLog(tmp_path)
    log.append([RecordedRun("/a", 1, 1, 2, 1, 0, 0, [b"x"])])
    crash(log)
    write(tmp_path, 2)
    jump = 2 + SEGMENT_ROWS_MAX
    assert offsets(tmp_path) == [0, 1, 2, jump, jump + 1, jump + 2, jump + 3]
    find_segments(tmp_path)[2].delete()
    with pytest.raises(CorruptLogError, match=rf"are gone: offsets {3} to {jump + 1} cannot be read"):
        offsets(tmp_path)


def test_of_a_missing_oldest_segment_nothing_is_told_since_retention_does_that(tmp_path):
    write(tmp_path, 3)
    find_segments(tmp_path)[0].delete()
    assert offsets(tmp_path) == [2, 3, 4, 5]


def test_a_segment_that_was_exchanged_is_noticed_by_the_next_one(tmp_path):
    write(tmp_path / "log", 1)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    write(tmp_path / "log", 2)
    write(tmp_path / "copy", 1)
    other = find_segments(tmp_path / "copy")[1]
    # Of the same log, at the same offsets, of the same size, and whole.
    for path in (other.path, other.index_path):
        shutil.copy(path, tmp_path / "log")
    with pytest.raises(CorruptLogError, match=rf"{other.path.name} is not the segment that was there when 0*4.segment"):
        offsets(tmp_path / "log")


@pytest.mark.parametrize("place", [5, HEADER_BYTES + 3])
@pytest.mark.parametrize("from_batch", [False, True])
def test_a_flipped_bit_in_a_closed_segment_loses_its_batch_alone_and_is_told(tmp_path, place, from_batch):
    write(tmp_path, 1, rows=4)
    (segment,) = find_segments(tmp_path)
    entries = segment.entries()
    flip(segment.path, entries[2].at + place)
    at = entries[0].at if from_batch else None
    rows, (lost,) = taken(segment, 0, 4, at)
    assert rows == [0, 1, 3]
    assert lost[:2] == (2, 3)
    # At the border of what is asked for too.
    assert [each[:2] for each in taken(segment, 0, 3, at)[1]] == [(2, 3)]
    assert [each[:2] for each in taken(segment, 2, 4, entries[2].at)[1]] == [(2, 3)]
    with pytest.raises(CorruptLogError, match="offsets 2 to 2 cannot be read"):
        offsets(tmp_path)


def test_a_closed_segment_that_was_cut_tells_all_that_is_missing(tmp_path):
    write(tmp_path, 1, rows=4)
    (segment,) = find_segments(tmp_path)
    entries = segment.entries()
    os.truncate(segment.path, entries[2].body_stop - 1)
    assert taken(segment, 0, 4, entries[0].at)[0] == [0, 1]
    assert [each[:2] for each in taken(segment, 0, 4, entries[0].at)[1]] == [(2, 3), (3, 4)]
    os.truncate(segment.path, 0)
    assert [each[:2] for each in taken(segment, 0, 4)[1]] == [(0, 4)]


def test_without_an_index_damage_is_told_up_to_where_the_reader_knew_of_rows(tmp_path):
    log = SegmentLog(tmp_path)
    for number in range(4):
        log.append([RecordedRun("/a", 1, 1, number, 1, 0, 0, [b"x" * 50])])
    reader = LogReader(tmp_path)
    assert reader.stop_offset() == 4
    (segment,) = find_segments(tmp_path)
    flip(segment.path, reader.entries(segment)[1].at + 5)
    assert [each[:2] for each in taken(segment, 0, 4)[1]] == [(1, 4)]
    crash(log)


def test_a_segment_that_retention_takes_before_it_is_read_is_lost_and_not_damaged(tmp_path):
    write(tmp_path, 2)
    first, _ = find_segments(tmp_path)
    first.delete()
    (lost,) = taken(first, 0, 2)[1]
    assert lost.is_deleted
    assert not isinstance(lost.error(), CorruptLogError)
    assert "retention may have deleted it" in lost.reason
    gone = SegmentFile(tmp_path / "elsewhere" / first.path.name, 0)
    assert "its folder does not exist on this machine" in taken(gone, 0, 2)[1][0].reason


def test_a_reader_that_lives_on_sees_that_a_log_was_made_anew(tmp_path):
    write(tmp_path / "log", 1)
    reader = LogReader(tmp_path / "log")
    before = reader.log_id()
    assert reader.stop_offset() == 2
    shutil.rmtree(tmp_path / "log")
    write(tmp_path / "log", 1, rows=3)
    assert reader.log_id() != before
    assert reader.stop_offset() == 3


def test_a_segment_with_a_damaged_header_and_no_index_is_missing_for_the_next_one(tmp_path):
    write(tmp_path, 3)
    middle = find_segments(tmp_path)[1]
    flip(middle.path, 3)
    with pytest.raises(CorruptLogError, match="offsets 2 to 3 cannot be read"):
        offsets(tmp_path)
    middle.index_path.unlink()
    with pytest.raises(CorruptLogError, match="offsets 2 to 3 cannot be read"):
        offsets(tmp_path)


def test_a_log_of_the_former_format_is_refused_in_one_sentence(tmp_path):
    write(tmp_path, 1)
    (segment,) = find_segments(tmp_path)
    content = bytearray(segment.path.read_bytes())
    content[8:12] = (1).to_bytes(4, "little")
    content[60:64] = crc32(content[:60]).to_bytes(4, "little")
    segment.path.write_bytes(content)
    with pytest.raises(CorruptLogError, match="has format 1, this Vivum reads 2; read the log with the Vivum that"):
        offsets(tmp_path)
