"""The screen: tells in one pass which groups are beyond doubt, so that the exact checks look only at the others.

Each task reads files of the trace as columns (`columns.py`) and sends them on by group, not record by record but as a
few large blocks for each task that judges: sends and events first, then deliveries and events, each writer's in its
order. What makes a group plain is in `plain.py`. Only the groups that have a doubt come back.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy
import pyarrow
import pyarrow.compute
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from vivum.pipeline.audit.columns import (
    CODES,
    DELIVERED,
    INSTALLED,
    D,
    G,
    K,
    P,
    TracePiece,
    W,
    packed,
    read_blocks,
    unpacked,
)
from vivum.pipeline.audit.plain import MEMBERS_BETWEEN, PlainGroups

JUDGED_AT_ONCE = 524_288
"""Records that are sorted and judged together. More is faster where there are many groups, and takes more memory."""

_SHARES_PER_CORE = 4
_BLOCKS = "share int, part int, w int, first bigint, data binary, members array<string>"
_SENDS, _DELIVERIES = 0, 1


def screened(spark: SparkSession, pieces: list[TracePiece]) -> DataFrame:
    """Return the groups that have doubts: `group`, and `doubts`, bits as in `plain.DOUBTS`."""
    shares = _SHARES_PER_CORE * max(1, spark.sparkContext.defaultParallelism)
    tasks = spark.range(0, len(pieces), 1, numPartitions=len(pieces))
    blocks = tasks.mapInArrow(_packing(pieces, shares), _BLOCKS)
    shared = blocks.repartitionById(shares, F.col("share")).sortWithinPartitions("part", "w", "first")
    return shared.mapInArrow(_judge, "group bigint, doubts int")


def _packing(pieces: list[TracePiece], shares: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def work(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for block, members in read_blocks(pieces[number]):
                    yield _shared_out(block, members, shares)

    return work


def _shared_out(block: Any, members: Any, shares: int) -> Any:
    """Cut a block by share and part: a row for each."""
    if len(members):
        # A view has no digest; there goes its place in `members`, which is found again in the cut blocks.
        block[D, block[K] == CODES[INSTALLED]] = numpy.arange(len(members))
        members = pyarrow.compute.binary_join(members, MEMBERS_BETWEEN).fill_null("")
    is_event = block[K] > CODES[DELIVERED]
    part = (block[K] == CODES[DELIVERED]).astype("int64")
    if is_event.any():
        # Events go into both parts: each is there twice, side by side.
        twice = numpy.repeat(numpy.arange(block.shape[1]), 1 + is_event)
        block, part = block[:, twice], part[twice]
        part[1:][twice[1:] == twice[:-1]] = _DELIVERIES
    keys = block[G] % shares * 2 + part
    order = numpy.argsort(keys.astype("uint16") if shares < 1 << 15 else keys, kind="stable")
    ordered, keys = block[:, order], keys[order]
    cuts = [0, *(numpy.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(keys)]
    rows = []
    for low, high in pairwise(cuts):
        mine = ordered[:, low:high]
        share, part_of = divmod(int(keys[low]), 2)
        views = mine[D, mine[K] == CODES[INSTALLED]] if part_of == _SENDS and len(members) else []
        listed = members.take(pyarrow.array(views, pyarrow.int64())).to_pylist() if len(views) else []
        rows.append((share, part_of, int(mine[W, 0]), int(mine[P, 0]), packed(mine), listed))
    columns = zip(*rows, strict=True)
    return pyarrow.RecordBatch.from_arrays(
        [pyarrow.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )


_ARROW = pyarrow.schema(
    [
        ("share", pyarrow.int32()),
        ("part", pyarrow.int32()),
        ("w", pyarrow.int32()),
        ("first", pyarrow.int64()),
        ("data", pyarrow.binary()),
        ("members", pyarrow.list_(pyarrow.string())),
    ]
)


def _judge(batches: Iterator[Any]) -> Iterator[Any]:
    """Judge the groups of one share."""
    groups = PlainGroups()
    held: list[Any] = []
    members: dict[tuple[int, int], str] = {}
    size = 0
    part_now = _SENDS

    def judge_held() -> None:
        nonlocal size
        if held:
            block = numpy.concatenate(held, axis=1) if len(held) > 1 else held[0]
            held.clear()
            size = 0
            if part_now == _SENDS:
                groups.take_sends(block, members)
                members.clear()
            else:
                groups.take_deliveries(block)

    for batch in batches:
        for row in range(len(batch)):
            part = batch.column("part")[row].as_py()
            if part != part_now or size >= JUDGED_AT_ONCE:
                judge_held()
            part_now = part
            block = unpacked(batch.column("data")[row].as_buffer())
            listed = batch.column("members")[row].as_py()
            if listed:
                views = block[:, block[K] == CODES[INSTALLED]]
                members.update(zip(zip(views[W].tolist(), views[P].tolist(), strict=True), listed, strict=True))
            held.append(block)
            size += block.shape[1]
    judge_held()
    found = groups.doubtful()
    yield pyarrow.RecordBatch.from_pydict(
        {
            "group": pyarrow.array(list(found), pyarrow.int64()),
            "doubts": pyarrow.array(list(found.values()), pyarrow.int32()),
        }
    )
