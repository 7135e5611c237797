"""Approximate regions: when exact ones would shatter, merge those that are most alike, change by change.

Nodes that choose groups at random share their exact set with nobody: a region for each node, and nothing to share.
Seed 001 leaves that case open (end of section 2). Here exact regions are *clustered*; a cluster is one region, which
covers the union of their groups. The *waste* of a cluster is the mean share of its groups that a member did not ask
for. While there are too many clusters, the two whose union wastes least become one, unless that wastes too much. When
there is room again, the most wasteful clusters are broken up.

The best merge at one time may be a poor one later. So changes earn *credit*, which pays for taking clusters apart in
turn and merging them anew; the result stays if it has fewer regions, or wastes less. Otherwise nobody moves.

A change costs a search for the best partner of each cluster that it touches. `GroupIndex` counts the groups shared with
all other clusters at once, and clusters of one size and membership differ by that count alone, so a search takes
one step for each stretch of groups and each *kind* of cluster. Best partners wait in a heap; an entry is checked when
it comes to the top.

Clusters, their numbers, the credit and whose turn it is are state: they depend on the past, so a copy must be given
them. Everything else is derived.

Invariants: each exact region is in one cluster; no two clusters cover the same groups; no group is covered that nobody
asked for; no cluster wastes more than allowed. A cluster outside `_unsearched` has its best pair, among clusters no
younger than its last search, in the heap, or has none.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from vivum.core.ranges import RangeSet
from vivum.protocols.membership.group_index import GroupIndex
from vivum.protocols.membership.service.regions import Bounds

CREDIT = 4
"""Exact regions that are placed anew for each that changes: so a change costs a few searches more, and as many changes
as a quarter of all exact regions let everything be looked at again."""

CREDIT_MAX = 64
"""What is placed anew at once, and how long that may take: some ten milliseconds."""

BOUNDS_A_CREDIT = 64
"""An exact region of scattered groups takes longer to place: this many bounds cost as much as one more region."""


class _Cluster(NamedTuple):
    """Exact regions that are one region together."""

    cover: Bounds
    size: int
    members: int
    asked: int
    """Sum of the numbers of groups that the members asked for."""

    counts: dict[Bounds, int]
    """Members of each exact region."""

    @property
    def waste(self) -> float:
        """See `waste_of`."""
        return waste_of(self.size, self.members, self.asked)

    @property
    def wasted(self) -> float:
        """The sum of the shares that the members did not ask for."""
        return self.members - self.asked / self.size

    @property
    def kind(self) -> tuple[int, int, int]:
        """All that matters to a partner, apart from the groups that the two share."""
        return self.size, self.members, self.asked


class MergerState(NamedTuple):
    """What the next steps of a merger depend on, besides the counts."""

    clusters: list[tuple[int, list[Bounds]]]
    """Number and exact regions of each."""

    credit: int
    turn: int


class _Pair(NamedTuple):
    """The best partner of a cluster, as it was when it was looked for."""

    waste: float
    lower: int
    higher: int
    seeker: int
    seeker_stamp: int
    partner_stamp: int


def waste_of(cover_size: int, members: int, asked: int) -> float:
    """Return the mean share of covered groups that a member did not ask for."""
    return 1.0 - asked / (members * cover_size)


def _size_of(bounds: Bounds) -> int:
    return sum(bounds[1::2]) - sum(bounds[::2])


def _cluster_of(counts: dict[Bounds, int]) -> _Cluster:
    cover = _union(counts)
    asked = sum(count * _size_of(key) for key, count in counts.items())
    return _Cluster(cover, _size_of(cover), sum(counts.values()), asked, counts)


def _joined(a: _Cluster, b: _Cluster) -> _Cluster:
    cover = _union((a.cover, b.cover))
    return _Cluster(cover, _size_of(cover), a.members + b.members, a.asked + b.asked, a.counts | b.counts)


def _recounted(cluster: _Cluster, counts: dict[Bounds, int]) -> _Cluster:
    """Return a cluster with other numbers of members in some of its exact regions, of which none is gone."""
    more = {key: count - cluster.counts[key] for key, count in counts.items()}
    asked = cluster.asked + sum(count * _size_of(key) for key, count in more.items())
    members = cluster.members + sum(more.values())
    return cluster._replace(members=members, asked=asked, counts=cluster.counts | counts)


def _union(parts: Iterable[Bounds]) -> Bounds:
    first, *others = parts
    if not others:
        return first
    union = RangeSet.from_bounds(first)
    for each in others:
        union.update(RangeSet.from_bounds(each))
    return tuple(union.bounds())


def _cost_of(key: Bounds) -> int:
    return 1 + len(key) // BOUNDS_A_CREDIT


def _parts_of(cluster: _Cluster) -> list[Bounds]:
    """Choose exact regions of a cluster, as many as half of all credit pays for; those first that fit it least."""
    left = CREDIT_MAX // 2
    parts: list[Bounds] = []
    for key in sorted(cluster.counts, key=lambda key: (_size_of(key), key)):
        left -= _cost_of(key)
        if parts and left < 0:
            break
        parts.append(key)
    return parts


def _most_shared(digits: Sequence[int], mask: int) -> tuple[int, int]:
    """Find the highest of the counts that `GroupIndex` made for the sets in a mask, and those that have it."""
    shared = 0
    for place in range(len(digits) - 1, -1, -1):
        more = mask & digits[place]
        if more:
            mask = more
            shared |= 1 << place
    return shared, mask


class RegionMerger:
    """The clusters of all exact regions of a domain."""

    def __init__(self, regions_max: int, waste_max: float) -> None:
        self._regions_max = regions_max
        self._waste_max = waste_max
        self._clusters: dict[int, _Cluster] = {}
        self._number_of: dict[Bounds, int] = {}
        self._by_cover: dict[Bounds, int] = {}
        # Numbers below this one were given; those that are free again go first, lowest first.
        self._next_number = 0
        self._free: list[int] = []
        self._merged: set[int] = set()
        self._credit = 0
        self._turn = 0
        self._before: dict[Bounds, Bounds] = {}
        # While a split is tried out: the former cluster of each number that it changed, to undo it.
        self._undo: dict[int, _Cluster | None] | None = None
        # For searches.
        self._index = GroupIndex()
        self._kinds: dict[tuple[int, int, int], int] = {}
        self._stamps: dict[int, int] = {}
        self._stamp = 0
        self._unsearched: set[int] = set()
        self._pairs: list[_Pair] = []
        self.searches = 0
        """Searches for a partner so far: what changes cost."""

    def state(self) -> MergerState:
        """Copy out what a copy cannot derive."""
        clusters = [(number, sorted(self._clusters[number].counts)) for number in sorted(self._clusters)]
        return MergerState(clusters, self._credit, self._turn)

    def restore(self, state: MergerState, counts: Mapping[Bounds, int]) -> None:
        """Become what `state` told of another one, given the number of members of each exact region."""
        assert not self._clusters, "only a new one can become another"
        for number, keys in state.clusters:
            self._put(number, _cluster_of({key: counts[key] for key in keys}))
        self._credit, self._turn = state.credit, state.turn
        self._next_number = max(self._clusters, default=-1) + 1
        self._find_free()

    def cover_of(self, key: Bounds) -> Bounds:
        """Return the groups that the region covers to which an exact region belongs."""
        return self._clusters[self._number_of[key]].cover

    def __len__(self) -> int:
        return len(self._clusters)

    def update(self, counts: Mapping[Bounds, int]) -> dict[Bounds, Bounds]:
        """Follow changes in the number of members of exact regions; 0 for one that is gone.

        Returns the exact regions that have another cover now, each with its cover before.
        """
        new = {key: count for key, count in counts.items() if count and key not in self._number_of}
        singles = dict(new)
        taken = [(number, self._take(number), changed) for number, changed in self._by_number(counts).items()]
        for number, cluster, changed in taken:
            if all(changed.values()):
                cluster = _recounted(cluster, changed)
            else:
                kept = {key: count for key, count in (cluster.counts | changed).items() if count}
                if not kept:
                    heappush(self._free, number)
                    continue
                cluster = _cluster_of(kept)
            if cluster.waste <= self._waste_max:
                self._put(number, cluster)
            else:
                heappush(self._free, number)
                singles |= cluster.counts
        self._put_singly(singles)
        self._merge_surplus()
        self._break_up()
        self._improve(len(counts))
        before, self._before = self._before, {}
        return {
            key: cover
            for key, cover in before.items()
            if key in self._number_of and key not in new and self.cover_of(key) != cover
        }

    def _by_number(self, counts: Mapping[Bounds, int]) -> dict[int, dict[Bounds, int]]:
        """Sort changes of known exact regions by their clusters."""
        found: dict[int, dict[Bounds, int]] = {}
        for key in sorted(key for key in counts if key in self._number_of):
            found.setdefault(self._number_of[key], {})[key] = counts[key]
        return found

    # Clusters come and go.

    def _put_singly(self, counts: Mapping[Bounds, int]) -> None:
        for key in sorted(counts):
            self._put(self._new_number(), _cluster_of({key: counts[key]}))

    def _new_number(self) -> int:
        if self._free:
            return heappop(self._free)
        self._next_number += 1
        return self._next_number - 1

    def _put(self, number: int, cluster: _Cluster) -> None:
        twin = self._by_cover.get(cluster.cover)
        if twin is not None:
            # The same groups are the same region. Neither wastes too much, so both together do not.
            heappush(self._free, max(number, twin))
            number = min(number, twin)
            cluster = _joined(self._take(twin), cluster)
        if self._undo is not None:
            self._undo.setdefault(number, None)
        self._clusters[number] = cluster
        self._by_cover[cluster.cover] = number
        self._number_of.update(dict.fromkeys(cluster.counts, number))
        if len(cluster.counts) > 1:
            self._merged.add(number)
        self._index.flip(number, cluster.cover)
        self._kinds[cluster.kind] = self._kinds.get(cluster.kind, 0) | 1 << number
        self._stamp += 1
        self._stamps[number] = self._stamp
        self._unsearched.add(number)

    def _take(self, number: int) -> _Cluster:
        cluster = self._clusters.pop(number)
        if self._undo is not None:
            self._undo.setdefault(number, cluster)
        del self._by_cover[cluster.cover], self._stamps[number]
        for key in cluster.counts:
            del self._number_of[key]
            self._before.setdefault(key, cluster.cover)
        self._merged.discard(number)
        self._index.flip(number, cluster.cover)
        left = self._kinds.pop(cluster.kind) ^ 1 << number
        if left:
            self._kinds[cluster.kind] = left
        self._unsearched.discard(number)
        return cluster

    def _find_free(self) -> None:
        self._free = sorted(set(range(self._next_number)) - self._clusters.keys())

    # Too many.

    def _merge_surplus(self) -> None:
        while len(self._clusters) > self._regions_max:
            pair = self._best_pair()
            if pair is None:
                return
            self._join(pair.lower, pair.higher)

    def _join(self, lower: int, higher: int) -> None:
        joined = _joined(self._take(lower), self._take(higher))
        heappush(self._free, higher)
        self._put(lower, joined)

    def _best_pair(self) -> _Pair | None:
        """Find the two clusters that waste least together, if that is allowed; of several such, the lowest numbers."""
        if len(self._pairs) > 64 + 4 * len(self._clusters):
            self._pairs = [pair for pair in self._pairs if self._stamps.get(pair.seeker) == pair.seeker_stamp]
            heapify(self._pairs)
        while True:
            for number in self._unsearched:
                self._search(number)
            self._unsearched.clear()
            if not self._pairs:
                return None
            pair = heappop(self._pairs)
            if self._stamps.get(pair.seeker) != pair.seeker_stamp:
                continue
            partner = pair.lower + pair.higher - pair.seeker
            if self._stamps.get(partner) == pair.partner_stamp:
                return pair
            self._unsearched.add(pair.seeker)

    def _search(self, number: int) -> None:
        """Find the best partner of a cluster: one that shares a group, with the least waste, of the lowest number."""
        self.searches += 1
        _, size, members, asked, _ = cluster = self._clusters[number]
        digits = self._index.count_shared(cluster.cover)
        sharing = 0
        for digit in digits:
            sharing |= digit
        sharing ^= 1 << number
        best, partner = self._waste_max, -1
        for (other_size, other_members, other_asked), mask in self._kinds.items():
            alike = mask & sharing
            if not alike:
                continue
            together, both_asked = members + other_members, asked + other_asked
            if waste_of(max(size, other_size), together, both_asked) > best:
                continue
            shared, alike = _most_shared(digits, alike)
            waste = waste_of(size + other_size - shared, together, both_asked)
            found = (alike & -alike).bit_length() - 1
            if waste < best or (waste == best and (partner < 0 or found < partner)):
                best, partner = waste, found
        if partner >= 0:
            pair = (number, partner) if number < partner else (partner, number)
            heappush(self._pairs, _Pair(best, *pair, number, self._stamps[number], self._stamps[partner]))

    # Room again.

    def _break_up(self) -> None:
        """Break up clusters while there is room for their parts, the most wasteful first."""
        was_broken = True
        while was_broken and self._merged and len(self._clusters) < self._regions_max:
            was_broken = False
            for number in sorted(self._merged, key=lambda each: (-self._clusters[each].waste, each)):
                # A part of one before it may have had the same cover, and took it to another number.
                if number not in self._merged:
                    continue
                if len(self._clusters) - 1 + len(self._clusters[number].counts) <= self._regions_max:
                    counts = self._take(number).counts
                    heappush(self._free, number)
                    self._put_singly(counts)
                    was_broken = True

    # Better.

    def _improve(self, changes: int) -> None:
        """Take clusters apart in turn, as far as credit goes, and merge anew; keep what is better."""
        if not self._merged:
            return
        self._credit = min(self._credit + CREDIT * changes, CREDIT_MAX)
        while self._merged:
            number = min((each for each in self._merged if each >= self._turn), default=min(self._merged))
            # With the one most like it: two that both are mixtures of the same two can only be told apart together.
            both = [each for each in (number, self._most_alike(number)) if each is not None]
            parts = {each: _parts_of(self._clusters[each]) for each in both}
            cost = sum(_cost_of(key) for keys in parts.values() for key in keys)
            if self._credit < min(cost, CREDIT_MAX):
                return
            self._credit -= min(cost, CREDIT_MAX)
            self._turn = number + 1
            self._try_apart(parts)

    def _most_alike(self, number: int) -> int | None:
        """Return the merged cluster that shares most groups with another, if one does."""
        alike = sum(1 << each for each in self._merged if each != number)
        shared, alike = _most_shared(self._index.count_shared(self._clusters[number].cover), alike)
        return (alike & -alike).bit_length() - 1 if shared else None

    def _try_apart(self, parts: Mapping[int, Sequence[Bounds]]) -> None:
        surplus = self._surplus()
        self._undo = {}
        singles: dict[Bounds, int] = {}
        for number, keys in parts.items():
            counts = dict(self._take(number).counts)
            singles |= {key: counts.pop(key) for key in keys}
            rest = _cluster_of(counts) if counts else None
            if rest is not None and rest.waste <= self._waste_max:
                self._put(number, rest)
            else:
                heappush(self._free, number)
                singles |= counts
        self._put_singly(singles)
        self._merge_surplus()
        undo, self._undo = self._undo, None
        before = sum(cluster.wasted for _, cluster in sorted(undo.items()) if cluster is not None)
        after = sum(self._clusters[each].wasted for each in sorted(undo) if each in self._clusters)
        if (self._surplus(), after) < (surplus, before - 1e-9):
            return
        for each in undo:
            if each in self._clusters:
                self._take(each)
        for each, was in undo.items():
            if was is not None:
                self._put(each, was)
        self._find_free()

    def _surplus(self) -> int:
        return max(0, len(self._clusters) - self._regions_max)
