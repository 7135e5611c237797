"""Recognise rows that were published: a number for each row, and what of one batch another one lacks.

A row is known by topic and payload, whatever task it came in and at which place: Spark may compute a batch that it runs
again in another order.
"""

from typing import Any
from zlib import crc32

import numpy

ALL_BITS = (1 << 64) - 1


def row_digests(batch: Any) -> Any:
    """Return a number for each row of a staged batch."""
    from xxhash import xxh3_64_intdigest

    seeds: dict[str, int] = {}
    numbers = [
        xxh3_64_intdigest(payload, seeds.get(topic) or seeds.setdefault(topic, crc32(topic.encode()) or 1))
        for topic, payload in zip(batch.column("topic").to_pylist(), batch.column("payload").to_pylist(), strict=True)
    ]
    return numpy.array(numbers, "uint64")


def total_of(digests: Any) -> int:
    """Return one number for rows in any order."""
    return int(digests.sum(dtype="uint64")) & ALL_BITS


def rest_of(new: Any, old: Any) -> Any | None:
    """Mark the rows of `new` that `old` lacks; None if `old` has rows that `new` lacks. Equal rows count each."""
    order = numpy.argsort(new, kind="stable")
    placed, known = new[order], numpy.sort(old)
    first = numpy.searchsorted(placed, placed, "left")
    had = numpy.searchsorted(known, placed, "right") - numpy.searchsorted(known, placed, "left")
    is_new = numpy.arange(len(placed)) - first >= had
    if len(placed) - int(is_new.sum()) < len(old):
        return None
    marked = numpy.empty(len(new), bool)
    marked[order] = is_new
    return marked
