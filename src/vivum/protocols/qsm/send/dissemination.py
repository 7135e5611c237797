"""How frames get to the members of a group: chosen by cost, in small pure functions.

Three ways (seed 001, section 2): IP multicast to each region, one frame for each; *hybrid*, one IP multicast to the
whole group with recovery by region, for groups of many small regions; unicast to each member. The way of a group
follows from its regions alone, which all its members know, so that receivers know where to listen without being told.
Streams are shared by groups, so between multicast and unicast each region decides for itself.

Groups with the same regions are a *bundle*: they share a channel, and frames. Channels are a budget (joining too many
addresses costs every host): bundles that fall on one channel hear each other, and drop what is not for them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from vivum.core.ids import Channel, Endpoint, NodeId
from vivum.protocols.membership.region_config import RegionConfig
from vivum.protocols.membership.service.regions import REGION_CHANNELS
from vivum.protocols.qsm.settings import QsmSettings
from vivum.wire.codec import HEADER_BYTES
from vivum.wire.spread import ENTRY_BYTES, ENTRY_BYTES_MAX

UNICAST_MEMBERS_MAX = 1
"""Up to so many receivers unicast costs no more than multicast."""

SPREAD_CHANNELS_MAX = 1024
"""Channels that a driver has addresses for, above those of regions."""

COPY_COST = 0.1
"""What a copy in the network and at a receiver costs, beside a datagram that the sender makes."""

_ROOM_BYTES = HEADER_BYTES + 40
"""What a frame for several regions has besides its list, without a byte of a message."""


class Way(Enum):
    """How the frames of a group travel."""

    PER_REGION = "a multicast to each region"
    HYBRID = "one multicast to the group, recovery by region"
    UNICAST = "a copy to each member"


class Cost(NamedTuple):
    """What it takes to bring a frame's worth of messages to all members of a group."""

    datagrams: float
    """That the sender makes."""

    copies: float
    """That the network makes of them, and members receive."""

    addresses: int
    """That every member listens to, besides the one of its region."""

    def total(self, address_cost: float) -> float:
        """Weigh all three, in datagrams."""
        return self.datagrams + COPY_COST * self.copies + address_cost * self.addresses


def spread_regions_max(frame_bytes: int) -> int:
    """Tell for how many regions a frame can be at once, and still carry an eighth of messages."""
    return max(0, frame_bytes - frame_bytes // 8 - _ROOM_BYTES) // ENTRY_BYTES_MAX


def cost_of(way: Way, sizes: Sequence[int], frame_bytes: int) -> Cost:
    """Reckon what a way costs a group, given the members in each of its regions, the sender included."""
    receivers = sum(sizes) - 1
    match way:
        case Way.UNICAST:
            return Cost(receivers, receivers, 0)
        case Way.PER_REGION:
            # Nobody sends into a region that has nobody else.
            return Cost(len(sizes) if max(sizes) > 1 else len(sizes) - 1, receivers, 0)
        case Way.HYBRID:
            # The list takes room from messages, so that they need more frames.
            frames = frame_bytes / (frame_bytes - ENTRY_BYTES * len(sizes))
            return Cost(frames, frames * receivers, 1)


def choose_way(sizes: Sequence[int], settings: QsmSettings) -> Way:
    """Choose the cheapest way for a group, given the members in each of its regions."""
    if not settings.multicast or sum(sizes) <= 1:
        return Way.UNICAST
    ways = [Way.UNICAST, Way.PER_REGION]
    frame_bytes = settings.frame_bytes_max
    if settings.spread_channels and 2 <= len(sizes) <= spread_regions_max(frame_bytes):
        ways.append(Way.HYBRID)
    # The first of those that cost the same: the one that burdens others least.
    return min(ways, key=lambda way: cost_of(way, sizes, frame_bytes).total(settings.spread_address_cost))


def choose_destinations(
    others: Sequence[NodeId], channel: Channel, endpoints: Mapping[NodeId, Endpoint], multicast: bool
) -> tuple[Endpoint | Channel, ...]:
    """Decide where to send so that all these members of a region get a frame."""
    if multicast and len(others) > UNICAST_MEMBERS_MAX:
        return (channel,)
    return tuple(endpoints[node] for node in others)


class SpreadPlan:
    """Which groups of a region go the hybrid way, and on which channels; the same for all who know the same regions."""

    __slots__ = ("_channels", "_starts", "channels")

    def __init__(self, own: RegionConfig | None, regions: Iterable[RegionConfig], settings: QsmSettings) -> None:
        """Plan for all groups that the own region covers; `regions` has every region that shares one of them."""
        self.channels: set[Channel] = set()
        self._starts: list[int] = []
        self._channels: list[Channel | None] = []
        if own is None or not settings.multicast or not settings.spread_channels:
            return
        # One walk over the numbers of groups, from bound to bound; the regions that cover a number are a set of bits.
        ordered = sorted(regions, key=lambda each: each.region)
        mine = next(index for index, each in enumerate(ordered) if each.region == own.region)
        turns: dict[int, int] = {}
        for index, each in enumerate(ordered):
            for bound in each.groups:
                turns[bound] = turns.get(bound, 0) ^ 1 << index
        chosen: dict[int, Channel | None] = {}
        cover = 0
        for bound in sorted(turns):
            cover ^= turns[bound]
            channel = None
            if cover >> mine & 1:
                if cover not in chosen:
                    sizes = [len(each.members) for index, each in enumerate(ordered) if cover >> index & 1]
                    is_hybrid = choose_way(sizes, settings) is Way.HYBRID
                    # A bundle is named by its lowest group, so that its channel stays when its regions change.
                    chosen[cover] = spread_channel(bound, settings.spread_channels) if is_hybrid else None
                channel = chosen[cover]
            if not self._channels or self._channels[-1] != channel:
                self._starts.append(bound)
                self._channels.append(channel)
        self.channels.update(channel for channel in chosen.values() if channel is not None)

    def channel_of(self, group: int) -> Channel | None:
        """Tell the channel of a group that goes the hybrid way; None for all others."""
        place = bisect_right(self._starts, group)
        return self._channels[place - 1] if place else None


def spread_channel(group: int, channels: int) -> Channel:
    """Find the channel of the bundle that is named by this group."""
    # Neighbours fall on different channels, and so do groups that are a power of two apart.
    return Channel(REGION_CHANNELS + (group * 2654435761 >> 7) % min(channels, SPREAD_CHANNELS_MAX))
