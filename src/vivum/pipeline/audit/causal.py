"""Causal order: the one check that is a walk through all records in their order, and not a table.

What a message depends on is known only when all records before it have been looked at, so one task does it, with the
checker of `vivum.checkers.causal` itself. Only sends, deliveries and joins go to it, with the few columns that count.
Memory grows with the sends and not with the deliveries.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from vivum.checkers.causal import Causal
from vivum.checkers.checker import VIOLATIONS_KEPT_MAX
from vivum.checkers.clocks import in_causal_order
from vivum.observe.trace import GroupJoined, MessageDelivered, MessageSent, TraceRecord
from vivum.pipeline.audit.tables import DELIVERED, JOINED, SCHEMA, SENT, TraceTables

_FIELDS = ("node", "incarnation", "group", "sender", "sender_incarnation", "sequence")


def causal(tables: TraceTables) -> DataFrame:
    """Find what was delivered after its dependants."""
    rows = tables.judged.filter(F.col("kind").isin(SENT, DELIVERED, JOINED)).select(
        "w", "position", "kind", "time_ns", *_FIELDS
    )
    several = len(tables.writers) > 1
    ordered = rows.repartition(1).sortWithinPartitions(*(("time_ns", "w", "position") if several else ("position",)))
    walk = _walk_merged if several else _walk
    return ordered.mapInArrow(walk, SCHEMA)


def _walk(batches: Iterator[Any]) -> Iterator[Any]:
    yield _verdict(_records(batches))


def _walk_merged(batches: Iterator[Any]) -> Iterator[Any]:
    yield _verdict(in_causal_order(_records(batches)))


def _records(batches: Iterator[Any]) -> Iterator[TraceRecord]:
    """Make records again. Time and digest do not count; in their place go writer and position, for the witnesses."""
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("kind", "w", "position", *_FIELDS)]
        for kind, w, position, node, incarnation, group, sender, sender_incarnation, sequence in zip(
            *columns, strict=True
        ):
            if kind == DELIVERED:
                yield MessageDelivered(
                    position, node, incarnation, group, sender, sender_incarnation, sequence, 0, w, 0
                )
            elif kind == SENT:
                yield MessageSent(position, node, incarnation, group, sequence, 0, w)
            else:
                yield GroupJoined(position, node, incarnation, group)


def _verdict(records: Iterator[TraceRecord]) -> Any:
    checker = Causal()
    deliver, send, join = checker.on_message_delivered, checker.on_message_sent, checker.on_group_joined
    # Told apart by hand: the lookup of a handler would cost as much again as the walk.
    for record in records:
        if type(record) is MessageDelivered:
            deliver(record)
        elif type(record) is MessageSent:
            send(record)
        elif type(record) is GroupJoined:
            join(record)
    found = checker.finish()
    # Those that were not kept are still counted, as rows without witnesses.
    more = checker.violation_count - len(found)
    whats = [each.what for each in found] + ["one more of the same kind"] * more
    shown = [
        [{"w": record.digest, "p": record.time_ns} for record in each.witnesses if isinstance(record, MessageDelivered)]
        for each in found
    ]
    pair = pyarrow.struct([("w", pyarrow.string()), ("p", pyarrow.int64())])
    at = [each[-1]["p"] for each in shown] + [1 << 62] * more
    assert len(found) <= VIOLATIONS_KEPT_MAX
    return pyarrow.RecordBatch.from_arrays(
        [
            pyarrow.array(["causal"] * len(whats), pyarrow.string()),
            pyarrow.array(whats, pyarrow.string()),
            pyarrow.array(shown + [[] for _ in range(more)], pyarrow.list_(pair)),
            pyarrow.array(at, pyarrow.int64()),
        ],
        names=["check", "what", "witnesses", "at"],
    )
