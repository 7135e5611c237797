"""What a new configuration says of members and groups that came and went, told to regions and to the trace."""

from collections.abc import Collection

from vivum.core.ids import Member
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.client.client import MembershipClient
from vivum.protocols.qsm.region import RegionMember


def note_departures(client: MembershipClient, regions: Collection[RegionMember]) -> set[Member]:
    """Who is in no region that we know, was dropped or left us: nobody waits for it if it does not answer."""
    present = {member for config in client.regions.values() for member in config.members}
    for each in regions:
        # Of groups that our own region does not have any more, we do not hear who is still there.
        wanted = RangeSet.from_bounds(each.config.groups)
        if client.own_region is not None:
            wanted.difference_update(RangeSet.from_bounds(client.own_region.groups))
        for member in each.config.members if not wanted else ():
            if member not in present and member.node not in each.ladder.gone:
                each.forget_node(member.node)
        for sender, stream in each.streams.items():
            stream.sender_gone = sender not in present
    return present
