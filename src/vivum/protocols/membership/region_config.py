"""One view of one region, as the protocols in a node see it."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from vivum.core.ids import Channel, Incarnation, Member, NodeId, RegionId, ViewNumber
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.service.regions import Bounds
from vivum.wire.membership import RegionRecord


@dataclass(frozen=True, slots=True)
class RegionConfig:
    """One view of one region."""

    region: RegionId
    view: ViewNumber
    channel: Channel
    members: tuple[Member, ...]
    """Oldest first."""

    ages: tuple[int, ...]
    """Rank by age in the domain, of each member; lower is older."""

    groups: Bounds
    """Bounds of the ranges of groups that it covers."""

    lacks: Mapping[Member, Bounds]
    """Covered groups that a member did not ask for. Empty unless the region is an approximate one."""

    def lacks_group(self, member: Member, group: int) -> bool:
        """Return whether a member hears a group that it did not ask for, and must drop its messages."""
        bounds = self.lacks.get(member)
        return bounds is not None and bisect_right(bounds, group) % 2 == 1

    def groups_of(self, member: Member) -> RangeSet:
        """Return the groups that a member asked for."""
        groups = RangeSet.from_bounds(self.groups)
        if member in self.lacks:
            groups.difference_update(RangeSet.from_bounds(self.lacks[member]))
        return groups


def config_of(record: RegionRecord) -> RegionConfig:
    """Read a record of the wire."""
    members = tuple(Member(NodeId(each.node), Incarnation(each.incarnation)) for each in record.members)
    return RegionConfig(
        RegionId(record.region),
        ViewNumber(record.view),
        Channel(record.channel),
        members,
        tuple(each.age for each in record.members),
        record.groups,
        {members[index]: bounds for index, bounds in record.lacks},
    )
