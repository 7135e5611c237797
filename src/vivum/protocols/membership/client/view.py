"""What a node knows of the configuration: the two-level, versioned structure of seed 001, Figure 2.

Region views are told by the service. Group views are derived from them: the members of a group are those of all its
regions, and the number of its view is the last epoch in which one of these changed, appeared or went. So two nodes
that know the same regions derive the same views, and a change in a region of 8,192 groups costs one record.

Invariants: views of regions never go back; every region shares a group with the own one, or is it.
"""

from collections.abc import Iterable

from vivum.core.ids import Endpoint, GroupId, Member, NodeId, RegionId, ViewNumber
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.client.changes import ConfigurationChanged
from vivum.protocols.membership.group_epochs import GroupEpochs
from vivum.protocols.membership.region_config import RegionConfig, config_of
from vivum.wire.membership import ConfigurationChanges

ENDPOINTS_HEARD_MAX = 65_536
"""Endpoints known, beyond which none is taken from hearsay: as many as a service has nodes."""


class ConfigurationView:
    """All regions that concern one node, at one epoch."""

    def __init__(self, gone_endpoints_max: int) -> None:
        self.epoch = 0
        self.regions: dict[RegionId, RegionConfig] = {}
        self.endpoints: dict[NodeId, Endpoint] = {}
        self._gone_endpoints_max = gone_endpoints_max
        self._went = GroupEpochs()
        self._regions_of: dict[int, tuple[RegionConfig, ...]] = {}
        self._members_of: dict[int, tuple[Member, ...]] = {}

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
        before: dict[RegionId, RegionConfig | None] = {}
        after: dict[RegionId, RegionConfig | None] = {}
        for region in gone:
            known = self.regions.pop(region, None)
            if known is not None:
                before[region], after[region] = known, None
        for region, record in told.items():
            known = self.regions.get(region)
            if known is None or known.view != record.view:
                before[region] = known
                after[region] = self.regions[region] = config_of(record)
        for went_epoch, bounds in changes.went:
            self._went.set_groups(RangeSet.from_bounds(bounds), went_epoch)
        self._note_endpoints(changes)
        self._regions_of.clear()
        self._members_of.clear()
        return ConfigurationChanged(epoch, before, after, passed, unseen)

    def forget(self) -> None:
        """Go back to knowing nothing, as a new life does. Endpoints stay: old streams may still need them."""
        self.epoch = 0
        self.regions.clear()
        self._went.clear()
        self._regions_of.clear()
        self._members_of.clear()

    def regions_of(self, group: GroupId) -> tuple[RegionConfig, ...]:
        """List the regions of a group, by their ids."""
        found = self._regions_of.get(group)
        if found is None:
            regions = sorted(self.regions)
            found = tuple(self.regions[each] for each in regions if self.regions[each].has_group(group))
            self._regions_of[group] = found
        return found

    def members_of(self, group: GroupId) -> tuple[Member, ...]:
        """List the members of a group, oldest first."""
        found = self._members_of.get(group)
        if found is None:
            aged = [
                (age, member)
                for region in self.regions_of(group)
                for age, member in zip(region.ages, region.members, strict=True)
                if not region.lacks_group(member, group)
            ]
            found = tuple(member for _, member in sorted(aged))
            self._members_of[group] = found
        return found

    def group_view(self, group: GroupId) -> ViewNumber:
        """Tell the number of a group's view; 0 if no region of it is known."""
        regions = self.regions_of(group)
        if not regions:
            return ViewNumber(0)
        return ViewNumber(max(self._went.at(group), *(region.view for region in regions)))

    def note_endpoint(self, node: NodeId, endpoint: Endpoint) -> None:
        """Remember where a node is that no configuration told of: it left before we came, and still speaks to us."""
        if node not in self.endpoints and len(self.endpoints) < ENDPOINTS_HEARD_MAX:
            self.endpoints[node] = endpoint

    def _note_endpoints(self, changes: ConfigurationChanges) -> None:
        for record in (*changes.passed, *changes.regions):
            for each in record.members:
                # Put last, so that the first ones are those longest unheard of.
                self.endpoints.pop(NodeId(each.node), None)
                self.endpoints[NodeId(each.node)] = Endpoint(each.host, each.port)
        present = {member.node for region in self.regions.values() for member in region.members}
        surplus = len(self.endpoints) - len(present) - self._gone_endpoints_max
        if surplus > 0:
            for node in [node for node in self.endpoints if node not in present][:surplus]:
                del self.endpoints[node]
