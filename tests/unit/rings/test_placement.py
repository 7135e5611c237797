"""Rings of a view, as seed 004 section 3 and Figure 5 have them."""

import pytest

from vivum.core.ids import NodeId
from vivum.protocols.rings.placement import Placement, place


def placed(nodes: int, size: int = 25) -> Placement:
    return place([NodeId(number) for number in range(1, nodes + 1)], size)


@pytest.mark.parametrize("nodes", [1, 2, 24, 25, 26, 49, 50, 51, 110, 200, 625, 626])
def test_no_ring_has_more_than_25_members_and_rings_of_a_level_are_even(nodes: int) -> None:
    for rings in placed(nodes).levels:
        sizes = [len(plan.slots) for plan in rings]
        assert max(sizes) <= 25
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("nodes", "levels"), [(1, 1), (25, 1), (26, 2), (625, 2), (626, 3)])
def test_there_are_as_many_levels_as_it_takes_to_come_to_one_ring(nodes: int, levels: int) -> None:
    placement = placed(nodes)
    assert len(placement.levels) == levels
    assert len(placement.levels[-1]) == 1


@pytest.mark.parametrize(("nodes", "size"), [(1, 25), (9, 2), (40, 3), (200, 25)])
def test_every_node_stands_in_one_ring_of_each_level(nodes: int, size: int) -> None:
    placement = placed(nodes, size)
    for node in range(1, nodes + 1):
        rings = placement.rings_of(NodeId(node))
        assert [plan.level for plan in rings] == list(range(len(placement.levels)))


def test_a_slot_above_has_the_nodes_of_one_ring_below() -> None:
    placement = placed(9, 2)
    for below, above in zip(placement.levels, placement.levels[1:], strict=False):
        slots = [slot for plan in above for slot in plan.slots]
        assert slots == [tuple(node for slot in plan.slots for node in slot) for plan in below]
