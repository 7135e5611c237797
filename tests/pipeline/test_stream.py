"""`format("vivum")`, as a stream."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from recorded.crashed import crash
from vivum.pipeline import rows_behind
from vivum.pipeline.progress import rows_from
from vivum.pipeline.source.source import VivumSource, VivumStreamReader
from vivum.storage.errors import StorageError
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_log import SegmentLog

pytestmark = pytest.mark.slow


def rows(*numbers: int) -> list[RecordedRun]:
    return [RecordedRun("/a", 1, 1, numbers[0], 1, 0, number, [bytes([number]) for number in numbers])
            for number in numbers[:1]]  # fmt: skip


def reader(directory: Path, **options: str) -> VivumStreamReader:
    source = VivumSource({"path": str(directory), **options})
    return source.streamReader(source.schema())


def place(directory: Path, offset: int) -> dict[str, Any]:
    """The offset of Spark for a place in a log."""
    return reader(directory).followed.offsets({str(directory): offset}, {})


def reached(offsets: dict[str, Any]) -> int:
    (only,) = offsets.values()
    return int(only["offset"])


def run_available(spark: Any, directory: Path, out: Path, **options: str) -> list[dict[str, Any]]:
    """Read what is there to Parquet with a checkpoint; return the progress of each micro-batch."""
    query = (
        spark.readStream.format("vivum").options(**options).load(str(directory))
        .writeStream.format("parquet").option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True).start(str(out / "table"))
    )  # fmt: skip
    query.awaitTermination()
    return [json.loads(each.json) for each in query.recentProgress]


def offsets(spark: Any, out: Path) -> list[int]:
    return [row.offset for row in spark.read.parquet(str(out / "table")).orderBy("offset").collect()]


def test_available_now_reads_what_is_there_in_admitted_steps_and_a_restart_goes_on(spark, tmp_path):
    with SegmentLog(tmp_path / "log", segment_bytes=2000) as log:
        for number in range(10):
            log.append(rows(number, number))
        progress = run_available(spark, tmp_path / "log", tmp_path, maxRowsPerTrigger="7")
        assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [7, 7, 6]
        source = progress[0]["sources"][0]
        assert (reached(source["endOffset"]), reached(source["latestOffset"])) == (7, 20)
        log.append(rows(20, 21, 22))
        progress = run_available(spark, tmp_path / "log", tmp_path, maxRowsPerTrigger="7")
        assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [3]
    assert offsets(spark, tmp_path) == list(range(23))


def test_a_stream_sees_what_is_appended_while_it_runs(spark, tmp_path):
    with SegmentLog(tmp_path / "log") as log:
        log.append(rows(1))
        query = (
            spark.readStream.format("vivum").load(str(tmp_path / "log"))
            .writeStream.format("memory").queryName("seen").start()
        )  # fmt: skip
        try:
            query.processAllAvailable()
            assert rows_behind(query) == {str(tmp_path / "log"): 0}
            log.append(rows(2, 3))
            query.processAllAvailable()
            assert spark.table("seen").count() == 3
        finally:
            query.stop()


def test_a_limit_of_bytes_takes_whole_batches_and_at_least_one(tmp_path):
    with SegmentLog(tmp_path) as log:
        for _ in range(5):
            log.append([RecordedRun("/a", 1, 1, 1, 1, 0, 0, [bytes(1000), bytes(1000)])])
    limited = reader(tmp_path, maxBytesPerTrigger="6500")
    limit = limited.getDefaultReadLimit()
    for begin, end in ((0, 4), (4, 8), (8, 10), (10, 10)):
        assert limited.latestOffset(place(tmp_path, begin), limit) == place(tmp_path, end)
    assert reader(tmp_path, maxBytesPerTrigger="1").latestOffset(place(tmp_path, 0), limit) == place(tmp_path, 2)
    assert limited.latestOffset(place(tmp_path, 0), ReadAllAvailable()) == place(tmp_path, 10)


def test_a_limit_of_rows_cuts_inside_a_batch_and_passes_the_jump_of_a_crash(tmp_path):
    log = SegmentLog(tmp_path)
    log.append(rows(1, 2, 3))
    crash(log)
    with SegmentLog(tmp_path) as log:
        jump = log.append(rows(4, 5, 6)).start
    directory = str(tmp_path)
    assert (rows_from(directory, 0), rows_from(directory, 2), rows_from(directory, jump + 1)) == (6, 4, 2)
    limited = reader(tmp_path, maxRowsPerTrigger="2")
    seen, ends = [], []
    at = limited.initialOffset()
    while (end := limited.latestOffset(at, ReadMaxRows(2))) != at:
        seen += [each for piece in limited.partitions(at, end) for batch in limited.read(piece)
                 for each in batch.column("offset").to_pylist()]  # fmt: skip
        ends.append(reached(end))
        at = end
    assert seen == [0, 1, 2, jump, jump + 1, jump + 2]
    assert ends == [2, jump + 1, jump + 3]


def test_rows_that_retention_deleted_unread_are_an_error_unless_told_otherwise(tmp_path):
    with SegmentLog(tmp_path, segment_bytes=500, keep_bytes=2500) as log:
        for _ in range(6):
            log.append([RecordedRun("/a", 1, 1, 1, 1, 0, 0, [bytes(600)])])
    begin, end = place(tmp_path, 1), place(tmp_path, 6)
    with pytest.raises(StorageError, match=r"rows of .* were deleted before they were read; .* 1 to 2 are lost"):
        reader(tmp_path).partitions(begin, end)
    lenient = reader(tmp_path, failOnDataLoss="false")
    (piece,) = lenient.partitions(begin, end)
    assert [span.start for span in piece.spans] == [1, 3, 4, 5]
