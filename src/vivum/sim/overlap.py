"""Patterns of overlap: which node is in which group.

Seed 004, section 2: replicated components give groups that overlap exactly (`identical`); services that share nodes
give a hierarchy (`hierarchical`, Figure 1); an application that lays its groups out as it likes gives neither
(`random`).
"""

from collections.abc import Sequence

from vivum.core.ids import GroupId, NodeId
from vivum.core.randomness import RandomSource


def lay_out(
    pattern: str, nodes: Sequence[NodeId], count: int, members: int, rng: RandomSource
) -> dict[GroupId, tuple[NodeId, ...]]:
    """Decide the members of groups 1 to `count`; `members` is the size of a group in the random pattern."""
    groups = [GroupId(number) for number in range(1, count + 1)]
    if pattern == "identical":
        everyone = tuple(nodes)
        return dict.fromkeys(groups, everyone)
    if pattern == "hierarchical":
        blocks = _halves(tuple(nodes))
        return {group: blocks[index % len(blocks)] for index, group in enumerate(groups)}
    return {group: tuple(sorted(rng.sample(nodes, members))) for group in groups}


def _halves(nodes: tuple[NodeId, ...]) -> list[tuple[NodeId, ...]]:
    """All blocks of a binary tree over the nodes, the largest first, down to pairs."""
    blocks = [nodes]
    for block in blocks:
        if len(block) >= 4:
            middle = len(block) // 2
            blocks += [block[:middle], block[middle:]]
    return blocks
