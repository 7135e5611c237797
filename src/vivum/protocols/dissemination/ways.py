"""How frames get to the members of a group: strategies, of which the cheapest is chosen, without state.

Three ways (seed 001, section 2): IP multicast to each region, one frame for each; *hybrid*, one IP multicast to the
whole group with recovery by region, for groups of many small regions; unicast to each member. The way of a group
follows from its regions alone, which all its members know, so that receivers know where to listen without being told.
Streams are shared by groups, so between multicast and unicast each region decides for itself. A further way is a class
with its cost and destinations, and an entry in `WAYS`.

Groups with the same regions are a *bundle*: they share a channel, and frames. Channels are a budget (joining too many
addresses costs every host): bundles that fall on one channel hear each other, and drop what is not for them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, Protocol

from vivum.core.ids import Channel, Endpoint, NodeId
from vivum.protocols.membership.region_config import RegionConfig
from vivum.protocols.membership.service.regions import REGION_CHANNELS
from vivum.wire.codec import HEADER_BYTES
from vivum.wire.spread import ENTRY_BYTES, ENTRY_BYTES_MAX

SPREAD_CHANNELS_MAX = 1024
"""Channels that a driver has addresses for, above those of regions."""

COPY_COST = 0.1
"""What a copy in the network and at a receiver costs, beside a datagram that the sender makes."""

_ROOM_BYTES = HEADER_BYTES + 40
"""What a frame for several regions has besides its list, without a byte of a message."""


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


class Means(NamedTuple):
    """What nodes of a domain have to send with, the same for all of them."""

    multicast: bool
    frame_bytes: int = 0
    spread_channels: int = 0
    address_cost: float = 0
    """What an address that every member listens to is worth, in datagrams."""


class Way(Protocol):
    """A strategy to bring frames to the members of a group. `WAYS` has all that there are."""

    spans_regions: bool
    """A frame goes to all regions of the group at once, on a channel of the group's bundle."""

    def cost(self, sizes: Sequence[int], means: Means) -> Cost | None:
        """Reckon what it costs, given the members in each region, the sender included; None where it cannot be used."""
        ...

    def destinations(
        self, others: Sequence[NodeId], channel: Channel, endpoints: Mapping[NodeId, Endpoint]
    ) -> tuple[Endpoint | Channel, ...]:
        """Return where to send so that all these get a frame; `channel` is that of the region, or of the bundle."""
        ...


class Unicast:
    """A copy to each member."""

    spans_regions = False

    def cost(self, sizes: Sequence[int], means: Means) -> Cost:  # noqa: ARG002
        """Reckon a datagram for each receiver."""
        receivers = sum(sizes) - 1
        return Cost(receivers, receivers, 0)

    def destinations(
        self,
        others: Sequence[NodeId],
        channel: Channel,  # noqa: ARG002
        endpoints: Mapping[NodeId, Endpoint],
    ) -> tuple[Endpoint | Channel, ...]:
        """Return the endpoint of each."""
        return tuple(endpoints[node] for node in others)


class PerRegion:
    """A multicast to each region."""

    spans_regions = False

    def cost(self, sizes: Sequence[int], means: Means) -> Cost | None:
        """Reckon a datagram for each region; none for one that has nobody else."""
        if not means.multicast:
            return None
        return Cost(len(sizes) if max(sizes) > 1 else len(sizes) - 1, sum(sizes) - 1, 0)

    def destinations(
        self,
        others: Sequence[NodeId],  # noqa: ARG002
        channel: Channel,
        endpoints: Mapping[NodeId, Endpoint],  # noqa: ARG002
    ) -> tuple[Endpoint | Channel, ...]:
        """Return the channel of the region."""
        return (channel,)


class Hybrid(PerRegion):
    """One multicast to the group, recovery by region."""

    spans_regions = True

    def cost(self, sizes: Sequence[int], means: Means) -> Cost | None:
        """Reckon one frame and a bit: the list of regions takes room from messages, so that they need more frames."""
        if not (means.multicast and means.spread_channels and 2 <= len(sizes) <= spread_regions_max(means.frame_bytes)):
            return None
        frames = means.frame_bytes / (means.frame_bytes - ENTRY_BYTES * len(sizes))
        return Cost(frames, frames * (sum(sizes) - 1), 1)


UNICAST = Unicast()
PER_REGION = PerRegion()
HYBRID = Hybrid()

WAYS: tuple[Way, ...] = (UNICAST, PER_REGION, HYBRID)
"""All ways. Of those that cost the same the first is taken: the one that burdens others least."""


def spread_regions_max(frame_bytes: int) -> int:
    """Return for how many regions a frame can be at once, and still carry an eighth of messages."""
    return max(0, frame_bytes - frame_bytes // 8 - _ROOM_BYTES) // ENTRY_BYTES_MAX


def cheapest(sizes: Sequence[int], means: Means, ways: Sequence[Way] = WAYS) -> Way:
    """Choose the way that costs least, given the members in each region, the sender included."""
    costs = [(way, way.cost(sizes, means)) for way in ways]
    return min(((way, cost.total(means.address_cost)) for way, cost in costs if cost is not None), key=itemgetter(1))[0]


def choose_destinations(
    others: Sequence[NodeId],
    channel: Channel,
    endpoints: Mapping[NodeId, Endpoint],
    multicast: bool,
    ways: Sequence[Way] = WAYS,
) -> tuple[Endpoint | Channel, ...]:
    """Decide where to send so that all these members of a region get a frame."""
    # What spans regions is no choice for one of them, and addresses beside the region's play no part.
    return cheapest((len(others) + 1,), Means(multicast), ways).destinations(others, channel, endpoints)


class SpreadPlan:
    """Which groups of a region go the hybrid way, and on which channels; the same for all who know the same regions."""

    __slots__ = ("_channels", "_starts", "channels")

    def __init__(self, own: RegionConfig | None, regions: Iterable[RegionConfig], means: Means) -> None:
        """Plan for all groups of the own region; `regions` has every region that shares one of them."""
        self.channels: set[Channel] = set()
        self._starts: list[int] = []
        self._channels: list[Channel | None] = []
        if own is None or not means.multicast or not means.spread_channels:
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
                    is_spread = cheapest(sizes, means).spans_regions
                    # A bundle is named by its lowest group, so that its channel stays when its regions change.
                    chosen[cover] = spread_channel(bound, means.spread_channels) if is_spread else None
                channel = chosen[cover]
            if not self._channels or self._channels[-1] != channel:
                self._starts.append(bound)
                self._channels.append(channel)
        self.channels.update(channel for channel in chosen.values() if channel is not None)

    def channel_of(self, group: int) -> Channel | None:
        """Return the channel of a group whose frames span regions; None for all others."""
        place = bisect_right(self._starts, group)
        return self._channels[place - 1] if place else None


def spread_channel(group: int, channels: int) -> Channel:
    """Return the channel of the bundle that is named by this group."""
    # Neighbours fall on different channels, and so do groups that are a power of two apart.
    return Channel(REGION_CHANNELS + (group * 2654435761 >> 7) % min(channels, SPREAD_CHANNELS_MAX))
