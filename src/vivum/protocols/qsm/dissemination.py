"""How frames of a stream get to their region: chosen by cost, a small pure function.

Per-region IP multicast is one send whatever the size. Unicast sends a copy to each member, and is as cheap for one
receiver without touching the budget of multicast addresses (joining too many costs every host, seed 001, section 2).
"""

from collections.abc import Mapping, Sequence

from vivum.core.ids import Channel, Endpoint, NodeId

UNICAST_MEMBERS_MAX = 1
"""Up to so many receivers unicast costs no more than multicast."""


def choose_destinations(
    others: Sequence[NodeId], channel: Channel, endpoints: Mapping[NodeId, Endpoint], multicast: bool
) -> tuple[Endpoint | Channel, ...]:
    """Decide where to send so that all these members get a frame."""
    if multicast and len(others) > UNICAST_MEMBERS_MAX:
        return (channel,)
    return tuple(endpoints[node] for node in others)
