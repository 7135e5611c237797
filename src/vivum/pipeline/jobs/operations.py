"""Gold, operations: how the groups did, minute by minute, from the traces of nodes or of a simulation.

`operations_topics` has for each node, topic and minute: deliveries, rate, latency in µs (p50, p95, p99, most), and the
messages that were reported as lost. `operations_nodes` has for each node and minute: datagrams and bytes sent, how many
of them were repairs and their share, datagrams lost on the way in, and the time of a round of the token.

Simulated nodes tell of each datagram; live ones of what they sent in each second (`node_measured`). Simulated groups
have no names: their topic is `group 7`. Latency is by the clocks of sender and receiver.

    spark-submit operations.py --trace DIR --tables DIR
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from vivum.core.machine import Priority
from vivum.pipeline.jobs.program import TABLES, ProgramOption, run_program
from vivum.pipeline.jobs.running import check_writable
from vivum.pipeline.jobs.tables import Tables
from vivum.storage.trace_schema import trace_schema
from vivum.storage.traces import trace_files
from vivum.wire.kinds import KINDS

_MINUTE_NS = 60_000_000_000


def topic_minutes(trace: DataFrame) -> DataFrame:
    """Sum up deliveries."""
    latency = F.expr("(time_ns - sent_ns) / 1000")
    minute = F.expr(f"time_ns div {_MINUTE_NS}").alias("minute")
    delivered = (
        trace.filter("kind = 'message_delivered'")
        .groupBy("node", "group", minute)
        .agg(
            F.count("*").alias("deliveries"),
            F.percentile_approx(latency, 0.5).alias("latency_us_p50"),
            F.percentile_approx(latency, 0.95).alias("latency_us_p95"),
            F.percentile_approx(latency, 0.99).alias("latency_us_p99"),
            F.max(latency).alias("latency_us_max"),
            (F.max("time_ns") - F.min("time_ns")).alias("span_ns"),
        )
        .withColumn("rate_per_s", F.expr("case when span_ns > 0 then deliveries * 1e9 / span_ns end"))
        .drop("span_ns")
    )
    lost = trace.filter("kind = 'messages_lost'").groupBy("node", "group", minute).agg(
        F.sum(F.expr("stop - sequence")).alias("messages_lost")
    )  # fmt: skip
    # Outer: a minute in which all was lost counts most.
    summed = delivered.join(lost, ["node", "group", "minute"], "outer").fillna(0, ["deliveries", "messages_lost"])
    names = trace.filter("kind = 'group_named'").groupBy("node", "group").agg(
        F.max_by("topic", "time_ns").alias("topic")
    )  # fmt: skip
    topic = F.coalesce("topic", F.concat(F.lit("group "), F.col("group").cast("string")))
    return summed.join(names, ["node", "group"], "left").withColumn("topic", topic)


def node_minutes(trace: DataFrame) -> DataFrame:
    """Sum up datagrams."""
    minute = F.expr(f"time_ns div {_MINUTE_NS}").alias("minute")
    measured = trace.filter("kind = 'node_measured'").groupBy("node", minute).agg(
        F.sum("datagrams").alias("datagrams"),
        F.sum("datagram_bytes").alias("bytes"),
        F.sum("repairs").alias("repairs"),
        F.sum("repair_bytes").alias("repair_bytes"),
        F.sum("datagrams_lost").alias("datagrams_lost"),
        (F.avg(F.expr("nullif(ring_ns, 0)")) / 1_000_000).alias("ring_ms"),
    )  # fmt: skip
    counts = ("datagrams", "bytes", "repairs", "repair_bytes", "datagrams_lost")
    # A live node tells both ways of what it refused.
    whole = measured.unionByName(_frame_minutes(trace)).groupBy("node", "minute").agg(
        *[F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in counts], F.avg("ring_ms").alias("ring_ms")
    )  # fmt: skip
    return whole.withColumn("repair_share", F.expr("case when bytes > 0 then repair_bytes / bytes end"))


def _frame_minutes(trace: DataFrame) -> DataFrame:
    """Sum up frames, which are known by the name of their kind."""
    minute = F.expr(f"time_ns div {_MINUTE_NS}").alias("minute")
    repair = F.col("frame").isin([kind.name for kind, info in KINDS.items() if info.priority is Priority.REPAIR])
    sent = trace.filter("kind = 'frame_sent'").groupBy("node", minute).agg(
        F.count("*").alias("datagrams"),
        F.sum("bytes").alias("bytes"),
        F.count(F.when(repair, 1)).alias("repairs"),
        F.coalesce(F.sum(F.when(repair, F.col("bytes"))), F.lit(0)).alias("repair_bytes"),
    )  # fmt: skip
    dropped = trace.filter("kind = 'frame_dropped'").groupBy("node", minute).agg(F.count("*").alias("datagrams_lost"))
    order = Window.partitionBy("node", "incarnation", "source").orderBy("time_ns")
    tokens = (
        trace.filter((F.col("kind") == "frame_received") & F.lower("frame").contains("token"))
        .withColumn("between_ns", F.col("time_ns") - F.lag("time_ns").over(order))
        .groupBy("node", minute)
        .agg((F.avg("between_ns") / 1_000_000).alias("ring_ms"))
    )
    keys = ["node", "minute"]
    return sent.join(dropped, keys, "outer").join(tokens, keys, "outer")


def operations(spark: SparkSession, trace: str, tables: Tables) -> dict[str, int]:
    """Make both tables anew. Returns how many rows they have."""
    files = [str(each) for each in trace_files(Path(trace))]
    check_writable(tables.folder)
    # Declared: a trace of an older Vivum has fewer columns, and the rest is null.
    rows = spark.read.schema(from_arrow_schema(trace_schema())).parquet(*files)
    counts = {}
    for name, made in (("operations_topics", topic_minutes(rows)), ("operations_nodes", node_minutes(rows))):
        counts[name] = tables.table("gold", name).replace(made.coalesce(1)).rows
    return counts


if __name__ == "__main__":
    _trace = ProgramOption("trace", "the folder of traces")
    sys.exit(
        run_program(
            "operations", lambda spark, given: operations(spark, given.trace, Tables(given.tables)), _trace, TABLES
        )
    )
