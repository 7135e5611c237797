"""Key-value stores: every key is linearizable.

A key is judged by the same search as in `vivum.checkers.kv`, in a worker: keys are independent, so they are spread over
all cores. Operations are put in order by their times, so all clients of a trace must share a clock.
"""

from typing import Any

import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from vivum.checkers.kv.register import RegisterOperation, judge_register
from vivum.pipeline.audit.tables import SCHEMA, TraceTables, rows_of

ISSUED, ANSWERED = "key_operation_issued", "key_operation_answered"


def key_linearizable(tables: TraceTables) -> DataFrame:
    """Find keys whose operations no order explains. Witnesses: a write, and the operation that nothing explains."""
    number = ["group", "client", "sequence"]
    issued = tables.operations.filter(F.col("kind") == ISSUED).select(
        *number, "w", "operation", "key", "value", "expected",
        F.col("position").alias("p"), F.col("time_ns").alias("called"),
    )  # fmt: skip
    answered = tables.operations.filter(F.col("kind") == ANSWERED).select(
        *number, "outcome", F.col("value").alias("seen"), F.col("time_ns").alias("answered")
    )
    return issued.join(answered, number, "left").groupBy("group", "key").applyInArrow(_judge_key, SCHEMA)


def _judge_key(table: Any) -> Any:
    """Judge the operations of one key."""
    rows = rows_of(table)
    places = {
        RegisterOperation(
            row["operation"],
            row["called"],
            row["answered"],
            row["value"],
            row["expected"],
            row["seen"] or 0,
            row["answered"] is None or row["outcome"] == "done",
        ): {"w": row["w"], "p": row["p"]}
        for row in rows
    }
    verdict = judge_register(places)
    what, witnesses = [], []
    if verdict.what:
        what.append(f"key {rows[0]['key']:x} of group {rows[0]['group']}: {verdict.what}")
        # A search that was not decided names none.
        witnesses.append([places[each] for each in verdict.operations] or [{"w": rows[0]["w"], "p": rows[0]["p"]}])
    pair = pyarrow.struct([("w", pyarrow.string()), ("p", pyarrow.int64())])
    return pyarrow.table(
        {
            "check": pyarrow.array(["key_linearizable"] * len(what), pyarrow.string()),
            "what": pyarrow.array(what, pyarrow.string()),
            "witnesses": pyarrow.array(witnesses, pyarrow.list_(pair)),
            "at": pyarrow.array([each[-1]["p"] for each in witnesses], pyarrow.int64()),
        }
    )
