"""Total order: there is one order of a group's messages with which the deliveries of every stay agree.

How it is found without looking at all deliveries together. The stay with the most deliveries of a group gives each
of its messages a rank. Two messages that follow each other in any stay make an edge; stays that agree make the same
edges, so there are about as many edges as messages. If every edge leads from a lower to a higher rank, there is one
order and the group is done. Only what lies on or beside an edge that does not (it goes down, or a message on it has no
rank) is looked at exactly, with the same search for cycles that the checker uses. That is no guess: a path through what
was left out uses only edges that go up, and the order of the ranks has that path already.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from vivum.checkers.cycles import find_cycles
from vivum.pipeline.audit.creation import MESSAGE
from vivum.pipeline.audit.tables import SCHEMA, TraceTables, life_words, rows_of


def total_order(tables: TraceTables) -> DataFrame:
    """Find stays that disagree on the order."""
    deliveries = tables.deliveries
    longest = (
        deliveries.groupBy("g", "r", "stay")
        .count()
        .groupBy("g")
        .agg(F.max_by(F.struct("r", "stay"), "count").alias("x"))
    ).select("g", "x.*")
    rank = deliveries.join(F.broadcast(longest), ["g", "r", "stay"]).groupBy(*MESSAGE).agg(F.min("p").alias("rank"))
    edges = (
        deliveries.filter("before_q is not null and (before_q <> q or before_s <> s)")
        .groupBy(*MESSAGE, "before_s", "before_q")
        .agg(F.lit(1).alias("one"))
    )
    before = rank.select(
        "g", F.col("s").alias("before_s"), F.col("q").alias("before_q"), F.col("rank").alias("before_rank")
    )
    unsure = (
        edges.join(rank, list(MESSAGE), "left")
        .join(before, ["g", "before_s", "before_q"], "left")
        .filter("rank is null or before_rank is null or before_rank >= rank")
    )
    ends = unsure.select(*MESSAGE).unionByName(
        unsure.select("g", F.col("before_s").alias("s"), F.col("before_q").alias("q"))
    )
    suspects = deliveries.select("w", "p", "r", "stay", *MESSAGE).join(ends.distinct(), list(MESSAGE), "left_semi")
    return suspects.groupBy("g").applyInArrow(_judge_group, SCHEMA)


def _judge_group(table: Any) -> Any:
    """Search the suspects of one group for cycles."""
    found = list(_cycles(rows_of(table)))
    pair = pyarrow.struct([("w", pyarrow.string()), ("p", pyarrow.int64())])
    return pyarrow.table(
        {
            "check": pyarrow.array(["total_order"] * len(found), pyarrow.string()),
            "what": pyarrow.array([each[0] for each in found], pyarrow.string()),
            "witnesses": pyarrow.array([each[1] for each in found], pyarrow.list_(pair)),
            "at": pyarrow.array([each[1][-1]["p"] for each in found], pyarrow.int64()),
        }
    )


def _cycles(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    numbers: dict[tuple[int, int], int] = {}
    stays: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["p"]):
        numbers.setdefault((row["s"], row["q"]), len(numbers))
        stays.setdefault((row["r"], row["stay"]), []).append(row)
    orders = [[numbers[row["s"], row["q"]] for row in stay] for stay in stays.values()]
    each_stay = list(stays.values())
    for cycle in find_cycles(orders, len(numbers)):
        words, witnesses = [], []
        for hop in cycle:
            earlier, later = each_stay[hop.order][hop.start], each_stay[hop.order][hop.stop]
            witnesses += [{"w": row["w"], "p": row["p"]} for row in (earlier, later)]
            words.append(
                f"{life_words(earlier['r'])} delivered message {earlier['q']} of {life_words(earlier['s'])} in group "
                f"{earlier['g']} before {later['q']} of {life_words(later['s'])}"
            )
        yield "no one order fits: " + ", ".join(words), witnesses
