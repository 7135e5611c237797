"""Silver: payloads decoded by their topic's type, each message once, with an event time and a watermark.

One table for each type. A payload that is not of its type goes to the quarantine with the reason and is counted;
nothing is dropped, however late it comes. A row whose event time the watermark had passed when it came is kept and
flagged (`is_late`), and counted. So a row that is not late never changes a window that the watermark had passed.

A message that is recorded twice (by two recorders, say) is kept once: copies have the same event time, so they are
looked for among the stored rows of the times that a batch has. Spark's own deduplication within a watermark would leave
out what comes later than that without a word.

    spark-submit silver.py --tables DIR [--watermark 60s]
"""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from vivum.core.errors import UsageError
from vivum.pipeline.jobs.program import TABLES, ProgramOption, run_program
from vivum.pipeline.jobs.running import check_writable
from vivum.pipeline.jobs.tables import MESSAGE_KEY, RAW, Tables
from vivum.pipeline.jobs.watermarks import WATERMARK_DELAY, batch_watermark_ms, delay_ms, reached_watermark_ms
from vivum.pipeline.typed import PayloadDecoder, fields_without_column, spark_struct
from vivum.storage.topic_types import TopicTypes
from vivum.wire.schema import TypeDescription

_ENVELOPE = [field for field in RAW if field.name != "payload"]


def silver(spark: SparkSession, tables: Tables, watermark: str = WATERMARK_DELAY) -> dict[str, dict[str, Any]]:
    """Take what is new in bronze. `watermark` is the delay after which a row counts as late, as in '60s'.

    Returns for each type the new rows, how many of them are late, how many more were refused, and the watermark now;
    for a type with fields that Spark has no column for, these fields (`without_column`) and nothing else.
    """
    delay = delay_ms(watermark)
    if not tables.committed("bronze", "deliveries"):
        raise UsageError(f"{tables.folder} has no bronze table; run `vivum pipeline run bronze` first")
    check_writable(tables.folder)
    by_type: dict[str, tuple[TypeDescription, list[str]]] = {}
    for topic, description in TopicTypes.read(tables.folder / "bronze").types.items():
        if description is not None:
            known = by_type.setdefault(description.name, (description, []))
            known[1].append(topic)
    answer: dict[str, dict[str, Any]] = {}
    for name, (description, topics) in sorted(by_type.items()):
        without = fields_without_column(description)
        answer[name] = {"without_column": without} if without else _one_type(spark, tables, description, topics, delay)
    return answer


def _one_type(
    spark: SparkSession, tables: Tables, description: TypeDescription, topics: list[str], delay: int
) -> dict[str, Any]:
    raw = spark.readStream.schema(_bronze_schema()).parquet(tables.path("bronze", "deliveries"))
    decoded = decode(raw.filter(F.col("topic").isin(topics)), description)
    # By the recorder's clock at most: a sender whose clock is ahead must not make everybody else late.
    clocked = F.least("event_time", F.timestamp_micros(F.expr("delivered_ns div 1000")))
    decoded = decoded.withColumn("clocked", clocked).withWatermark("clocked", f"{delay} milliseconds")
    checkpoint = tables.silver_checkpoint(description.name)
    counts = {"rows": 0, "late": 0, "refused": 0}
    stored = [tables.path("silver", description.name), tables.path("silver", "quarantine", description.name)]

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        passed = F.timestamp_millis(F.lit(batch_watermark_ms(checkpoint, number)))
        once = new_messages(batch, stored, number).drop("clocked").withColumn("is_late", F.col("event_time") < passed)
        once.persist()
        try:
            # A batch that is done again after a crash writes the same folder again.
            good, bad = once.filter("refused is null"), once.filter("refused is not null")
            _write(good.drop("refused", "payload"), stored[0], number)
            refused, late = bad.count(), good.filter("is_late").count()
            if refused:
                _write(bad.drop("value").withColumnRenamed("refused", "reason"), stored[1], number)
            counts["rows"] += once.count() - refused
            counts["late"] += late
            counts["refused"] += refused
        finally:
            once.unpersist()
            batch.unpersist()

    query = (
        decoded.writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    reached_ms = reached_watermark_ms(checkpoint)
    reached = datetime.fromtimestamp(reached_ms / 1000, UTC).isoformat(timespec="milliseconds") if reached_ms else None
    return counts | {"watermark": reached}


def new_messages(batch: DataFrame, stored: list[str], number: int) -> DataFrame:
    """Leave out the copies of messages inside a batch, and of those that earlier batches stored in these tables."""
    once = batch.dropDuplicates(list(MESSAGE_KEY))
    first, last = batch.agg(F.min("event_time"), F.max("event_time")).collect()[0]
    for path in stored:
        if first is not None and Path(path).is_dir():
            # Files tell their least and greatest time, so few are read. A later number is of a run that was killed.
            there = batch.sparkSession.read.parquet(path).filter(F.col("batch") < number)
            there = there.filter(F.col("event_time").between(F.lit(first), F.lit(last))).select(*MESSAGE_KEY)
            once = once.join(there, list(MESSAGE_KEY), "left_anti")
    return once


def _bronze_schema() -> types.StructType:
    return types.StructType([*RAW, types.StructField("date", types.DateType())])


def _write(rows: DataFrame, path: str, number: int) -> None:
    rows.write.mode("overwrite").parquet(str(Path(path) / f"batch={number}"))


def decode(raw: DataFrame, description: TypeDescription) -> DataFrame:
    """Give raw deliveries their `value`, or the reason why there is none, and the `event_time` of their sending."""
    more = [
        types.StructField("value", spark_struct(description)),
        types.StructField("refused", types.StringType()),
        types.StructField("payload", types.BinaryType()),
    ]
    schema = types.StructType([*_ENVELOPE, *more])

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        arrow_schema = to_arrow_schema(schema, timezone="UTC")
        decoder = PayloadDecoder(description, arrow_schema.field("value").type)
        for batch in batches:
            payload = batch.column("payload").cast(pyarrow.binary())
            value, refused = decoder.columns(payload)
            columns = [batch.column(field.name) for field in _ENVELOPE]
            # A payload is kept beside its reason alone.
            kept = pyarrow.compute.if_else(pyarrow.compute.is_null(refused), None, payload)
            yield pyarrow.RecordBatch.from_arrays([*columns, value, refused, kept], schema=arrow_schema)

    event_time = F.timestamp_micros(F.expr("sent_ns div 1000"))
    return raw.select(*RAW.fieldNames()).mapInArrow(work, schema).withColumn("event_time", event_time)


if __name__ == "__main__":
    _delay = ProgramOption("watermark", "how far rows may come out of order before they are late", WATERMARK_DELAY)
    sys.exit(
        run_program("silver", lambda spark, given: silver(spark, Tables(given.tables), given.watermark), TABLES, _delay)
    )
