"""Patterns of overlap (seed 004, section 2)."""

from vivum.core.ids import GroupId, NodeId
from vivum.core.randomness import RandomSource
from vivum.sim.overlap import lay_out

NODES = [NodeId(number) for number in range(1, 9)]


def test_identical_groups_share_one_tuple_of_all_nodes() -> None:
    groups = lay_out("identical", NODES, 1000, 3, RandomSource(1))
    assert len(groups) == 1000
    assert len({id(members) for members in groups.values()}) == 1
    assert groups[GroupId(1)] == tuple(NODES)


def test_hierarchical_groups_are_the_blocks_of_a_binary_tree_over_and_over() -> None:
    groups = lay_out("hierarchical", NODES, 9, 3, RandomSource(1))
    assert [groups[GroupId(number)] for number in range(1, 10)] == [
        (1, 2, 3, 4, 5, 6, 7, 8),
        (1, 2, 3, 4),
        (5, 6, 7, 8),
        (1, 2),
        (3, 4),
        (5, 6),
        (7, 8),
        (1, 2, 3, 4, 5, 6, 7, 8),
        (1, 2, 3, 4),
    ]


def test_hierarchical_groups_of_few_nodes_are_all_of_them() -> None:
    assert lay_out("hierarchical", NODES[:3], 2, 3, RandomSource(1)) == {1: (1, 2, 3), 2: (1, 2, 3)}


def test_random_groups_have_the_wanted_size_and_depend_on_the_seed_alone() -> None:
    first = lay_out("random", NODES, 50, 3, RandomSource(1))
    assert all(len(set(members)) == 3 and list(members) == sorted(members) for members in first.values())
    assert lay_out("random", NODES, 50, 3, RandomSource(1)) == first
    assert lay_out("random", NODES, 50, 3, RandomSource(2)) != first
