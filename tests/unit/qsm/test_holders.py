"""Which nodes cache a frame, as seed 004 section 3 and Figure 5 have it."""

from collections import Counter

import pytest

from vivum.core.ids import NodeId
from vivum.protocols.qsm.recovery.holders import BLOCK_FRAMES, holds, partition_of
from vivum.protocols.rings.placement import Placement, place


def placed(nodes: int, size: int = 25) -> Placement:
    return place([NodeId(number) for number in range(1, nodes + 1)], size)


def holders_of(placement: Placement, frame: int, holders: int) -> list[tuple[int, int]]:
    return [
        (plan.number, position)
        for plan in placement.levels[0]
        for position in range(len(plan.slots))
        if holds(placement, plan.number, position, frame, holders)
    ]


@pytest.mark.parametrize(("nodes", "size"), [(1, 25), (3, 25), (5, 25), (25, 25), (26, 25), (60, 25), (9, 2), (40, 3)])
def test_exactly_five_nodes_of_one_partition_hold_a_frame_or_all_if_it_is_smaller(nodes: int, size: int) -> None:
    placement = placed(nodes, size)
    for frame in range(0, 5000, 7):
        found = holders_of(placement, frame, 5)
        (partition,) = {number for number, _ in found}
        assert partition == partition_of(placement, frame)
        assert len(found) == min(5, len(placement.levels[0][partition].slots))


def test_partitions_take_turns_block_by_block() -> None:
    placement = placed(60)
    blocks = [partition_of(placement, block * BLOCK_FRAMES) for block in range(6)]
    assert blocks == [0, 1, 2, 0, 1, 2]
    assert len({partition_of(placement, frame) for frame in range(BLOCK_FRAMES)}) == 1


@pytest.mark.parametrize("nodes", [7, 25, 110])
def test_the_load_of_holding_is_even(nodes: int) -> None:
    placement = placed(nodes)
    blocks = len(placement.levels[0]) * 25 * 24
    counts = Counter(holder for block in range(blocks) for holder in holders_of(placement, block * BLOCK_FRAMES, 5))
    assert len(counts) == nodes
    assert max(counts.values()) - min(counts.values()) <= max(counts.values()) // 4
