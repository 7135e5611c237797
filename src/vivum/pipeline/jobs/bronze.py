"""Bronze: every delivery of a log, by date, the rows of a topic beside each other.

Incremental and idempotent: Spark's checkpoint tells how far it is, and each batch is one commit that carries its
number, so a run that was killed leaves no row twice.

    spark-submit bronze.py --log DIR --tables DIR
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from vivum.core.topic_names import EVERY_TOPIC
from vivum.pipeline.jobs.program import TABLES, ProgramOption, run_program
from vivum.pipeline.jobs.running import check_writable
from vivum.pipeline.jobs.tables import Tables
from vivum.pipeline.source.options import read_options
from vivum.storage.errors import StorageError
from vivum.storage.topic_types import TopicTypes

ROWS_PER_STEP = 5_000_000
"""Rows of one micro-batch: bounds memory, and what is done again after a crash."""


def bronze(spark: SparkSession, log: str, tables: Tables, topics: str = "/**") -> dict[str, int]:
    """Take what is new in the log. Returns how many rows that was."""
    directories = read_options({"path": log, "topics": topics}).directories
    check_writable(tables.folder)
    source = spark.readStream.format("vivum").options(topics=topics, maxRowsPerTrigger=str(ROWS_PER_STEP)).load(log)
    date = F.to_date(F.timestamp_micros(F.expr("delivered_ns div 1000")))
    table, checkpoint = tables.table("bronze", "deliveries"), tables.path("checkpoints", "bronze")

    def write(batch: DataFrame, number: int) -> None:
        done = f"bronze {query_id(checkpoint)}"
        if table.progress(done) < number:
            rows = batch.withColumn("date", date).sortWithinPartitions("topic", "offset")
            table.append(rows, partition_by=["date"], progress={done: number})

    query = (
        source.writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    joined_types(directories).write(Path(tables.path("bronze")))
    return {"rows": sum(each["numInputRows"] for each in query.recentProgress)}


def joined_types(directories: Iterable[str]) -> TopicTypes:
    """Join what is known of the topics of several logs."""
    found = TopicTypes()
    for each in directories:
        known = TopicTypes.read(Path(each))
        for topic, description in known.types.items():
            found.note([topic])
            if description is not None:
                found.declare(topic, description)
        found.headed |= known.headed
        found.guarantees |= known.guarantees
    return found


def query_id(checkpoint: str) -> str:
    """Return the id that a streaming query has for ever, from its checkpoint."""
    try:
        return str(json.loads((Path(checkpoint) / "metadata").read_text().splitlines()[0])["id"])
    except (OSError, ValueError, LookupError) as error:
        raise StorageError(f"cannot read the id of the query in {checkpoint}: {error}") from error


if __name__ == "__main__":
    _log = ProgramOption("log", "the folder that `vivum record` wrote")
    _topics = ProgramOption("topics", "which topics", EVERY_TOPIC)
    sys.exit(
        run_program(
            "bronze", lambda spark, given: bronze(spark, given.log, Tables(given.tables), given.topics), _log, TABLES,
            _topics,
        )
    )  # fmt: skip
