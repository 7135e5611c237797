"""Regions of overlap, kept up to date change by change (seed 001, section 2 and Figure 1).

Nodes x and y are in the same region exactly when they have the same groups, G(x) = G(y). A region is found by
its groups, written as the tuple of their bounds, so the cost of a change depends on the nodes that change and on the
number of ranges, never on the number of groups. Each region also knows its *neighbours*, those that share a group
with it: they are what its members must know of. Looking for the neighbours of a new region is the one step that
walks all regions.

An approximate region covers more groups than each of its members asked for. Its key is the groups that it covers;
which of them a member lacks follows from the member's own. In an exact region the two are the same.

Knows no messages, no time and no reasons. Invariants: no region is empty; a member is in one region at most; region ids
are never used again.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from vivum.core.ids import Endpoint, Member, RegionId
from vivum.core.ranges import RangeSet
from vivum.wire.membership import MemberAddress, RegionRecord

REGION_CHANNELS = 64_512
"""Channels of regions are below this number. The 1,024 above, of the 65,536 that a driver has addresses for, are for
groups."""

Bounds = tuple[int, ...]
"""Groups as a flat tuple of bounds of ranges: comparable, hashable, and the form in which they travel."""


class MemberPlacement(NamedTuple):
    """Where a member belongs: its rank by age, its address, the groups of its region, its own groups among them."""

    age: int
    endpoint: Endpoint
    region_groups: Bounds
    own_groups: Bounds


@dataclass(slots=True, eq=False)
class Region:
    """One region: who is in it since when, and what is near it."""

    region: RegionId
    groups: RangeSet
    key: Bounds
    epoch: int
    """The last epoch in which its members changed: the number of its view."""

    concern_epoch: int
    """The last epoch in which it or a neighbour changed, appeared or went."""

    by_age: list[tuple[int, Member]] = field(default_factory=list)
    placements: dict[Member, MemberPlacement] = field(default_factory=dict)
    neighbours: set[RegionId] = field(default_factory=set)
    _record: RegionRecord | None = None

    @property
    def members(self) -> tuple[Member, ...]:
        """Members, oldest first."""
        return tuple(member for _, member in self.by_age)

    @property
    def record(self) -> RegionRecord:
        """The present view as it travels, made once.

        Its id is never used again; its channel only when there are no others.
        """
        if self._record is None:
            members: list[MemberAddress] = []
            lacks: list[tuple[int, Bounds]] = []
            for index, (age, member) in enumerate(self.by_age):
                _, endpoint, _, own = self.placements[member]
                members.append(MemberAddress(*member, age, *endpoint))
                if own != self.key:
                    missing = self.groups.copy()
                    missing.difference_update(RangeSet.from_bounds(own))
                    lacks.append((index, tuple(missing.bounds())))
            channel = self.region % REGION_CHANNELS
            self._record = RegionRecord(self.region, self.epoch, channel, tuple(members), self.key, tuple(lacks))
        return self._record

    def on_changed(self, epoch: int) -> None:
        """Take the number of a new view."""
        self.epoch = epoch
        self._record = None


class RegionChanges(NamedTuple):
    """What one epoch did: regions with new views, regions that went, and all regions that this concerns."""

    changed: tuple[Region, ...]
    gone: tuple[Region, ...]
    concerned: tuple[Region, ...]


def share_a_group(a: Bounds, b: Bounds) -> bool:
    """Tell whether two sets of groups meet."""
    if not a or not b or a[-1] <= b[0] or b[-1] <= a[0]:
        return False
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i + 1] <= b[j]:
            i += 2
        elif b[j + 1] <= a[i]:
            j += 2
        else:
            return True
    return False


class Regions:
    """All regions of a domain."""

    def __init__(self) -> None:
        self._by_id: dict[RegionId, Region] = {}
        self._by_key: dict[Bounds, Region] = {}
        self._of_member: dict[Member, Region] = {}
        self.next_id = RegionId(1)

    def __len__(self) -> int:
        return len(self._by_id)

    def __getitem__(self, region: RegionId) -> Region:
        return self._by_id[region]

    def find(self, region: RegionId) -> Region | None:
        """Find a region, if it is there."""
        return self._by_id.get(region)

    def all(self) -> list[Region]:
        """List all regions in the order of their making."""
        return list(self._by_id.values())

    def region_of(self, member: Member) -> Region | None:
        """Tell the region of a member."""
        return self._of_member.get(member)

    def touched_by(self, changes: Mapping[Member, MemberPlacement | None]) -> list[Region]:
        """List the regions that are there and would get a new view, or go, if these changes were applied."""
        touched: dict[RegionId, Region] = {}
        for member, placement in changes.items():
            left = self._of_member.get(member)
            entered = None if placement is None else self._by_key.get(placement.region_groups)
            touched |= {region.region: region for region in (left, entered) if region is not None}
        return list(touched.values())

    def placement_of(self, member: Member) -> MemberPlacement | None:
        """Tell where a member was put."""
        region = self._of_member.get(member)
        return None if region is None else region.placements[member]

    def near(self, region: Region) -> list[Region]:
        """List a region and its neighbours: all that its members must know, in the order of their making."""
        return [self._by_id[each] for each in sorted({region.region, *region.neighbours})]

    def apply(self, changes: Mapping[Member, MemberPlacement | None], epoch: int) -> RegionChanges:
        """Move members, or take them out, all at once; what comes of it is one epoch."""
        touched: dict[RegionId, Region] = {}
        for member, placement in changes.items():
            if placement == self.placement_of(member):
                continue
            left = self._take_out(member)
            if left is not None:
                touched[left.region] = left
            if placement is not None and placement.own_groups:
                entered = self._put_in(member, placement, epoch)
                touched[entered.region] = entered
        # Members first, then emptiness: a region that all left and others entered goes on.
        gone = [region for region in touched.values() if not region.by_age]
        changed = [region for region in touched.values() if region.by_age]
        concerned = dict.fromkeys(region.region for region in changed)
        for region in touched.values():
            concerned |= dict.fromkeys(sorted(region.neighbours))
        for region in gone:
            self._remove(region)
            concerned.pop(region.region, None)
        for region in changed:
            region.on_changed(epoch)
        found = tuple(self._by_id[each] for each in concerned)
        for region in found:
            region.concern_epoch = epoch
        return RegionChanges(tuple(changed), tuple(gone), found)

    def _take_out(self, member: Member) -> Region | None:
        region = self._of_member.pop(member, None)
        if region is None:
            return None
        placement = region.placements.pop(member)
        del region.by_age[bisect_left(region.by_age, (placement.age, member))]
        return region

    def _put_in(self, member: Member, placement: MemberPlacement, epoch: int) -> Region:
        region = self._by_key.get(placement.region_groups)
        if region is None:
            region = self._make(placement.region_groups, epoch)
        insort(region.by_age, (placement.age, member))
        region.placements[member] = placement
        self._of_member[member] = region
        return region

    def _make(self, key: Bounds, epoch: int) -> Region:
        region = Region(RegionId(self.next_id), RangeSet.from_bounds(key), key, epoch, epoch)
        self.next_id = RegionId(self.next_id + 1)
        for other in self._by_id.values():
            if share_a_group(key, other.key):
                region.neighbours.add(other.region)
                other.neighbours.add(region.region)
        self._by_id[region.region] = region
        self._by_key[key] = region
        return region

    def restore(
        self,
        number: RegionId,
        epoch: int,
        concern_epoch: int,
        key: Bounds,
        placements: Mapping[Member, MemberPlacement],
    ) -> None:
        """Put a region back as it was in another copy; regions must come in the order of their making."""
        self.next_id = number
        region = self._make(key, epoch)
        region.concern_epoch = concern_epoch
        for member, placement in placements.items():
            self._put_in(member, placement, epoch)

    def _remove(self, region: Region) -> None:
        del self._by_id[region.region]
        del self._by_key[region.key]
        for each in region.neighbours:
            near = self._by_id.get(each)
            if near is not None:
                near.neighbours.discard(region.region)
