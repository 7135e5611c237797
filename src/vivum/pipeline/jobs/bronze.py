"""Bronze: every delivery of a log as Parquet, by date and topic.

Incremental and idempotent: Spark's checkpoint tells how far it is, and the file sink's own list tells which files
count, so a run that was killed leaves no row twice.

    spark-submit -m vivum.pipeline.jobs.bronze LOG TABLES
"""

import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from vivum.pipeline.jobs.running import check_writable, spark_job
from vivum.pipeline.jobs.tables import Tables
from vivum.pipeline.options import read_options
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
    with spark_job("vivum bronze", None) as _spark:
        sys.stdout.write(f"{bronze(_spark, sys.argv[1], Tables(sys.argv[2]))}\n")
