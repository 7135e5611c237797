"""How fast the data pipeline is: the log's writer, the Spark source beside Spark's own Parquet source, the audit.

    python bench/pipeline.py [--rows 4000000] [--records 2000000] [--rounds 4] [--json]

- `recorder_msgs_per_s`: messages of 100 bytes that one process appends to a log, fsync by interval; the same with 1,000
  bytes as `recorder_1000_msgs_per_s`. The log alone, without the network in front of it.
- `source_rows_per_s`: rows of 100 bytes that `format("vivum")` reads into Spark's sink that drops everything.
- `parquet_rows_per_s`: the same rows from Parquet files, in turns with the source, in the same session.
- `audit_records_per_s`: trace records that all checks of the audit judge in a second;
  `audit_without_causal_records_per_s`: the same without the one check that cannot be shared out.

Best of several rounds: the first warms Spark up, and other work slows some. With `--json` the last line is one object.
"""

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet

from vivum.pipeline import session
from vivum.pipeline.audit import CHECKS, audit
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_format import log_schema
from vivum.storage.segment_log import SegmentLog
from vivum.storage.segment_reader import LogReader
from vivum.storage.trace_schema import trace_schema
from vivum.storage.traces import ROWS_PER_FILE

SOURCE_GOAL = 1_000_000
PARQUET_SHARE_GOAL = 0.5
AUDIT_GOAL = 500_000
RUN_ROWS = 50
RUNS_PER_BATCH = 400
TOPICS = 200


def runs_of(number: int, size: int) -> list[RecordedRun]:
    payloads = [os.urandom(size) for _ in range(RUN_ROWS)]
    now_ns = time.time_ns()
    return [
        RecordedRun(
            f"/swx/S{place % TOPICS}", 1, 1, (number * RUNS_PER_BATCH + place) * RUN_ROWS, 1, now_ns, now_ns, payloads
        )
        for place in range(RUNS_PER_BATCH)
    ]


def record(directory: Path, rows: int, size: int) -> float:
    """Write a log; return messages a second."""
    batches = max(1, rows // (RUN_ROWS * RUNS_PER_BATCH))
    ready = [runs_of(number, size) for number in range(batches)]
    began = time.perf_counter()
    with SegmentLog(directory) as log:
        for runs in ready:
            log.append(runs)
    return batches * RUN_ROWS * RUNS_PER_BATCH / (time.perf_counter() - began)


def to_parquet(log: Path, out: Path) -> None:
    """Write the rows of a log as Parquet, a file for each segment."""
    out.mkdir()
    reader = LogReader(log)
    for segment, summary in reader.summaries():
        with pyarrow.parquet.ParquetWriter(out / f"{segment.first_offset}.parquet", log_schema()) as writer:
            for batch in reader.batches(summary.first_offset, summary.stop_offset):
                writer.write_batch(batch)


def write_trace(directory: Path, records: int) -> int:
    """Write the trace of a run in which every guarantee holds: 8 groups of 10 nodes, two of which send in turns."""
    groups, nodes, senders = 8, 10, 2
    block = 1 + nodes
    messages = max(1, records // block)
    numbers = numpy.arange(messages)
    count = messages * block
    place = numpy.tile(numpy.arange(block), messages)
    message = numpy.repeat(numbers, block)
    is_send = place == 0
    sender = message // groups % senders + 1
    columns: dict[str, Any] = {
        "position": numpy.arange(count),
        "kind": pyarrow.array(["message_sent", "message_delivered"]).take(pyarrow.array(1 - is_send.astype("int64"))),
        "time_ns": numpy.arange(count) * 1000,
        "node": numpy.where(is_send, sender, place),
        "incarnation": numpy.ones(count, "int64"),
        "group": message % groups + 1,
        "view": numpy.zeros(count, "int64"),
        "sequence": message // (groups * senders) + 1,
        "digest": message * 2654435761 % (1 << 32),
        "sender": pyarrow.array(sender, mask=is_send),
        "sender_incarnation": pyarrow.array(numpy.ones(count, "int64"), mask=is_send),
        "sent_ns": pyarrow.array((message * block) * 1000, mask=is_send),
    }
    schema = trace_schema()
    arrays = [
        pyarrow.array(columns[field.name]).cast(field.type)
        if field.name in columns
        else pyarrow.nulls(count, field.type)
        for field in schema
    ]
    table = pyarrow.Table.from_arrays(arrays, schema=schema)
    directory.mkdir()
    for number, start in enumerate(range(0, count, ROWS_PER_FILE)):
        part = table.slice(start, ROWS_PER_FILE)
        pyarrow.parquet.write_table(part, directory / f"sim-{number:06}.parquet", compression="zstd")
    return count


def rate(count: int, work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def drop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def commit() -> str:
    folder = Path(__file__).resolve().parent
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=folder, capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or "unknown"


def measure(rows: int, records: int, rounds: int, folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = {}
    results["recorder_msgs_per_s"] = round(record(folder / "log", rows, 100))
    results["recorder_1000_msgs_per_s"] = round(record(folder / "log1000", rows // 10, 1000))
    print(f"recorder  {results['recorder_msgs_per_s']:>12,} messages/s of 100 bytes", flush=True)
    to_parquet(folder / "log", folder / "parquet")
    spark = session("vivum-bench")
    count = spark.read.parquet(str(folder / "parquet")).count()
    source, parquet = [], []
    for _ in range(rounds):
        source.append(rate(count, lambda: drop(spark.read.format("vivum").load(str(folder / "log")))))
        parquet.append(rate(count, lambda: drop(spark.read.parquet(str(folder / "parquet")))))
    results["source_rows_per_s"], results["parquet_rows_per_s"] = round(max(source)), round(max(parquet))
    print(f"source    {results['source_rows_per_s']:>12,} rows/s", flush=True)
    print(f"parquet   {results['parquet_rows_per_s']:>12,} rows/s", flush=True)
    count = write_trace(folder / "trace", records)
    results["audit_records"] = count
    without = [name for name in CHECKS if name != "causal"]
    measured = {"audit_records_per_s": list(CHECKS), "audit_without_causal_records_per_s": without}
    for key, checks in measured.items():
        walls = []
        for _ in range(2):
            began = time.perf_counter()
            verdict = audit(folder / "trace", spark, checks=checks)
            walls.append(time.perf_counter() - began)
            assert verdict.violation_count == 0
            assert verdict.records == count
        results[key] = round(count / min(walls))
        print(f"audit     {results[key]:>12,} records/s, {len(checks)} checks", flush=True)
    spark.stop()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows of the log")
    parser.add_argument("--records", type=int, default=2_000_000, help="trace records of the audit")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of each; the best counts")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vivum-bench-") as folder:
        results = measure(options.rows, options.records, options.rounds, Path(folder))
    if options.json:
        share = results["source_rows_per_s"] / results["parquet_rows_per_s"]
        goal = {
            "source_rows_per_s": SOURCE_GOAL,
            "source_share_of_parquet": PARQUET_SHARE_GOAL,
            "audit_records_per_s": AUDIT_GOAL,
            "reached": results["source_rows_per_s"] >= SOURCE_GOAL
            and share >= PARQUET_SHARE_GOAL
            and results["audit_records_per_s"] >= AUDIT_GOAL,
        }
        about = {"python": platform.python_version(), "cores": os.cpu_count(), "commit": commit()}
        print(json.dumps({"benchmark": "pipeline", **about, **results, "source_share_of_parquet": share, "goal": goal}))


if __name__ == "__main__":
    main()
