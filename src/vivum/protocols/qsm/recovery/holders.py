"""Which nodes of a region cache which frame: each partition in turn, and in it a few nodes (seed 004, section 3)."""

from vivum.core.ids import NodeId
from vivum.core.ranges import RangeSet
from vivum.protocols.rings.placement import Placement

BLOCK_FRAMES = 16
"""Neighbouring frames are cached together in blocks of this size, so that a burst of losses stays a few ranges."""


def partition_of(placement: Placement, frame: int) -> int:
    """Return the partition that caches a frame."""
    return frame // BLOCK_FRAMES % placement.partitions


def holds(placement: Placement, partition: int, position: int, frame: int, holders: int) -> bool:
    """Return whether the node at a position of a partition's ring caches a frame."""
    block = frame // BLOCK_FRAMES
    if block % placement.partitions != partition:
        return False
    size = len(placement.levels[0][partition].slots)
    return (position - block // placement.partitions) % size < holders


def split_by_partition(bounds: tuple[int, ...], placement: Placement, inside: range) -> tuple[RangeSet, RangeSet]:
    """Divide ranges of frames into those that partitions `inside` cache, and the others."""
    mine, others = RangeSet(), RangeSet()
    for start, stop in RangeSet.from_bounds(bounds).ranges():
        while start < stop:
            end = min(stop, start - start % BLOCK_FRAMES + BLOCK_FRAMES)
            (mine if partition_of(placement, start) in inside else others).add_range(start, end)
            start = end
    return mine, others


def partitions_below(placement: Placement, level: int, node: NodeId) -> range:
    """Return the partitions under the ring in which a node stands on a level."""
    (plan,) = [plan for plan in placement.levels[level] if any(node in slot for slot in plan.slots)]
    nodes = [node for slot in plan.slots for node in slot]
    first = _partition_index(placement, nodes[0])
    return range(first, _partition_index(placement, nodes[-1]) + 1)


def _partition_index(placement: Placement, node: NodeId) -> int:
    return next(plan.number for plan in placement.levels[0] if any(node in slot for slot in plan.slots))
