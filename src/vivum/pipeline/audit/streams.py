"""Check no duplicate, gap-free FIFO and sender order: what each stay saw of each stream."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from vivum.core.ranges import RangeSet
from vivum.pipeline.audit.columns import LOST, SKIPPED
from vivum.pipeline.audit.tables import (
    SCHEMA,
    STREAM,
    TraceTables,
    life,
    life_column,
    life_words,
    message_words,
    rows_of,
    violations,
    witness,
)


def no_duplicate(tables: TraceTables) -> DataFrame:
    """Find messages that a stay delivered again. Only streams with late deliveries can have any."""
    late = tables.steps.filter("q <= top").select(*STREAM).distinct()
    order = Window.partitionBy(*STREAM, "q").orderBy("p")
    again = (
        tables.deliveries.join(late, list(STREAM), "left_semi")
        .withColumn("earlier", F.lag("p").over(order))
        .filter("earlier is not null")
    )
    what = F.concat(life_column("r"), F.lit(" delivered "), message_words(), F.lit(" twice"))
    return violations(again, "no_duplicate", what, witness("w", "earlier"), witness("w", "p"))


def fifo(tables: TraceTables) -> DataFrame:
    """Find late deliveries, unreported holes, and deliveries after their loss was reported or after leaving."""
    return _in_order(tables, "fifo", are_gaps_allowed=False)


def sender_order(tables: TraceTables) -> DataFrame:
    """Find the same, but allow holes."""
    return _in_order(tables, "sender_order", are_gaps_allowed=True)


def _in_order(tables: TraceTables, check: str, *, are_gaps_allowed: bool) -> DataFrame:
    nothing = F.lit(None).cast("long")
    odd = tables.steps.select(*STREAM, "w", "p", "q", nothing.alias("stop"), "top", F.lit("step").alias("kind"))
    if tables.kinds & {LOST, SKIPPED}:
        odd = odd.unionByName(_losses(tables)).unionByName(_after_losses(tables))
    # Odd steps are few, and are judged stream by stream.
    judge = _judge_stream(check, are_gaps_allowed)
    judged = odd.join(_tops(tables), [*STREAM, "top"], "left").groupBy(*STREAM).applyInArrow(judge, SCHEMA)
    return judged.unionByName(_after_leaving(tables, check))


def _losses(tables: TraceTables) -> DataFrame:
    """Find what was reported as lost or left out, with its stay. Reports after leaving do not count."""
    told = tables.judged.filter(F.col("kind").isin(LOST, SKIPPED)).select(
        F.col("group").alias("g"), life("node", "incarnation").alias("r"),
        life("sender", "sender_incarnation").alias("s"), "w", F.col("position").alias("p"),
        F.col("sequence").alias("q"), "stop", "kind",
    )  # fmt: skip
    return (
        tables.placed(told)
        .filter("not left")
        .select(*STREAM, "w", "p", "q", "stop", F.lit(None).cast("long").alias("top"), "kind")
    )


def _after_losses(tables: TraceTables) -> DataFrame:
    """Find deliveries of messages that the stay had reported as lost or left out before."""
    lost = _losses(tables).select(
        *STREAM, F.col("p").alias("lost_p"), F.col("q").alias("low"), F.col("stop").alias("high"), "kind"
    )
    return (
        tables.deliveries.join(lost, list(STREAM))
        .filter("q >= low and q < high and p > lost_p")
        .groupBy(*STREAM, "w", "p", "q")
        .agg(F.min("lost_p").alias("top"), F.min_by("kind", "lost_p").alias("kind"))
        .select(
            *STREAM,
            "w",
            "p",
            "q",
            F.lit(None).cast("long").alias("stop"),
            "top",
            F.concat(F.lit("after "), F.col("kind")).alias("kind"),
        )
    )


def _tops(tables: TraceTables) -> DataFrame:
    """Find where the highest number before each odd step was first delivered."""
    wanted = tables.steps.select(*STREAM, F.col("top").alias("q")).distinct()
    return (
        tables.deliveries.join(wanted, [*STREAM, "q"], "left_semi")
        .groupBy(*STREAM, F.col("q").alias("top"))
        .agg(F.min("p").alias("top_p"))
    )


def _after_leaving(tables: TraceTables, check: str) -> DataFrame:
    """Find the first delivery after each leave, if there is no join in between."""
    first = (
        tables.deliveries.filter("left")
        .groupBy("g", "r", "stay")
        .agg(F.min_by(F.struct("w", "p", "s", "q", "b"), "p").alias("x"))
        .select("g", "r", "x.*")
    )
    what = F.concat(life_column("r"), F.lit(" delivered "), message_words(), F.lit(" after it had left the group"))
    return violations(first, check, what, witness("w", "b"), witness("w", "p"))


def _judge_stream(check: str, are_gaps_allowed: bool) -> Callable[[Any], Any]:
    """Return a function that judges the odd steps in one stream of one stay, in the order of the records."""

    def judge(table: Any) -> Any:
        rows = sorted(rows_of(table), key=lambda row: row["p"])
        found = list(_stream_faults(rows, are_gaps_allowed))
        columns = [[fault[place] for fault in found] for place in range(3)]
        return pyarrow.table(
            {
                "check": pyarrow.array([check] * len(found), pyarrow.string()),
                "what": pyarrow.array(columns[0], pyarrow.string()),
                "witnesses": pyarrow.array(
                    columns[1], pyarrow.list_(pyarrow.struct([("w", pyarrow.string()), ("p", pyarrow.int64())]))
                ),
                "at": pyarrow.array(columns[2], pyarrow.int64()),
            }
        )

    return judge


_AFTER = {f"after {LOST}": "reported it as lost", f"after {SKIPPED}": "left it out as a repetition"}


def _stream_faults(
    rows: list[dict[str, Any]], are_gaps_allowed: bool
) -> Iterator[tuple[str, list[dict[str, Any]], int]]:
    after = {row["p"]: row["top"] for row in rows if row["kind"] in _AFTER}
    lost = RangeSet([(row["q"], row["stop"]) for row in rows if row["kind"] in (LOST, SKIPPED)])
    late = RangeSet()
    for row in rows:
        if row["kind"] == "step" and row["q"] <= row["top"]:
            late.add(row["q"])
    for row in rows:
        who = life_words(row["r"])
        message = f"message {row['q']} of {life_words(row['s'])} in group {row['g']}"
        pair = [{"w": row["w"], "p": row["top_p"]}, {"w": row["w"], "p": row["p"]}]
        if row["kind"] in _AFTER:
            told = [{"w": row["w"], "p": row["top"]}, pair[1]]
            yield f"{who} delivered {message} although it had {_AFTER[row['kind']]}", told, row["p"]
        elif row["kind"] == "step" and row["q"] <= row["top"]:
            if row["p"] not in after:
                yield f"{who} delivered {message} after {row['top']} of the same sender", pair, row["p"]
        elif row["kind"] == "step" and not are_gaps_allowed:
            missing = RangeSet([(row["top"] + 1, row["q"])])
            missing.difference_update(lost)
            missing.difference_update(late)
            if missing:
                yield (
                    f"{who} skipped {missing.count()} messages of {life_words(row['s'])} in group {row['g']}, "
                    f"the first of them {missing.first()}, and had not reported them as lost",
                    pair,
                    row["p"],
                )
