"""Gold, market: bars of each symbol by second and minute, with volume and spread.

Prices are those of trades; where a feed has only quotes, the middle between bid and ask. Inside a window, first and
last are by the exchange's global order if the topic has one (`position`), else by the time of sending.

A run makes the bars of those days anew of which silver has new rows, late ones too, or whose bars were not final yet,
and puts them into the place of the former ones in one commit.

A bar is final (`is_final`) when silver's watermark has passed the end of its window: only rows that come late change it
then, and `late_events` tells how many of its events were. Until then it may be of a part of its window.

    spark-submit market.py --tables DIR
"""

import sys
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from vivum.core.errors import UsageError
from vivum.pipeline.jobs.program import TABLES, run_program
from vivum.pipeline.jobs.quality import Checked
from vivum.pipeline.jobs.running import check_writable
from vivum.pipeline.jobs.silver import WATERMARK
from vivum.pipeline.jobs.tables import Tables

WINDOWS = {"1s": "1 second", "1min": "1 minute"}


def in_order() -> Column:
    """Put messages in the order that everybody saw."""
    return F.struct(
        F.coalesce(F.col("position"), F.col("sent_ns")), F.col("sent_ns"), F.col("sender"), F.col("sequence")
    )


def bars(prices: DataFrame, quotes: DataFrame | None, watermark_ms: int = 0) -> DataFrame:
    """Make bars from rows with `symbol`, `price` and `size`, and spreads from quotes, for each width of window.

    `watermark_ms` is how far event time has come, in ms since 1970.
    """
    made = []
    passed = F.timestamp_millis(F.lit(watermark_ms))
    for name, width in WINDOWS.items():
        window = F.window("event_time", width)
        made_bars = (
            prices.withColumn("at", in_order())
            .groupBy("symbol", window.alias("window"))
            .agg(
                F.min_by("price", "at").alias("open"),
                F.max("price").alias("high"),
                F.min("price").alias("low"),
                F.max_by("price", "at").alias("close"),
                F.sum("size").alias("volume"),
                F.count("*").alias("events"),
                F.count_if("is_late").alias("late_events"),
            )
        )
        if quotes is None:
            joined = made_bars.withColumn("spread", F.lit(None).cast("double"))
        else:
            spreads = quotes.groupBy("symbol", window.alias("window")).agg(F.avg(F.expr("ask - bid")).alias("spread"))
            joined = made_bars.join(spreads, ["symbol", "window"], "left")
        made.append(joined.select(
            F.lit(name).alias("width"), "symbol", F.col("window.start").alias("start"), "open", "high", "low", "close",
            "volume", "events", "late_events", "spread", (F.col("window.end") <= passed).alias("is_final"),
        ))  # fmt: skip
    return reduce(DataFrame.unionByName, made)


def market(spark: SparkSession, tables: Tables) -> dict[str, int]:
    """Make the bars of the days that changed. Returns how many bars there are, and how many rows were refused."""
    used = [name for name in ("MarketQuote", "MarketTrade") if tables.there("silver", name)]
    if not used:
        raise UsageError(
            f"{tables.folder} has neither MarketTrade nor MarketQuote in silver; record a market feed first"
        )
    check_writable(tables.folder)
    gold = tables.table("gold", "bars")
    versions = {name: tables.table("silver", name).version() for name in used}
    dates = _changed(spark, tables, versions)
    checked = Checked(spark, tables, "market", dates)
    quotes, trades = checked.table("MarketQuote"), checked.table("MarketTrade")
    prices = trades
    if prices is None:
        assert quotes is not None
        prices = quotes.withColumn("price", F.expr("(bid + ask) / 2"))
    # A bar is made of both: it is final when both have come so far. One of which nothing came yet does not count.
    reached = [tables.table("silver", name).progress(WATERMARK, 0) for name in used]
    watermark_ms = min((each for each in reached if each), default=0)
    made = bars(prices, quotes, watermark_ms).withColumn("date", F.to_date("start")).coalesce(1)
    if dates:
        gold.replace(made, partition_by=["date"], only=("date", dates), progress=versions)
    return {"bars": gold.read(spark).count(), "quarantined": checked.write_quarantine()}


def _changed(spark: SparkSession, tables: Tables, versions: dict[str, int]) -> list[str]:
    """List the days of which silver has new rows, and those that had bars that were not final."""
    gold = tables.table("gold", "bars")
    parts = [
        tables.table("silver", name)
        .added(spark, gold.progress(name), version)
        .select(F.to_date("event_time").cast("string").alias("date"))
        for name, version in versions.items()
    ]
    if gold.exists:
        parts.append(gold.read(spark).filter("not is_final").select(F.col("date").cast("string")))
    return sorted(row.date for row in reduce(DataFrame.unionByName, parts).distinct().collect())


if __name__ == "__main__":
    sys.exit(run_program("market", lambda spark, given: market(spark, Tables(given.tables)), TABLES))
