"""Bronze: every delivery of a log as Parquet, by date and topic.

Incremental and idempotent: Spark's checkpoint tells how far it is, and the file sink's own list tells which files
count, so a run that was killed leaves no row twice.

    spark-submit bronze.py --log DIR --tables DIR
"""

import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from vivum.core.topic_names import EVERY_TOPIC
from vivum.pipeline.jobs.program import TABLES, ProgramOption, run_program
from vivum.pipeline.jobs.running import check_writable
from vivum.pipeline.jobs.tables import Tables
from vivum.pipeline.source.options import read_options
from vivum.storage.topic_types import TYPES_FILE

ROWS_PER_STEP = 5_000_000
"""Rows of one micro-batch: bounds memory, and what is done again after a crash."""


def bronze(spark: SparkSession, log: str, tables: Tables, topics: str = "/**") -> dict[str, int]:
    """Take what is new in the log. Returns how many rows that was."""
    read_options({"path": log, "topics": topics})
    check_writable(tables.folder)
    source = spark.readStream.format("vivum").options(topics=topics, maxRowsPerTrigger=str(ROWS_PER_STEP)).load(log)
    date = F.to_date(F.timestamp_micros(F.expr("delivered_ns div 1000")))
    query = (
        source.withColumn("date", date)
        .repartition("date", "topic")
        .writeStream.format("parquet")
        .partitionBy("date", "topic")
        .option("checkpointLocation", tables.path("checkpoints", "bronze"))
        .trigger(availableNow=True)
        .start(tables.path("bronze", "deliveries"))
    )
    query.awaitTermination()
    types = Path(log) / TYPES_FILE
    if types.exists():
        shutil.copyfile(types, tables.path("bronze", TYPES_FILE))
    return {"rows": sum(each["numInputRows"] for each in query.recentProgress)}


if __name__ == "__main__":
    _log = ProgramOption("log", "the folder that `vivum record` wrote")
    _topics = ProgramOption("topics", "which topics", EVERY_TOPIC)
    sys.exit(
        run_program(
            "bronze", lambda spark, given: bronze(spark, given.log, Tables(given.tables), given.topics), _log, TABLES,
            _topics,
        )
    )  # fmt: skip
