"""Gold, market: bars of each symbol by second and minute, with volume and spread.

Prices are those of trades; where a feed has only quotes, the middle between bid and ask. Inside a window, first and
last are by the exchange's global order if the topic has one (`position`), else by the time of sending.

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
from vivum.pipeline.jobs.tables import Tables
from vivum.pipeline.jobs.watermarks import reached_watermark_ms

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
    """Make the table of bars anew. Returns how many there are, and how many rows were put into quarantine."""
    checked = Checked(spark, tables, "market")
    quotes, trades = checked.table("MarketQuote"), checked.table("MarketTrade")
    if trades is not None:
        prices = trades
    elif quotes is not None:
        prices = quotes.withColumn("price", F.expr("(bid + ask) / 2"))
    else:
        raise UsageError(
            f"{tables.folder} has neither MarketTrade nor MarketQuote in silver; record a market feed first"
        )
    check_writable(tables.folder)
    path = tables.path("gold", "bars")
    used = [name for name, rows in (("MarketQuote", quotes), ("MarketTrade", trades)) if rows is not None]
    # A bar is made of both: it is final when both have come so far. One of which nothing came yet does not count.
    reached = [reached_watermark_ms(tables.silver_checkpoint(name)) for name in used]
    watermark_ms = min((each for each in reached if each), default=0)
    bars(prices, quotes, watermark_ms).repartition("width").write.mode("overwrite").partitionBy("width").parquet(path)
    return {"bars": spark.read.parquet(path).count(), "quarantined": checked.write_quarantine()}


if __name__ == "__main__":
    sys.exit(run_program("market", lambda spark, given: market(spark, Tables(given.tables)), TABLES))
