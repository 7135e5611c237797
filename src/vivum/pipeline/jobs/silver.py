"""Silver: payloads decoded by their topic's type, each message once, with an event time and a watermark.

One table for each type; topics whose types have one name and do not fit each other have tables of their own. A payload
that is not of its type goes to the quarantine with the reason and is counted; nothing is dropped, however late it is.
A row whose event time the watermark had passed when it came is kept and flagged (`is_late`), and counted. So a row that
is not late never changes a window that the watermark had passed.

A run takes the versions of bronze that are new, and notes in the commit of its rows how far it came and how far the
watermark is. A message that is recorded twice (by two recorders, say) is kept once: copies have the same event time, so
they are looked for among the stored rows of the times that a run has.

    spark-submit silver.py --tables DIR [--watermark 60s]
"""

import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pyarrow
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from vivum.core.errors import UsageError
from vivum.pipeline.jobs.program import TABLES, ProgramOption, run_program
from vivum.pipeline.jobs.running import check_writable
from vivum.pipeline.jobs.tables import MESSAGE_KEY, RAW, Tables
from vivum.pipeline.jobs.watermarks import WATERMARK_DELAY, delay_ms
from vivum.pipeline.typed import PayloadDecoder, fields_without_column, spark_struct
from vivum.storage.segment_files import write_whole
from vivum.storage.topic_types import TopicTypes
from vivum.wire.schema import TypeDescription, TypesDiffer, join_types, type_to_json

BRONZE = "bronze"
"""Under this name a silver table notes up to which version of bronze it is."""

WATERMARK = "watermark_ms"
"""Under this name it notes its watermark, in ms since 1970."""

_ENVELOPE = [field for field in RAW if field.name != "payload"]


def silver(spark: SparkSession, tables: Tables, watermark: str = WATERMARK_DELAY) -> dict[str, dict[str, Any]]:
    """Take what is new in bronze. `watermark` is the delay after which a row counts as late, as in '60s'.

    Returns for each type the new rows, how many of them are late, how many more were refused, and the watermark now;
    for a type with fields that Spark has no column for, these fields (`without_column`) and nothing else.
    """
    delay = delay_ms(watermark)
    if not tables.there("bronze", "deliveries"):
        raise UsageError(f"{tables.folder} has no bronze table; run `vivum pipeline run bronze` first")
    check_writable(tables.folder)
    types_of_topics = TopicTypes.read(tables.folder / "bronze").types
    answer: dict[str, dict[str, Any]] = {}
    for name, (description, topics) in sorted(tables_of(types_of_topics).items()):
        without = fields_without_column(description)
        answer[name] = (
            {"without_column": without}
            if without
            else _SilverTable(spark, tables, name, description).take(topics, delay)
        )
    return answer


def tables_of(known: Mapping[str, TypeDescription | None]) -> dict[str, tuple[TypeDescription, list[str]]]:
    """Name the silver tables, with their types and topics. Types that fit each other share the table of their name."""
    found: dict[str, tuple[TypeDescription, list[str]]] = {}
    for topic, description in known.items():
        if description is None:
            continue
        name = description.name
        # The further ones of a name are told apart by what they are, which no later topic changes.
        further = f"{name}-{crc32(msgspec.json.encode(type_to_json(description))):08x}"
        for each in (name, further):
            joined, topics = found.get(each, (description, []))
            try:
                found[each] = join_types(joined, description, as_stored=True), [*topics, topic]
                break
            except TypesDiffer:
                continue
    return found


class _SilverTable:
    """One silver table, with its quarantine."""

    def __init__(self, spark: SparkSession, tables: Tables, name: str, description: TypeDescription) -> None:
        self._spark = spark
        self._bronze = tables.table("bronze", "deliveries")
        self._table = tables.table("silver", name)
        self._quarantine = tables.table("silver", "quarantine", name)
        self._description = description
        self._topics_file = Path(self._table.path) / "topics.json"

    def take(self, topics: list[str], delay_ms: int) -> dict[str, Any]:
        """Take what is new in bronze; return how many rows that was, and how far the watermark is."""
        upto, done = self._bronze.version(), self._table.progress(BRONZE)
        before_ms = self._table.progress(WATERMARK, 0)
        raw = self._bronze.added(self._spark, done, upto).filter(F.col("topic").isin(topics))
        known = self._topics() if done >= 0 else topics
        new = sorted(set(topics) - set(known))
        if new:
            # Their type was not known when earlier versions were taken.
            raw = raw.unionByName(self._bronze.added(self._spark, -1, done).filter(F.col("topic").isin(new)))
        elif done == upto:
            return _told(0, 0, 0, before_ms)
        rows = self._decoded(raw, before_ms).persist()
        try:
            refused = self._quarantine_rows(rows)
            good = rows.filter("refused is null").drop("refused", "payload", "clocked")
            reached_ms = max(before_ms, self._latest_ms(rows) - delay_ms)
            progress = {BRONZE: upto, WATERMARK: reached_ms}
            written = self._table.append(good, progress=progress, flag="is_late")
        finally:
            rows.unpersist()
        write_whole(self._topics_file, msgspec.json.encode(sorted(topics)))
        return _told(written.rows, written.flagged, refused, reached_ms)

    def _decoded(self, raw: DataFrame, watermark_ms: int) -> DataFrame:
        """Decode rows, leave out those that are stored, and flag those that the watermark has passed."""
        # By the recorder's clock at most: a sender whose clock is ahead must not make everybody else late.
        clocked = F.least("event_time", F.timestamp_micros(F.expr("delivered_ns div 1000")))
        is_late = F.col("event_time") < F.timestamp_millis(F.lit(watermark_ms))
        decoded = decode(raw, self._description).withColumn("clocked", clocked).withColumn("is_late", is_late)
        stored = [each.read(self._spark) for each in (self._table, self._quarantine) if each.exists]
        return new_messages(decoded, stored)

    def _quarantine_rows(self, rows: DataFrame) -> int:
        bad = rows.filter("refused is not null").drop("value", "clocked").withColumnRenamed("refused", "reason")
        # First: if this job is killed before the rows are committed, it finds these stored the next time.
        return 0 if bad.isEmpty() else self._quarantine.append(bad).rows

    @staticmethod
    def _latest_ms(rows: DataFrame) -> int:
        (found,) = rows.agg(F.max(F.unix_millis("clocked"))).collect()[0]
        return 0 if found is None else int(found)

    def _topics(self) -> list[str]:
        try:
            return msgspec.json.decode(self._topics_file.read_bytes(), type=list[str])
        except FileNotFoundError:
            return []


def _told(rows: int, late: int, refused: int, reached_ms: int) -> dict[str, Any]:
    reached = datetime.fromtimestamp(reached_ms / 1000, UTC).isoformat(timespec="milliseconds") if reached_ms else None
    return {"rows": rows, "late": late, "refused": refused, "watermark": reached}


def new_messages(batch: DataFrame, stored: list[DataFrame]) -> DataFrame:
    """Leave out the copies of messages inside a batch, and of those that are stored."""
    once = batch.dropDuplicates(list(MESSAGE_KEY))
    if stored:
        first, last = batch.agg(F.min("event_time"), F.max("event_time")).collect()[0]
        for rows in stored if first is not None else ():
            # Files tell their least and greatest time, so little is read.
            there = rows.filter(F.col("event_time").between(F.lit(first), F.lit(last))).select(*MESSAGE_KEY)
            once = once.join(there, list(MESSAGE_KEY), "left_anti")
    return once


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
