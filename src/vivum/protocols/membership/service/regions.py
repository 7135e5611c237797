"""Regions of overlap, kept up to date change by change (seed 001, section 2 and Figure 1).

Nodes x and y are in the same region exactly when they have the same groups, G(x) = G(y). A region is found by
its groups, written as the tuple of their bounds, so the cost of a change depends on the nodes that change and on the
number of ranges, never on the number of groups. Members of a region must know its *neighbours*, the regions that share
a group with it; an index by group finds them when they are asked for.

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
from vivum.protocols.membership.group_index import GroupIndex, numbers_in
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
    """One region: its members, and since when."""

    region: RegionId
    slot: int
    """Its number in the index, used again when it is gone."""

    groups: RangeSet
    key: Bounds
    epoch: int
    """The last epoch in which its members changed: the number of its view."""

    concern_epoch: int
    """The last epoch in which it or a neighbour changed, appeared or went."""

    by_age: list[tuple[int, Member]] = field(default_factory=list)
    placements: dict[Member, MemberPlacement] = field(default_factory=dict)
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
    """Return whether two sets of groups intersect."""
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
        self._index = GroupIndex()
        self._slots: list[Region | None] = []
        self._free_slots: list[int] = []
        # The same regions in the order of their last change, and those that changed after some epochs, as a mask.
        self._by_epoch: dict[RegionId, Region] = {}
        self._changed_since: dict[int, int] = {}
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
        """Return the region of a member."""
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
        """Return the region that a member was put into."""
        region = self._of_member.get(member)
        return None if region is None else region.placements[member]

    def find_cover(self, key: Bounds) -> Region | None:
        """Find the region that covers exactly these groups."""
        return self._by_key.get(key)

    def groups(self) -> RangeSet:
        """Return all groups that a region covers."""
        return self._index.groups()

    def near(self, region: Region, base: int = 0) -> list[Region]:
        """List a region and its neighbours, in the order of their making: those that changed after an epoch."""
        mask = self._index.sharing(region.key)
        return self._in_order(mask & self._mask_since(base) if base else mask)

    def _mask_since(self, base: int) -> int:
        mask = self._changed_since.get(base)
        if mask is None:
            mask = 0
            for region in reversed(self._by_epoch.values()):
                if region.epoch <= base:
                    break
                mask |= 1 << region.slot
            self._changed_since[base] = mask
        return mask

    def _in_order(self, mask: int) -> list[Region]:
        found = [region for slot in numbers_in(mask) if (region := self._slots[slot]) is not None]
        return sorted(found, key=lambda region: region.region)

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
        concerned = list(changed)
        seen = sum(1 << region.slot for region in touched.values())
        for region in touched.values():
            near = self._index.sharing(region.key) & ~seen
            concerned += self._in_order(near)
            seen |= near
        for region in gone:
            self._remove(region)
        for region in changed:
            region.on_changed(epoch)
            self._by_epoch[region.region] = self._by_epoch.pop(region.region)
        self._changed_since.clear()
        for region in concerned:
            region.concern_epoch = epoch
        return RegionChanges(tuple(changed), tuple(gone), tuple(concerned))

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
        if not self._free_slots:
            self._free_slots.append(len(self._slots))
            self._slots.append(None)
        slot = self._free_slots.pop()
        region = Region(RegionId(self.next_id), slot, RangeSet.from_bounds(key), key, epoch, epoch)
        self.next_id = RegionId(self.next_id + 1)
        self._index.flip(slot, key)
        self._slots[slot] = self._by_id[region.region] = self._by_key[key] = region
        self._by_epoch[region.region] = region
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

    def finish_restoring(self, next_id: RegionId) -> None:
        """Take the id that the next region gets, after the last region was put back."""
        self.next_id = next_id
        self._by_epoch = {each.region: each for each in sorted(self._by_id.values(), key=lambda each: each.epoch)}

    def _remove(self, region: Region) -> None:
        del self._by_id[region.region], self._by_key[region.key], self._by_epoch[region.region]
        self._index.flip(region.slot, region.key)
        self._slots[region.slot] = None
        self._free_slots.append(region.slot)
