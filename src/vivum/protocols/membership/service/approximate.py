"""Approximate regions: when exact ones would shatter, merge those that are most alike.

Nodes that choose groups at random share their exact set with nobody: a region for each node, and nothing to share.
Seed 001 leaves that case open (end of section 2). Here, of all pairs that share a group, the one whose union
wastes least becomes one region, again and again, until there are few enough or the bound would break. The *waste*
of a region is the mean share of its groups that a member did not ask for.

A pure function of its arguments. It takes time and memory with the square of the number of exact regions.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from vivum.core.ranges import RangeSet
from vivum.protocols.membership.service.regions import Bounds, share_a_group


class _Cluster(NamedTuple):
    """Exact regions that are merged: the union of their groups, and what the waste is reckoned from."""

    cover: RangeSet
    key: Bounds
    size: int
    members: int
    asked: int
    """Sum of the numbers of groups that the members asked for."""

    keys: tuple[Bounds, ...]


def waste_of(cover_size: int, members: int, asked: int) -> float:
    """Tell the mean share of covered groups that a member did not ask for."""
    return 1.0 - asked / (members * cover_size)


def merge_alike(counts: Mapping[Bounds, int], regions_max: int, waste_max: float) -> dict[Bounds, Bounds]:
    """Choose which exact regions to merge. Tells, for each that was, the groups that its merged region covers.

    `counts` has the number of members of each exact region. More than `regions_max` remain where merging more would
    waste more than `waste_max`.
    """
    if len(counts) <= regions_max:
        return {}
    alive: dict[int, _Cluster] = {}
    for number, key in enumerate(sorted(counts)):
        cover = RangeSet.from_bounds(key)
        size = cover.count()
        alive[number] = _Cluster(cover, key, size, counts[key], counts[key] * size, (key,))
    pairs = [
        (waste, first, second)
        for first in alive
        for second in range(first + 1, len(alive))
        if (waste := _waste_together(alive[first], alive[second])) <= waste_max
    ]
    heapify(pairs)
    number = len(alive)
    while len(alive) > regions_max and pairs:
        _, first, second = heappop(pairs)
        if first not in alive or second not in alive:
            continue
        merged = _merge(alive.pop(first), alive.pop(second))
        for other, cluster in alive.items():
            waste = _waste_together(cluster, merged)
            if waste <= waste_max:
                heappush(pairs, (waste, other, number))
        alive[number] = merged
        number += 1
    return {key: cluster.key for cluster in alive.values() if len(cluster.keys) > 1 for key in cluster.keys}


def _waste_together(a: _Cluster, b: _Cluster) -> float:
    if not share_a_group(a.key, b.key):
        return 1.0
    size = a.size + b.size - a.cover.intersection(b.cover).count()
    return waste_of(size, a.members + b.members, a.asked + b.asked)


def _merge(a: _Cluster, b: _Cluster) -> _Cluster:
    cover = a.cover.copy()
    cover.update(b.cover)
    key = tuple(cover.bounds())
    return _Cluster(cover, key, cover.count(), a.members + b.members, a.asked + b.asked, a.keys + b.keys)
