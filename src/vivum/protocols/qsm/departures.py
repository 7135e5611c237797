"""Tell regions which members and senders a new configuration no longer has."""

from collections.abc import Collection

from vivum.core.ids import Member
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.client.client import MembershipClient
from vivum.protocols.qsm.region import RegionMember


def note_departures(client: MembershipClient, regions: Collection[RegionMember]) -> set[Member]:
    """Let regions go on without members that are in no region that we know; return those that are in one.

    Such a member was dropped, or left our groups: nobody waits for it if it does not answer.
    """
    present = {member for config in client.regions.values() for member in config.members}
    for each in regions:
        # We are not told the members of groups that our own region no longer has.
        wanted = RangeSet.from_bounds(each.config.groups)
        if client.own_region is not None:
            wanted.difference_update(RangeSet.from_bounds(client.own_region.groups))
        for member in each.config.members if not wanted else ():
            if member not in present and member.node not in each.ladder.gone:
                each.forget_node(member.node)
        for sender, stream in each.streams.items():
            stream.sender_gone = sender not in present
    return present
