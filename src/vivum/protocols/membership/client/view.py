"""What a node knows of the configuration: the two-level, versioned structure of seed 001, Figure 2.

Region views are told by the service. Group views are derived from them: the members of a group are those of all its
regions, and the number of its view is the last epoch in which one of these changed, appeared or went. So two nodes
that know the same regions derive the same views, and a change in a region of 8,192 groups costs one record.

Groups with the same regions, whose members all take them, have the same members: they are a *bundle*. Members are put
together once for a bundle, and all its groups share one tuple. Nothing here walks single groups.

Invariants: views of regions never go back; every region shares a group with the own one, or is it.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from vivum.core.ids import Endpoint, GroupId, Member, NodeId, RegionId, ViewNumber
from vivum.core.machine import InstallView
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.client.changes import ConfigurationChanged
from vivum.protocols.membership.group_epochs import GroupEpochs
from vivum.protocols.membership.group_index import GroupIndex, numbers_in
from vivum.protocols.membership.region_config import RegionConfig, config_of
from vivum.wire.membership import ConfigurationChanges

COVERS_SPARE = 64
"""Sets of regions that may be remembered though no group has exactly them any more, however few groups there are."""


class _Cover(NamedTuple):
    """The regions that some groups have in common, and what follows from them alone."""

    regions: tuple[RegionConfig, ...]
    """By their ids."""

    number: int
    """The highest of the numbers of their views."""

    lacking: tuple[RegionConfig, ...]
    """Those of them in which a member lacks a group."""

    members: dict[tuple[int, ...], tuple[Member, ...]]
    """By who lacks the group: a mask of members for each region that is lacking."""


NO_COVER = _Cover((), 0, (), {(): ()})


def _append_range(bounds: list[int], start: int, stop: int) -> None:
    if bounds and bounds[-1] == start:
        bounds[-1] = stop
    else:
        bounds += (start, stop)


class ConfigurationView:
    """All regions that concern one node, at one epoch."""

    def __init__(self, gone_endpoints_max: int) -> None:
        self.epoch = 0
        self.regions: dict[RegionId, RegionConfig] = {}
        self.endpoints: dict[NodeId, Endpoint] = {}
        self._gone_endpoints_max = gone_endpoints_max
        self._went = GroupEpochs()
        # Which regions a group has: each region has a slot in the index, used again when it is gone.
        self._index = GroupIndex()
        self._slots: dict[RegionId, int] = {}
        self._by_slot: list[RegionId] = []
        self._free_slots: list[int] = []
        self._covers: dict[int, _Cover] = {0: NO_COVER}
        self._lacks: dict[RegionId, GroupIndex] = {}
        self.tuples_made = 0
        """How often members were put together so far: what a change costs."""

    def apply(self, base: int, epoch: int, changes: ConfigurationChanges) -> ConfigurationChanged:
        """Go to an epoch. Base 0 replaces everything; the caller checked that the base is not ahead of us."""
        assert base <= self.epoch < epoch, "epochs are applied in order"
        passed = tuple(config_of(record) for record in changes.passed if record.view > self.epoch)
        unseen = RangeSet()
        for went_epoch, bounds in changes.went:
            if went_epoch > self.epoch:
                unseen.update(RangeSet.from_bounds(bounds))
        self.epoch = epoch
        told = {RegionId(record.region): record for record in changes.regions}
        if base == 0:
            gone: Iterable[RegionId] = [region for region in self.regions if region not in told]
            self._went.clear()
        else:
            gone = [RegionId(region) for region in changes.gone]
        # Regions that changed, as a mask of their slots.
        stale = 0
        before: dict[RegionId, RegionConfig | None] = {}
        after: dict[RegionId, RegionConfig | None] = {}
        for region in gone:
            known = self.regions.pop(region, None)
            if known is not None:
                before[region], after[region] = known, None
                stale |= self._note_config(known, None)
        for region, record in told.items():
            known = self.regions.get(region)
            if known is None or known.view != record.view:
                before[region] = known
                after[region] = self.regions[region] = config = config_of(record)
                stale |= self._note_config(known, config)
        for went_epoch, bounds in changes.went:
            self._went.set_groups(RangeSet.from_bounds(bounds), went_epoch)
        self._note_endpoints(changes)
        self._covers = {mask: cover for mask, cover in self._covers.items() if not mask & stale}
        if len(self._covers) > COVERS_SPARE + 2 * len(self._index):
            here = {0, *self._index.masks()}
            self._covers = {mask: cover for mask, cover in self._covers.items() if mask in here}
        return ConfigurationChanged(epoch, before, after, passed, unseen)

    def forget(self) -> None:
        """Go back to knowing nothing, as a new life does. Endpoints stay: old streams may still need them."""
        self.epoch = 0
        self.regions.clear()
        self._went.clear()
        self._index = GroupIndex()
        self._slots.clear()
        self._by_slot.clear()
        self._free_slots.clear()
        self._covers = {0: NO_COVER}
        self._lacks.clear()

    def _note_config(self, old: RegionConfig | None, new: RegionConfig | None) -> int:
        """Index a region that came, changed or went. Returns the mask of its slot."""
        config = new or old
        assert config is not None
        region = config.region
        if old is None:
            if not self._free_slots:
                self._free_slots.append(len(self._by_slot))
                self._by_slot.append(region)
            slot = self._slots[region] = self._free_slots.pop()
            self._by_slot[slot] = region
        slot = self._slots[region]
        groups = () if old is None else old.groups
        wanted = () if new is None else new.groups
        if groups != wanted:
            self._index.flip(slot, groups)
            self._index.flip(slot, wanted)
        if new is None:
            del self._slots[region]
            self._free_slots.append(slot)
        self._lacks.pop(region, None)
        return 1 << slot

    # Group views.

    def bundles(self, groups: RangeSet) -> list[InstallView]:
        """List the views of these groups, bundle by bundle, by the lowest group of each; not groups without a region.

        Groups of the same regions with the same number and the same members come together, and share one tuple of
        members as long as no region of theirs changes.
        """
        by_cover: dict[int, list[int]] = {}
        for start, stop, mask in self._index.stretches(groups.bounds()):
            if mask:
                _append_range(by_cover.setdefault(mask, []), start, stop)
        found: list[InstallView] = []
        for mask, bounds in by_cover.items():
            cover = self._cover(mask)
            views: dict[tuple[int, int], tuple[tuple[Member, ...], list[int]]] = {}
            for start, stop, number in self._numbers(cover, bounds):
                for begin, end in self._cut_where_lacking(cover, start, stop):
                    members = self._members_at(cover, begin)
                    _, together = views.setdefault((number, id(members)), (members, []))
                    _append_range(together, begin, end)
            found += [
                InstallView(tuple(together), ViewNumber(number), members)
                for (number, _), (members, together) in views.items()
            ]
        return sorted(found, key=lambda view: view.groups[0])

    def _numbers(self, cover: _Cover, bounds: list[int]) -> Iterator[tuple[int, int, int]]:
        """Walk start, stop and the number of the view of stretches that have one."""
        for start, stop, went in self._went.stretches(zip(bounds[::2], bounds[1::2], strict=True)):
            yield start, stop, max(went, cover.number)

    def _cut_where_lacking(self, cover: _Cover, start: int, stop: int) -> Iterable[tuple[int, int]]:
        """Cut a stretch wherever other members of its regions lack it."""
        if not cover.lacking:
            return ((start, stop),)
        cuts = {start, stop}
        for config in cover.lacking:
            cuts.update(begin for begin, _, _ in self._lacks_of(config).stretches((start, stop)))
        return pairwise(sorted(cuts))

    def _members_at(self, cover: _Cover, group: int) -> tuple[Member, ...]:
        lacking = tuple([self._lacks_of(config).at(group) for config in cover.lacking]) if cover.lacking else ()
        members = cover.members.get(lacking)
        if members is None:
            members = cover.members[lacking] = self._put_together(cover, lacking)
        return members

    def _put_together(self, cover: _Cover, lacking: tuple[int, ...]) -> tuple[Member, ...]:
        self.tuples_made += 1
        masks = {config.region: mask for config, mask in zip(cover.lacking, lacking, strict=True)}
        aged: list[tuple[int, Member]] = []
        for config in cover.regions:
            mask = masks.get(config.region, 0)
            those = zip(config.ages, config.members, strict=True)
            aged += those if not mask else (each for index, each in enumerate(those) if not mask >> index & 1)
        return tuple(member for _, member in sorted(aged))

    def _cover(self, mask: int) -> _Cover:
        cover = self._covers.get(mask)
        if cover is None:
            regions = tuple(self.regions[each] for each in sorted(self._by_slot[slot] for slot in numbers_in(mask)))
            lacking = tuple(config for config in regions if config.lacks)
            cover = _Cover(regions, max(config.view for config in regions), lacking, {})
            self._covers[mask] = cover
        return cover

    def _lacks_of(self, config: RegionConfig) -> GroupIndex:
        """Return which members of a region lack which groups; they are numbered as the region lists them."""
        lacks = self._lacks.get(config.region)
        if lacks is None:
            lacks = self._lacks[config.region] = GroupIndex()
            for index, member in enumerate(config.members):
                if member in config.lacks:
                    lacks.flip(index, config.lacks[member])
        return lacks

    def regions_of(self, group: GroupId) -> tuple[RegionConfig, ...]:
        """List the regions of a group, by their ids."""
        return self._cover(self._index.at(group)).regions

    def members_of(self, group: GroupId) -> tuple[Member, ...]:
        """List the members of a group, oldest first."""
        return self._members_at(self._cover(self._index.at(group)), group)

    def group_view(self, group: GroupId) -> ViewNumber:
        """Return the number of a group's view; 0 if no region of it is known."""
        mask = self._index.at(group)
        return ViewNumber(max(self._went.at(group), self._cover(mask).number) if mask else 0)

    def _note_endpoints(self, changes: ConfigurationChanges) -> None:
        for record in (*changes.passed, *changes.regions):
            for each in record.members:
                # Put last, so that the first ones are those longest unheard of.
                self.endpoints.pop(NodeId(each.node), None)
                self.endpoints[NodeId(each.node)] = Endpoint(each.host, each.port)
        if len(self.endpoints) <= self._gone_endpoints_max:
            return
        present = {member.node for region in self.regions.values() for member in region.members}
        surplus = len(self.endpoints) - len(present) - self._gone_endpoints_max
        if surplus > 0:
            for node in [node for node in self.endpoints if node not in present][:surplus]:
                del self.endpoints[node]
