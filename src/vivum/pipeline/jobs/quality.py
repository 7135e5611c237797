"""What the gold jobs accept: rows of silver that make no sense go to a quarantine table with the reason.

Silver knows that a payload is of its type; only here is known that a price must be a number. The quarantine is made
anew with the gold tables, `gold/quarantine/<job>/<Type>`, and its rows are counted. None is dropped.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from vivum.pipeline.jobs.tables import Tables

Rules = tuple[tuple[str, str], ...]
"""Each: the reason, and when it holds, in SQL. The first that holds counts."""


def _no_number(name: str) -> str:
    return f"{name} is null or isnan({name}) or abs({name}) = double('infinity')"


_NAMED = ("no symbol", "symbol is null or symbol = ''")

RULES: dict[str, Rules] = {
    "MarketQuote": (
        _NAMED,
        ("bid or ask is no number", f"{_no_number('bid')} or {_no_number('ask')}"),
        ("the bid is above the ask", "bid > ask"),
    ),
    "MarketTrade": (
        _NAMED,
        ("the price is no number", _no_number("price")),
        ("the size is not above 0", "size is null or size <= 0"),
        ("no buyer or no seller", "buyer is null or buyer = '' or seller is null or seller = ''"),
    ),
    "MarketOrder": (
        _NAMED,
        ("no trader", "trader is null or trader = ''"),
        ("the price is no number", _no_number("price")),
        ("the size is not above 0", "size is null or size <= 0"),
        ("the side is neither buy nor sell", "side is null or side not in ('buy', 'sell')"),
        ("the action is none of enter, cancel, fill", "action is null or action not in ('enter', 'cancel', 'fill')"),
    ),
}


class Checked:
    """The silver tables of a job, each split into what it takes and what it refuses."""

    def __init__(self, spark: SparkSession, tables: Tables, job: str, dates: Sequence[str] | None = None) -> None:
        """Take the rows of these days alone, if they are given."""
        self._dates = dates
        self._spark = spark
        self._tables = tables
        self._job = job
        self._refused: dict[str, DataFrame] = {}

    def table(self, name: str) -> DataFrame | None:
        """Return the good rows of a silver table, with the fields of its values as columns; None if there is none."""
        if not self._tables.there("silver", name):
            return None
        rows = self._tables.read(self._spark, "silver", name).select(
            "topic", "sender", "incarnation", "sequence", "position", "sent_ns", "event_time", "is_late", "value.*"
        )
        if self._dates is not None:
            rows = rows.filter(F.to_date("event_time").cast("string").isin(list(self._dates)))
        judged = rows.withColumn("reason", reason(RULES[name]))
        self._refused[name] = judged.filter("reason is not null")
        return judged.filter("reason is null").drop("reason")

    def write_quarantine(self) -> int:
        """Write what was refused; return how many rows that is."""
        count = 0
        for name, rows in self._refused.items():
            table = self._tables.table("gold", "quarantine", self._job, name)
            kept = rows.withColumn("date", F.to_date("event_time")).coalesce(1)
            only = None if self._dates is None else ("date", self._dates)
            if self._dates is None or self._dates:
                table.replace(kept, partition_by=["date"], only=only)
            count += table.read(self._spark).count() if table.exists else 0
        return count


def reason(rules: Rules) -> Column:
    """Say what is wrong with a row; null if nothing is."""
    (first, *others) = rules
    made = F.when(F.expr(first[1]), first[0])
    return reduce(lambda so_far, rule: so_far.when(F.expr(rule[1]), rule[0]), others, made)
