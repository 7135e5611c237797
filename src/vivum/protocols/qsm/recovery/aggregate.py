"""How what members say of a stream is put together: pure functions on the records of tokens."""

from collections.abc import Sequence
from typing import Any

import msgspec

from vivum.core.ranges import RangeSet
from vivum.wire.tokens import NOBODY, RepairRequest, StreamRecord

FEEDBACK_RANGES_MAX = 64
"""Ranges that a record carries where feedback of more than a prefix is wanted; some 20 bytes each."""


def merge(one: StreamRecord, other: StreamRecord) -> StreamRecord:
    """Put two records of one stream together. Who lags below the stable point is not waited for."""
    stable = max(one.stable, other.stable)
    behind = min(one.behind, other.behind)
    lowest: tuple[int, int, int] = (NOBODY, 0, NOBODY)
    for each in (one, other):
        if each.prefix == NOBODY:
            continue
        if each.prefix < stable:
            behind = min(behind, each.prefix)
            if each.runner_up != NOBODY and each.runner_up >= stable:
                lowest = _lower(lowest, (each.runner_up, each.slowest, NOBODY))
            continue
        lowest = _lower(lowest, (each.prefix, each.slowest, each.runner_up))
    prefix, slowest, runner_up = lowest
    return StreamRecord(
        one.sender,
        one.incarnation,
        stable,
        max(one.floor, other.floor),
        max(one.stop, other.stop, stable),
        (one.closed and one.stop >= other.stop) or (other.closed and other.stop >= one.stop),
        prefix,
        slowest,
        runner_up,
        behind,
        max(one.slow, other.slow),
        *_feedback(one, other),
        max(one.confirmed, other.confirmed),
        min(one.delivered, other.delivered),
    )


def is_held_back(record: StreamRecord) -> bool:
    """Return whether a member that has not delivered what it has holds up the confirmation more than any other."""
    return record.delivered < min(record.prefix, record.behind)


def _feedback(one: StreamRecord, other: StreamRecord) -> tuple[int, tuple[int, ...]]:
    """Put together how far members have frames, and which of these some of them lack."""
    reach = min(one.reach, other.reach)
    if not reach or not (one.lacking or other.lacking):
        return reach, ()
    lacking = RangeSet.from_bounds(one.lacking)
    lacking.update(RangeSet.from_bounds(other.lacking))
    lacking.discard_range(reach, 1 << 64)
    return limited(reach, lacking, FEEDBACK_RANGES_MAX)


def limited(reach: int, lacking: RangeSet, ranges_max: int) -> tuple[int, tuple[int, ...]]:
    """Keep this many of the lowest ranges; nothing is reported above them."""
    if lacking.range_count > ranges_max:
        reach = lacking.bounds()[2 * ranges_max]
        lacking = lacking.lowest(ranges_max)
    return reach, tuple(lacking.bounds())


def beyond(stable: int, reach: int, lacking: Sequence[int]) -> tuple[int, ...]:
    """Return which frames above the stable point every member has."""
    found = RangeSet()
    found.add_range(stable, reach)
    found.difference_update(RangeSet.from_bounds(lacking))
    return tuple(found.bounds())


def _lower(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    """Keep the lowest prefix, whose it is, and the lowest of all others."""
    if other[0] < one[0]:
        one, other = other, one
    return one[0], one[1], min(one[2], other[0])


def narrowed(request: RepairRequest, ranges: RangeSet, ranges_max: int, **changes: Any) -> RepairRequest:
    """Make a request for a part of what it asked for. Parts may be more ranges than the whole: the lowest ones stay."""
    return msgspec.structs.replace(request, bounds=tuple(ranges.lowest(ranges_max).bounds()), **changes)


def without(request: RepairRequest, served: RangeSet, ranges_max: int) -> RepairRequest | None:
    """Take what was served out of a request; None if nothing is left."""
    left = RangeSet.from_bounds(request.bounds)
    left.difference_update(served)
    return narrowed(request, left, ranges_max) if left else None
