"""Causal order: the one check that is a walk through all records in their order, and not a table.

What a message depends on is known only when all records before it have been looked at, so one task does it, reading
the files as columns. The walk is compiled; without the compiled module the checker itself walks. Memory grows with the
sends and not with the deliveries.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy
import pyarrow
from pyspark.sql import DataFrame

from vivum.checkers.checker import VIOLATIONS_KEPT_MAX, describe
from vivum.pipeline.audit.columns import HALF, G, TracePiece, merged_blocks
from vivum.pipeline.audit.scope import EVERYTHING, Scope
from vivum.pipeline.audit.tables import SCHEMA, TraceTables, life_words

if TYPE_CHECKING:
    from vivum.pipeline.audit._causal_walk_twin import walk
else:
    try:
        from vivum.pipeline.audit._causal_walk import walk
    except ImportError:
        from vivum.pipeline.audit._causal_walk_twin import walk

_SHOWN = pyarrow.schema(
    [
        ("check", pyarrow.string()),
        ("what", pyarrow.string()),
        ("witnesses", pyarrow.list_(pyarrow.struct([("w", pyarrow.string()), ("p", pyarrow.int64())]))),
        ("at", pyarrow.int64()),
    ]
)


def causal(tables: TraceTables) -> DataFrame:
    """Find what was delivered after its dependants."""
    pieces, writers, scope = tables.pieces, tables.writers, tables.scope

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if len(batch):
                yield _verdict(*walk(_blocks(pieces, scope), len(writers) > 1), writers)

    return tables.spark.range(0, 1, 1, numPartitions=1).mapInArrow(work, SCHEMA)


def _blocks(pieces: list[TracePiece], scope: Scope) -> Iterator[Any]:
    for block in merged_blocks(pieces):
        yield block if scope == EVERYTHING else numpy.ascontiguousarray(block[:, scope.mask(block[G])])


def _verdict(count: int, found: list[Any], writers: list[str]) -> Any:
    assert len(found) <= VIOLATIONS_KEPT_MAX
    rows = []
    for dependent, late in found:
        what = (
            f"{life_words(late[2])} delivered {_message(late)} after {_message(dependent)}, "
            f"which was sent with knowledge of it"
        )
        witnesses = [{"w": writers[each[0]], "p": each[1]} for each in (dependent, late)]
        rows.append({"check": "causal", "what": what, "witnesses": witnesses, "at": late[1]})
    # Those that were not kept are still counted, as rows without witnesses.
    more = {"check": "causal", "what": "one more of the same kind", "witnesses": [], "at": 1 << 62}
    rows += [more] * (count - len(found))
    return pyarrow.RecordBatch.from_pylist(rows, schema=_SHOWN)


def _message(place: tuple[int, int, int, int, int, int]) -> str:
    _, _, _, group, sender, sequence = place
    return describe((group, *divmod(sender, HALF), sequence))
