"""Who is where: the rings of a region, and which nodes cache which frame. Pure functions of a region view.

All members compute the same from the same view, so nothing about it has to be sent (seed 004, section 3 and Figure
5).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from vivum.core.ids import NodeId

BLOCK_FRAMES = 16
"""Neighbouring frames are cached together in blocks of this size, so that a burst of losses stays a few ranges."""


@dataclass(frozen=True, slots=True)
class RingPlan:
    """One ring. A slot has the nodes that may stand there: one on level 0; below a leader, all nodes of its ring."""

    level: int
    number: int
    slots: tuple[tuple[NodeId, ...], ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """All rings of a region, level by level; the last level has one ring."""

    levels: tuple[tuple[RingPlan, ...], ...]

    @property
    def partitions(self) -> int:
        """How many rings of nodes there are."""
        return len(self.levels[0])

    def rings_of(self, node: NodeId) -> list[RingPlan]:
        """Find the rings that a node stands in or may come to stand in, one a level, lowest first."""
        return [plan for rings in self.levels for plan in rings if any(node in slot for slot in plan.slots)]

    def partition_of(self, frame: int) -> int:
        """Tell which partition caches a frame: each in turn, block by block."""
        return frame // BLOCK_FRAMES % self.partitions

    def holds(self, partition: int, position: int, frame: int, holders: int) -> bool:
        """Tell whether the node at a position of a partition's ring caches a frame."""
        block = frame // BLOCK_FRAMES
        if block % self.partitions != partition:
            return False
        size = len(self.levels[0][partition].slots)
        return (position - block // self.partitions) % size < holders


def place(nodes: Sequence[NodeId], ring_nodes_max: int) -> Placement:
    """Split the members of a region, oldest first, into rings of nodes, rings of their leaders, and so on to one."""
    slots: list[tuple[NodeId, ...]] = [(node,) for node in nodes]
    levels: list[tuple[RingPlan, ...]] = []
    while True:
        parts = _split(slots, ring_nodes_max)
        level = len(levels)
        levels.append(tuple(RingPlan(level, number, tuple(part)) for number, part in enumerate(parts)))
        if len(parts) == 1:
            return Placement(tuple(levels))
        slots = [tuple(node for slot in part for node in slot) for part in parts]


def _split(slots: list[tuple[NodeId, ...]], size_max: int) -> list[list[tuple[NodeId, ...]]]:
    """Cut into the fewest parts of at most this size, as even as possible."""
    count = -(-len(slots) // size_max)
    bounds = [len(slots) * part // count for part in range(count + 1)]
    return [slots[start:stop] for start, stop in pairwise(bounds)]
