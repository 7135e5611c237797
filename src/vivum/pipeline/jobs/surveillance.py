"""Gold, surveillance: patterns that the commission behind an exchange looks for (seed 002: the feeds of the New York
exchange that the commission archives for enforcement), over the one order in which everybody saw the market.

- `wash_trade`: buyer and seller are one, or two trade the same size back to each other within `WASH_S`.
- `quote_stuffing`: a trader enters and cancels `STUFFING_ORDERS` or more orders of a symbol within a second, and hardly
  any of them is filled.
- `layering`: a trader has `LAYERS` or more orders at different prices on one side, is filled on the other, and cancels
  them within `LAYERING_S`.
- `front_running`: the house of a firm enters an order at most `FRONT_RUNNING_S` before a large client order of the same
  firm, symbol and side.

    spark-submit surveillance.py --tables DIR
"""

import sys
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from vivum.core.errors import UsageError
from vivum.pipeline.jobs.program import TABLES, run_program
from vivum.pipeline.jobs.quality import Checked
from vivum.pipeline.jobs.running import check_writable
from vivum.pipeline.jobs.tables import Tables

WASH_S = 60
STUFFING_ORDERS = 20
STUFFING_FILLED_MAX = 0.05
LAYERS = 3
LAYERING_S = 5
FRONT_RUNNING_S = 2
LARGE = 10
"""A client order is large if it is this many times the median order of its symbol."""

_NS = 1_000_000_000


def _alert(rows: DataFrame, pattern: str, who: str | Column, first: str, last: str, evidence: Column) -> DataFrame:
    return rows.select(
        F.lit(pattern).alias("pattern"),
        "symbol",
        (F.col(who) if isinstance(who, str) else who).alias("who"),
        F.col(first).alias("first_ns"),
        F.col(last).alias("last_ns"),
        evidence.alias("evidence"),
    )


def wash_trades(trades: DataFrame) -> DataFrame:
    """Find trades that change no owner."""
    own = _alert(
        trades.filter("buyer = seller"), "wash_trade", "buyer", "sent_ns", "sent_ns",
        F.format_string("bought %d at %.4f from itself", "size", "price"),
    )  # fmt: skip
    there = trades.filter("buyer <> seller").select("symbol", "size", "buyer", "seller", "sent_ns", "price")
    back = there.select(
        "symbol", "size", F.col("buyer").alias("seller"), F.col("seller").alias("buyer"),
        F.col("sent_ns").alias("back_ns"),
    )  # fmt: skip
    pairs = there.join(back, ["symbol", "size", "buyer", "seller"]).filter(
        F.col("back_ns").between(F.col("sent_ns") + 1, F.col("sent_ns") + WASH_S * _NS)
    )
    round_trip = _alert(
        pairs, "wash_trade", F.concat_ws(" and ", "buyer", "seller"), "sent_ns", "back_ns",
        F.format_string("traded %d back to each other", "size"),
    )  # fmt: skip
    return own.unionByName(round_trip)


def quote_stuffing(orders: DataFrame) -> DataFrame:
    """Find traders that flood a symbol with orders that they do not mean."""
    second = F.expr(f"sent_ns div {_NS}")
    counted = orders.groupBy("symbol", "trader", second.alias("second")).agg(
        F.count(F.when(F.col("action") == "enter", 1)).alias("entered"),
        F.count(F.when(F.col("action") == "cancel", 1)).alias("cancelled"),
        F.count(F.when(F.col("action") == "fill", 1)).alias("filled"),
        F.min("sent_ns").alias("first_ns"),
        F.max("sent_ns").alias("last_ns"),
    )
    flooding = counted.filter(
        f"entered >= {STUFFING_ORDERS} and cancelled >= {STUFFING_ORDERS} * 0.9 "
        f"and filled <= entered * {STUFFING_FILLED_MAX}"
    )
    words = F.format_string(
        "entered %d and cancelled %d orders in a second, %d filled", "entered", "cancelled", "filled"
    )
    return _alert(flooding, "quote_stuffing", "trader", "first_ns", "last_ns", words)


def layering(orders: DataFrame) -> DataFrame:
    """Find traders that show size on one side to trade on the other."""
    ends = orders.filter("action = 'cancel'").groupBy("order_id").agg(F.min("sent_ns").alias("cancel_ns"))
    shown = (
        orders.filter("action = 'enter'")
        .select("order_id", "symbol", "trader", "side", "price", F.col("sent_ns").alias("enter_ns"))
        .join(ends, "order_id")
    )
    fills = orders.filter("action = 'fill'").select(
        "symbol", "trader", F.col("side").alias("fill_side"), F.col("sent_ns").alias("fill_ns"),
        F.col("order_id").alias("fill_id"),
    )  # fmt: skip
    around = shown.join(fills, ["symbol", "trader"]).filter(
        (F.col("side") != F.col("fill_side"))
        & F.col("fill_ns").between(F.col("enter_ns"), F.col("cancel_ns"))
        & (F.col("cancel_ns") - F.col("fill_ns") <= LAYERING_S * _NS)
    )
    layers = (
        around.groupBy("symbol", "trader", "side", "fill_id")
        .agg(
            F.countDistinct("price").alias("layers"),
            F.min("enter_ns").alias("first_ns"),
            F.max("cancel_ns").alias("last_ns"),
        )
        .filter(F.col("layers") >= LAYERS)
    )
    words = F.format_string("%d layers on the %s side, filled on the other, then cancelled", "layers", "side")
    return _alert(layers, "layering", "trader", "first_ns", "last_ns", words)


def front_running(orders: DataFrame) -> DataFrame:
    """Find houses that go before their clients."""
    entered = orders.filter("action = 'enter'")
    usual = entered.groupBy("symbol").agg(F.percentile_approx("size", 0.5).alias("usual"))
    large = (
        entered.filter("capacity = 'client'")
        .join(F.broadcast(usual), "symbol")
        .filter(F.col("size") >= F.col("usual") * LARGE)
        .select("symbol", "firm", "side", F.col("size").alias("client_size"), F.col("sent_ns").alias("client_ns"))
    )
    house = entered.filter("capacity = 'house'").select("symbol", "firm", "side", "trader", "size", "sent_ns")
    before = house.join(large, ["symbol", "firm", "side"]).filter(
        F.col("client_ns").between(F.col("sent_ns") + 1, F.col("sent_ns") + FRONT_RUNNING_S * _NS)
    )
    words = F.format_string(
        "entered a %s of %d for the house before a client's %d at %s", "side", "size", "client_size", "firm"
    )
    return _alert(before, "front_running", "trader", "sent_ns", "client_ns", words)


def surveillance(spark: SparkSession, tables: Tables) -> dict[str, Any]:
    """Make the table of alerts anew. Returns how many there are of each pattern, and how many rows were refused."""
    checked = Checked(spark, tables, "surveillance")
    trades, orders = checked.table("MarketTrade"), checked.table("MarketOrder")
    found: list[DataFrame] = []
    if trades is not None:
        found.append(wash_trades(trades))
    if orders is not None:
        found += [quote_stuffing(orders), layering(orders), front_running(orders)]
    if not found:
        raise UsageError(
            f"{tables.folder} has neither MarketTrade nor MarketOrder in silver; record a market feed first"
        )
    check_writable(tables.folder)
    table = tables.table("gold", "alerts")
    table.replace(reduce(DataFrame.unionByName, found).coalesce(1))
    counts = table.read(spark).groupBy("pattern").count().collect()
    return {"alerts": {row.pattern: row["count"] for row in counts}, "quarantined": checked.write_quarantine()}


if __name__ == "__main__":
    sys.exit(run_program("surveillance", lambda spark, given: surveillance(spark, Tables(given.tables)), TABLES))
