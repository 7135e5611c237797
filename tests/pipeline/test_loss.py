"""What logs lost on the way into Spark: an error that says what, or a row of the topic of gaps. Without a session."""

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from recorded.quotes import Quote
from vivum.core.errors import UsageError, VivumError
from vivum.pipeline.source.source import VivumReader, VivumSource, VivumStreamReader
from vivum.storage.errors import CorruptLogError, StorageError
from vivum.storage.gaps import GAPS_TOPIC, Gap
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_files import find_segments
from vivum.storage.segment_log import SegmentLog

pytestmark = pytest.mark.slow


def write(directory: Path, segments: int, rows: int = 4) -> None:
    for _ in range(segments):
        with SegmentLog(directory) as log:
            log.declare("/a", Quote)
            for _ in range(rows):
                payload = msgspec.msgpack.encode(Quote("A", 1.0, 2.0))
                log.append([RecordedRun("/a", 1, 1, log.next_offset, 1, 5, 7, [payload])])


def stream(directory: Path | str, **options: str) -> VivumStreamReader:
    source = VivumSource({"path": str(directory), **options})
    return source.streamReader(source.schema())


def batch(directory: Path, **options: str) -> VivumReader:
    source = VivumSource({"path": str(directory), **options})
    return source.reader(source.schema())


def rows_of(reader: Any, pieces: Any) -> list[dict[str, Any]]:
    return [row for piece in pieces for each in reader.read(piece) for row in each.to_pylist()]


def read_all(reader: VivumStreamReader, begin: Any, rows: int = 1 << 40) -> tuple[list[dict[str, Any]], Any]:
    """Read micro-batch after micro-batch, each made anew as after a restart."""
    found = []
    while (end := reader.latestOffset(begin, ReadMaxRows(rows))) != begin:
        found += rows_of(reader, reader.partitions(begin, end))
        begin = end
    return found, begin


def split(rows: list[dict[str, Any]]) -> tuple[list[int], list[tuple[int, int]]]:
    """The offsets that came, and the ranges that were told as lost."""
    gaps = [msgspec.msgpack.decode(each["payload"], type=Gap) for each in rows if each["topic"] == GAPS_TOPIC]
    return [each["offset"] for each in rows if each["topic"] != GAPS_TOPIC], [(g.first, g.count) for g in gaps]


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_damage_fails_batch_and_stream_whatever_the_borders_of_micro_batches(tmp_path, step):
    write(tmp_path, 3)
    segment = find_segments(tmp_path)[1]
    flip(segment.path, segment.entries()[2].at + 5)
    reader = batch(tmp_path)
    with pytest.raises(CorruptLogError, match="offsets 6 to 6 cannot be read"):
        rows_of(reader, reader.partitions())
    streaming = stream(tmp_path, maxRowsPerTrigger=str(step))
    with pytest.raises(CorruptLogError, match="offsets 6 to 6 cannot be read"):
        read_all(streaming, streaming.initialOffset(), step)


@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_without_fail_on_data_loss_each_lost_range_is_a_row(tmp_path, step, capsys):
    write(tmp_path, 3)
    segments = find_segments(tmp_path)
    flip(segments[0].path, segments[0].entries()[1].at + 5)
    os.truncate(segments[2].path, segments[2].entries()[2].at)
    segments[1].delete()
    expected = [0, 2, 3, 8, 9]
    reader = batch(tmp_path, failOnDataLoss="false")
    offsets, lost = split(rows_of(reader, reader.partitions()))
    assert (offsets, sum(count for _, count in lost)) == (expected, 7)
    streaming = stream(tmp_path, failOnDataLoss="false", maxRowsPerTrigger=str(step))
    offsets, lost = split(read_all(streaming, streaming.initialOffset(), step)[0])
    assert offsets == expected
    missing = [number for first, count in lost for number in range(first, first + count)]
    assert sorted(missing) == [1, 4, 5, 6, 7, 10, 11]
    assert "offsets 1 to 1 cannot be read" in capsys.readouterr().err


def test_what_retention_takes_between_planning_and_reading_is_an_error_or_a_row(tmp_path):
    write(tmp_path, 2)
    for flag in ("true", "false"):
        reader = stream(tmp_path, failOnDataLoss=flag)
        begin = reader.initialOffset()
        pieces = reader.partitions(begin, reader.latestOffset(begin, ReadAllAvailable()))
        if flag == "true":
            find_segments(tmp_path)[0].delete()
            with pytest.raises(StorageError, match="retention may have deleted it: offsets 0 to 3 cannot be read"):
                rows_of(reader, pieces)
            shutil.rmtree(tmp_path)
            write(tmp_path, 2)
        else:
            find_segments(tmp_path)[0].delete()
            assert split(rows_of(reader, pieces)) == ([4, 5, 6, 7], [(0, 4)])


def test_typed_rows_of_gaps_have_no_value_and_tell_the_reason(tmp_path):
    write(tmp_path, 3)
    find_segments(tmp_path)[1].delete()
    reader = batch(tmp_path, typed="true", failOnDataLoss="false")
    rows = sorted(rows_of(reader, reader.partitions()), key=lambda row: row["offset"])
    assert [row["value"] is None for row in rows] == [False] * 4 + [True] + [False] * 4
    assert "lost" in rows[4]["refused"]
    assert "are gone" in rows[4]["refused"]
    only = batch(tmp_path, topics="/a", typed="true", failOnDataLoss="false")
    assert len(rows_of(only, only.partitions())) == 8


def test_a_log_that_was_made_anew_is_refused_or_read_from_its_beginning(tmp_path):
    write(tmp_path / "log", 2)
    reader = stream(tmp_path / "log")
    end = read_all(reader, reader.initialOffset())[1]
    shutil.rmtree(tmp_path / "log")
    write(tmp_path / "log", 3)
    for each in (reader, stream(tmp_path / "log")):
        with pytest.raises(StorageError, match="was made anew since it was read up to offset 8; put"):
            each.latestOffset(end, ReadAllAvailable())
    lenient = stream(tmp_path / "log", failOnDataLoss="false")
    rows, end = read_all(lenient, end)
    # How much was lost with the former log nobody knows.
    assert split(rows) == (list(range(12)), [(8, 0)])
    assert read_all(lenient, end) == ([], end)


def test_a_log_that_was_moved_is_followed(tmp_path):
    write(tmp_path / "log", 2)
    reader = stream(tmp_path / "log")
    end = read_all(reader, reader.initialOffset())[1]
    write(tmp_path / "log", 1)
    shutil.move(tmp_path / "log", tmp_path / "moved")
    moved = stream(tmp_path / "moved")
    assert split(read_all(moved, end)[0]) == ([8, 9, 10, 11], [])


def test_a_log_that_the_query_no_longer_names_is_not_forgotten(tmp_path):
    write(tmp_path / "one", 1)
    write(tmp_path / "two", 1)
    both = stream(f"{tmp_path / 'one'},{tmp_path / 'two'}")
    end = read_all(both, both.initialOffset())[1]
    with pytest.raises(StorageError, match=r"the checkpoint is of a log \w{32}, read at .*two, which no directory of"):
        stream(tmp_path / "one").latestOffset(end, ReadAllAvailable())
    rows, _ = read_all(stream(tmp_path / "one", failOnDataLoss="false"), end)
    assert split(rows) == ([], [(4, 0)])


def test_the_same_log_under_two_names_is_refused(tmp_path):
    write(tmp_path / "one", 1)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with pytest.raises(UsageError, match="are copies of one log; read one of them"):
        stream(f"{tmp_path / 'one'},{tmp_path / 'two'}").initialOffset()


def test_a_middle_segment_that_is_gone_is_noticed_if_it_was_not_read_yet(tmp_path):
    write(tmp_path, 4)
    reader = stream(tmp_path, maxRowsPerTrigger="8")
    begin = reader.initialOffset()
    after_two = reader.latestOffset(begin, ReadMaxRows(8))
    find_segments(tmp_path)[1].delete()
    with pytest.raises(StorageError, match="are gone: offsets 4 to 7 are lost; set failOnDataLoss to false"):
        reader.partitions(begin, reader.latestOffset(begin, ReadAllAvailable()))
    assert split(read_all(reader, after_two)[0])[0] == list(range(8, 16))


@pytest.mark.parametrize("gone", [1, 2])
def test_a_log_that_was_put_back_to_an_older_state_and_went_on_is_refused(tmp_path, gone):
    write(tmp_path, 3)
    reader = stream(tmp_path)
    end = read_all(reader, reader.initialOffset())[1]
    for each in find_segments(tmp_path)[-gone:]:
        each.delete()
    write(tmp_path, 1, rows=20)
    with pytest.raises(StorageError, match=r"another segment than the one that was read|which was read last"):
        reader.latestOffset(end, ReadAllAvailable())
    rows, _ = read_all(stream(tmp_path, failOnDataLoss="false"), end)
    # All that came after the part that was put back, and one row that tells of it.
    offsets, lost = split(rows)
    assert offsets[-1] == 12 - 4 * gone + 19
    assert lost == [(12, 0)]


def test_an_old_checkpoint_is_refused_in_one_sentence(tmp_path):
    write(tmp_path, 1)
    with pytest.raises(VivumError, match="written by an older Vivum"):
        stream(tmp_path).latestOffset({str(tmp_path): 3}, ReadAllAvailable())  # type: ignore[dict-item]


def test_a_stream_begun_on_an_empty_folder_reads_the_log_that_comes(tmp_path):
    reader = stream(tmp_path)
    begin = reader.initialOffset()
    assert reader.latestOffset(begin, ReadAllAvailable()) == begin
    write(tmp_path, 2)
    assert split(read_all(reader, begin)[0])[0] == list(range(8))


def test_tasks_are_as_many_as_asked_for(tmp_path):
    write(tmp_path, 6)
    assert len(batch(tmp_path, minPartitions="3").partitions()) == 3
