"""On which channels a node listens: those of its region views, and those of groups that go the hybrid way.

A channel that is not needed any more stays open for a while, since senders that have not heard of a change still use
it. A sender uses a new one only after a while, since receivers that have not heard of it yet do not listen.

Invariant: what `update` told to open and not to close is exactly `_open`.
"""

from collections.abc import Iterable

from vivum.core.ids import Channel, GroupId
from vivum.core.machine import ChannelClosed, ChannelOpened, Event
from vivum.protocols.dissemination.ways import Means, SpreadPlan
from vivum.protocols.membership.region_config import RegionConfig


class Channels:
    """The channels of one node."""

    def __init__(self, means: Means, delay_ns: int, linger_ns: int) -> None:
        """Listen nowhere. A new channel is used after `delay_ns`, one that is not planned any more kept `linger_ns`."""
        self._means = means
        self._delay_ns = delay_ns
        self._linger_ns = linger_ns
        self._plan = SpreadPlan(None, (), means)
        # Channels of hybrid groups: since when they are planned; until when those stay open that no longer are.
        self._since_ns: dict[Channel, int] = {}
        self._until_ns: dict[Channel, int] = {}
        self._open: set[Channel] = set()

    def plan(self, now_ns: int, own: RegionConfig | None, regions: Iterable[RegionConfig]) -> None:
        """Follow a new configuration."""
        self._plan = SpreadPlan(own, regions, self._means)
        planned = self._plan.channels
        for channel in self._since_ns.keys() - planned:
            del self._since_ns[channel]
            self._until_ns[channel] = now_ns + self._linger_ns
        for channel in planned:
            self._since_ns.setdefault(channel, now_ns)
            self._until_ns.pop(channel, None)

    def spread_channel_of(self, now_ns: int, group: GroupId) -> Channel | None:
        """Return where to send for a group, if it goes the hybrid way and its members have had time to hear of that."""
        if not self._since_ns:
            # Nothing is planned, as nearly everywhere.
            return None
        channel = self._plan.channel_of(group)
        if channel is None or now_ns - self._since_ns[channel] < self._delay_ns:
            return None
        return channel

    def update(self, now_ns: int, of_regions: Iterable[Channel]) -> list[Event]:
        """Return what to open and to close, so that these channels are open and those of hybrid groups."""
        for channel in [each for each, until_ns in self._until_ns.items() if until_ns <= now_ns]:
            del self._until_ns[channel]
        wanted = set(of_regions) | self._since_ns.keys() | self._until_ns.keys()
        if wanted == self._open:
            return []
        events: list[Event] = [ChannelOpened(channel) for channel in sorted(wanted - self._open)]
        events += [ChannelClosed(channel) for channel in sorted(self._open - wanted)]
        self._open = wanted
        return events

    def forget(self) -> None:
        """This life is over; the next `update` closes everything."""
        self._plan = SpreadPlan(None, (), self._means)
        self._since_ns.clear()
        self._until_ns.clear()
