"""No duplicate: in one stay, a message is delivered at most once.

Cost: one range set for each stream and stay, so memory grows with the holes in what was delivered, not
with its amount.
"""

from vivum.checkers.checker import Checker, RecentDeliveries, describe, message_of
from vivum.core.ranges import RangeSet
from vivum.observe.trace import GroupJoined, GroupLeft, MessageDelivered


class NoDuplicate(Checker):
    """Finds a message that was delivered again. Witnesses: the earlier delivery, the later one."""

    name = "no_duplicate"

    def __init__(self) -> None:
        super().__init__()
        self._stays: dict[tuple[int, int, int], dict[tuple[int, int], RangeSet]] = {}
        self._recent = RecentDeliveries()

    def on_group_joined(self, record: GroupJoined) -> None:
        """Begin a new stay, in which everything may be delivered once."""
        self._stays.pop((record.node, record.incarnation, record.group), None)

    def on_group_left(self, record: GroupLeft) -> None:
        """End the stay and forget it."""
        self._stays.pop((record.node, record.incarnation, record.group), None)

    def on_message_delivered(self, record: MessageDelivered) -> None:
        """Put the message into what this stay has."""
        stay = self._stays.setdefault((record.node, record.incarnation, record.group), {})
        stream = (record.sender, record.sender_incarnation)
        had = stay.get(stream)
        if had is None:
            had = stay[stream] = RangeSet()
        if not had.add(record.sequence):
            self._report_again(record)
        self._recent.remember(record)

    def _report_again(self, record: MessageDelivered) -> None:
        message = message_of(record)
        earlier = self._recent.find((record.node, record.incarnation), message) if self.has_room else None
        self.report(
            f"{record.node}.{record.incarnation} delivered {describe(message)} twice",
            earlier,
            record,
        )
