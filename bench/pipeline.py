"""How fast the data pipeline is: recorder, Spark source beside Spark's own Parquet source, audit.

    python bench/pipeline.py [--rows 4000000] [--records 4000000] [--rounds 4] [--json]
    python bench/pipeline.py --audit-records 50000000 [--json]      the audit alone, and what memory it takes
    python bench/pipeline.py --recorder [--pace 0.55] [--json]      the recorder and its log alone, without Spark

- `recorder_msgs_per_s`: messages of 1,000 bytes of a live reliable topic that a recorder process writes, sent at
  `--pace`, a bit more than half of `throughput_msgs_per_s`, which `vivum bench throughput` reaches without a log just
  before. `recorder_keeps_up`: it wrote at least half of that rate, and of all that was sent none is missing in the log.
- `recorder_flat_out_msgs_per_s`: the same while the sender sends what it can; `recorder_flat_out_missed_in_silence`:
  what is missing then although the recorder says that nothing is.
- `log_msgs_per_s`, `log_1000_msgs_per_s`: what one process appends to a log, without the network in front of it.
- `recorder_to_row_ms_p50`: from the delivery at the recorder to a row of a streaming query with a trigger of 200 ms.
- `source_rows_per_s`: rows of 100 bytes that `format("vivum")` reads into Spark's sink that drops everything.
- `parquet_rows_per_s`: the same rows from Parquet files, in turns with the source, in the same session.
- `audit_records_per_s`: trace records that all checks of the audit judge in a second; `audit_cpu_us_per_record`: the
  time of processors that a record takes in Spark and its workers; `audit_records_per_s_on_free_cores`: what follows
  from it where nobody else works. `audit_rss_mb_max`: memory of driver, JVM and workers together.

Best of several rounds: the first warms Spark up, and other work slows some. With `--json` the last line is one object.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet

from process_tree import watched
from recording import PACE, SHARE_GOAL, measure_recorder, measure_rows
from synthetic_trace import write_trace
from vivum.bench.machine import about
from vivum.pipeline import session
from vivum.pipeline.audit import CHECKS, audit
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_format import log_schema
from vivum.storage.segment_log import SegmentLog
from vivum.storage.segment_reader import LogReader

SOURCE_GOAL = 1_000_000
PARQUET_SHARE_GOAL = 0.5
AUDIT_GOAL = 500_000
AUDIT_MB_GOAL = 4096
TO_ROW_MS_GOAL = 1000
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


def rate(count: int, work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def drop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def measure_log(rows: int, folder: Path) -> dict[str, Any]:
    results = {
        "log_msgs_per_s": round(record(folder / "log", rows, 100)),
        "log_1000_msgs_per_s": round(record(folder / "log1000", rows // 10, 1000)),
    }
    print(f"log       {results['log_msgs_per_s']:>12,} messages/s of 100 bytes", flush=True)
    print(f"log       {results['log_1000_msgs_per_s']:>12,} messages/s of 1,000 bytes", flush=True)
    return results


def measure_source(spark: Any, rounds: int, folder: Path) -> dict[str, Any]:
    to_parquet(folder / "log", folder / "parquet")
    count = spark.read.parquet(str(folder / "parquet")).count()
    source, parquet = [], []
    for _ in range(rounds):
        source.append(rate(count, lambda: drop(spark.read.format("vivum").load(str(folder / "log")))))
        parquet.append(rate(count, lambda: drop(spark.read.parquet(str(folder / "parquet")))))
    results = {"source_rows_per_s": round(max(source)), "parquet_rows_per_s": round(max(parquet))}
    for name in ("source", "parquet"):
        print(f"{name:9} {results[f'{name}_rows_per_s']:>12,} rows/s", flush=True)
    return results | {"source_share_of_parquet": round(max(source) / max(parquet), 3)}


def measure_audit(spark: Any, records: int, rounds: int, folder: Path) -> dict[str, Any]:
    count = write_trace(folder / "trace", records)
    walls, uses = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        with watched() as use:
            verdict = audit(folder / "trace", spark, checks=list(CHECKS))
        walls.append(time.perf_counter() - began)
        uses.append(use)
        assert verdict.violation_count == 0
        assert verdict.records == count
        print(f"audit     {count / walls[-1]:>12,.0f} records/s, {use.rss_mb_max:,.0f} MB", flush=True)
    cpu_s = min(each.cpu_s for each in uses)
    return {
        "audit_records": count,
        "audit_records_per_s": round(count / min(walls)),
        "audit_cpu_us_per_record": round(cpu_s / count * 1e6, 3),
        "audit_records_per_s_on_free_cores": round(count / cpu_s * (os.cpu_count() or 1)),
        "audit_rss_mb_max": round(max(each.rss_mb_max for each in uses)),
    }


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    if options.audit_records:
        spark = session("vivum-bench")
        results = measure_audit(spark, options.audit_records, 1, folder)
        spark.stop()
        return results
    results = measure_recorder(folder, options.seconds, options.rounds, options.pace)
    share = results["recorder_share_of_throughput"]
    missed = results["recorder_missed"]
    print(
        f"recorder  {results['recorder_msgs_per_s']:>12,} messages/s of 1,000 bytes, {missed:,} missed, {share:.0%} of"
    )
    print(f"no log    {results['throughput_msgs_per_s']:>12,} messages/s")
    print(f"flat out  {results['recorder_flat_out_msgs_per_s']:>12,} messages/s", flush=True)
    results |= measure_log(options.rows, folder)
    if options.recorder:
        return results
    spark = session("vivum-bench")
    results |= measure_source(spark, options.rounds, folder)
    results |= measure_audit(spark, options.records, options.rounds, folder)
    results |= measure_rows(spark, folder, options.seconds)
    print(f"to a row  {results['recorder_to_row_ms_p50']:>12,} ms", flush=True)
    spark.stop()
    return results


GOALS: dict[str, tuple[float, bool]] = {
    "source_rows_per_s": (SOURCE_GOAL, True),
    "source_share_of_parquet": (PARQUET_SHARE_GOAL, True),
    "audit_records_per_s": (AUDIT_GOAL, True),
    "audit_rss_mb_max": (AUDIT_MB_GOAL, False),
    "recorder_share_of_throughput": (SHARE_GOAL, True),
    "recorder_missed": (0, False),
    "recorder_flat_out_missed_in_silence": (0, False),
    "recorder_to_row_ms_p50": (TO_ROW_MS_GOAL, False),
}
"""What each figure should be, and whether more is better."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows of the log")
    parser.add_argument("--records", type=int, default=4_000_000, help="trace records of the audit")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of each; the best counts")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long messages are sent to the recorder")
    parser.add_argument("--recorder", action="store_true", help="only measure the recorder and its log")
    parser.add_argument("--pace", type=float, default=PACE, help="how much of the throughput is sent to the recorder")
    parser.add_argument("--audit-records", type=int, default=0, help="only judge a trace of so many records, once")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vivum-bench-") as folder:
        results = measure(options, Path(folder))
    if options.json:
        missed = [
            name
            for name, (goal, more) in GOALS.items()
            if name in results and (results[name] < goal if more else results[name] > goal)
        ]
        goal = {name: goal for name, (goal, _) in GOALS.items()} | {"missed": missed, "reached": not missed}
        print(json.dumps({"benchmark": "pipeline", **about(), **results, "goal": goal}))


if __name__ == "__main__":
    main()
