"""Publishes what surveillance found to a topic, each alert once.

The table of alerts is made anew by each run, so what is new in it is found first: alerts that were not seen before are
added to `gold/new_alerts`, which only grows. A stream with a checkpoint goes from there to the sink, and so a run that
is killed at any point neither loses an alert nor publishes it twice. An alert is the same if pattern, symbol, who
and beginning are: it is published when it is first seen, and not again when it goes on.

    spark-submit alerts.py --tables DIR [--domain NAME]
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from vivum.core.errors import UsageError
from vivum.pipeline.jobs.program import TABLES, ProgramOption, run_program
from vivum.pipeline.jobs.running import check_writable
from vivum.pipeline.jobs.tables import Tables
from vivum.pipeline.market_messages import ALERTS_TOPIC, SurveillanceAlert
from vivum.pipeline.typed import spark_struct
from vivum.runtime.defaults import LOOPBACK
from vivum.wire.schema import describe_type

ALERT_KEY = ["pattern", "symbol", "who", "first_ns"]
"""What makes an alert the same alert."""

_TYPE = f"{SurveillanceAlert.__module__}:{SurveillanceAlert.__name__}"


def publish_alerts(spark: SparkSession, tables: Tables, options: Mapping[str, str]) -> dict[str, int]:
    """Publish the alerts that are new. `options` are those of the sink: domain, seeds and so on."""
    if not tables.there("gold", "alerts"):
        raise UsageError(f"{tables.folder} has no alerts; run `vivum pipeline run surveillance` first")
    check_writable(tables.folder)
    log = Path(tables.path("gold", "new_alerts"))
    log.mkdir(exist_ok=True)
    _add_new(spark, tables, log)
    query = (
        spark.readStream.schema(spark_struct(describe_type(SurveillanceAlert)))
        .parquet(str(log))
        .writeStream.format("vivum")
        # The job is over soon: its node says goodbye at once.
        .options(**{"topic": ALERTS_TOPIC, "type": _TYPE, "linger": "0", **options})
        .option("checkpointLocation", tables.path("checkpoints", "alerts"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return {"published": sum(each["numInputRows"] for each in query.recentProgress)}


def _add_new(spark: SparkSession, tables: Tables, log: Path) -> None:
    names = list(SurveillanceAlert.__struct_fields__)
    found = spark.read.parquet(tables.path("gold", "alerts")).select(*names).dropDuplicates(ALERT_KEY)
    files = sorted(log.glob("*.parquet"))
    if files:
        known = spark.read.parquet(*map(str, files)).select(*ALERT_KEY)
        found = found.join(known, ALERT_KEY, "left_anti").select(*names)
    making = tables.path("gold", ".new_alerts")
    found.coalesce(1).sortWithinPartitions("first_ns", "pattern").write.mode("overwrite").parquet(making)
    if spark.read.parquet(making).isEmpty():
        return
    (made,) = Path(making).glob("*.parquet")
    # One step: the file is there or not.
    os.replace(made, log / f"{len(files):08}.parquet")
    shutil.rmtree(making)


def _run(spark: SparkSession, given: Any) -> dict[str, int]:
    told = {"domain": given.domain, "interface": given.interface, "seeds": given.seeds}
    return publish_alerts(spark, Tables(given.tables), told)


if __name__ == "__main__":
    _joining = [
        ProgramOption("domain", "the domain", "default"),
        ProgramOption("interface", "the address of a network interface", LOOPBACK),
        ProgramOption("seeds", "where to ask for the domain, separated by commas", ""),
    ]
    sys.exit(run_program("alerts", _run, TABLES, *_joining))
