"""Gold at a glance: bars and alerts straight from the log of a market that is still open.

The tables of bronze and silver are for keeping; making them takes longer than somebody who watches wants to wait. Here
each round reads the typed rows of the log, leaves out what was recorded twice, and makes bars and alerts with the same
functions as the gold jobs. What was not there in the round before is new: new alerts go to a topic by the sink, once.
"""

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from vivum.pipeline.jobs.alerts import ALERT_KEY
from vivum.pipeline.jobs.market import bars
from vivum.pipeline.jobs.surveillance import front_running, layering, quote_stuffing, wash_trades
from vivum.pipeline.jobs.tables import MESSAGE_KEY, Tables
from vivum.pipeline.market_messages import ALERTS_TOPIC, SurveillanceAlert

_ALERT_TYPE = f"{SurveillanceAlert.__module__}:{SurveillanceAlert.__name__}"


class Glance:
    """Looks at a log again and again."""

    def __init__(self, spark: SparkSession, log: str, tables: Tables, topics: Mapping[str, str]) -> None:
        """Prepare. `topics` has the patterns of the topics of `quotes`, `trades` and `orders`."""
        self.rounds = 0
        self._spark = spark
        self._log = log
        self._tables = tables
        self._topics = topics
        self.refused = 0
        """Messages of the last round that are not of their type, so they are in no bar and no alert."""

        self._kept: list[DataFrame] = []
        self._seen: list[Observation] = []

    def _rows(self, kind: str) -> DataFrame:
        """Read messages of one type, each once, with their fields as columns."""
        source = self._spark.read.format("vivum").options(topics=self._topics[kind], typed="true").load(self._log)
        # Nothing is late where all is read anew.
        times = [F.timestamp_micros(F.expr("sent_ns div 1000")).alias("event_time"), F.lit(False).alias("is_late")]
        seen = Observation()
        self._seen.append(seen)
        rows = (
            source.observe(seen, F.count_if(F.col("refused").isNotNull()).alias("refused"))
            .filter("refused is null")
            .dropDuplicates(list(MESSAGE_KEY))
            .select("topic", "sender", "incarnation", "sequence", "position", "sent_ns", *times, "value.*")
            .persist()
        )
        self._kept.append(rows)
        return rows

    def bars(self, show: int) -> tuple[int, int, list[Any]]:
        """Begin a round: make bars of all trades so far. Returns how many, of how many trades, and the latest few.

        The first round leaves the spreads out: with them, the first bars would take half as long again.
        """
        self.rounds += 1
        self._trades = self._rows("trades")
        made = bars(self._trades, self._rows("quotes") if self.rounds > 1 else None).persist()
        self._kept.append(made)
        latest = made.filter("width = '1s'").orderBy(F.desc("start"), F.desc("volume")).limit(show).collect()
        (counts,) = made.agg(
            F.count("*"), F.coalesce(F.sum(F.when(F.expr("width = '1s'"), F.col("events"))), F.lit(0))
        ).collect()
        return counts[0], counts[1], latest

    def publish_new(self, options: Mapping[str, str]) -> int:
        """End the round: publish the alerts that are new, with these options of the sink. Returns how many.

        As a batch, whose node leaves at once and so completes its trace; `alerts` has the way that outlives crashes.
        """
        orders = self._rows("orders")
        every = [wash_trades(self._trades), quote_stuffing(orders), layering(orders), front_running(orders)]
        found = reduce(DataFrame.unionByName, every).dropDuplicates(ALERT_KEY)
        known = self._tables.path("gold", "glance")
        if any(Path(known).glob("round=*")):
            found = found.join(self._spark.read.parquet(known).select(*ALERT_KEY), ALERT_KEY, "left_anti")
        # Written down before they are published: a table that is asked twice could give two answers.
        path = self._tables.path("gold", "glance", f"round={self.rounds}")
        found.select(*SurveillanceAlert.__struct_fields__).coalesce(1).write.parquet(path)
        new = self._spark.read.parquet(path)
        count = new.count()
        if count:
            new.write.format("vivum").mode("append").options(topic=ALERTS_TOPIC, type=_ALERT_TYPE, **options).save()
        self._forget()
        return count

    def _forget(self) -> None:
        self.refused = sum(each.get["refused"] for each in self._seen)
        self._seen.clear()
        for each in self._kept:
            each.unpersist()
        self._kept.clear()
