"""Total order: there is one order of all messages of a group with which every stay's deliveries agree.

Receivers may miss messages, begin late and stop early; what they do deliver must fit. Disagreements that
go round three or more receivers count as well, although no two of them disagree on a pair. The order is
uniform: what a life delivered before it crashed counts like everything else. Different groups are not
compared, nor are two stays of one life. A message delivered twice in a stay, with others between, shows
here too.

Cost: 12 bytes for each delivery and about 300 for each message until the end; then linear time.
"""

from array import array
from bisect import bisect_right

from vivum.checkers.checker import Checker, describe, message_of
from vivum.checkers.cycles import Hop, find_cycles
from vivum.observe.trace import GroupJoined, GroupLeft, MessageDelivered


class _Stay:
    """What one stay delivered, in order: numbers of messages in the group, times, and changes of view."""

    __slots__ = ("incarnation", "messages", "node", "times_ns", "view_starts", "views")

    def __init__(self, node: int, incarnation: int) -> None:
        self.node = node
        self.incarnation = incarnation
        self.messages = array("I")
        self.times_ns = array("q")
        self.view_starts: list[int] = []
        self.views: list[int] = []


class _Group:
    """All stays of a group, and the first delivery of each message."""

    __slots__ = ("firsts", "numbers", "stays")

    def __init__(self) -> None:
        self.numbers: dict[tuple[int, int, int], int] = {}
        self.firsts: list[MessageDelivered] = []
        self.stays: list[_Stay] = []

    def delivery(self, stay: _Stay, place: int) -> MessageDelivered:
        """Make the record of a delivery again."""
        first = self.firsts[stay.messages[place]]
        return MessageDelivered(
            time_ns=stay.times_ns[place],
            node=stay.node,
            incarnation=stay.incarnation,
            group=first.group,
            sender=first.sender,
            sender_incarnation=first.sender_incarnation,
            sequence=first.sequence,
            view=stay.views[bisect_right(stay.view_starts, place) - 1],
            digest=first.digest,
            sent_ns=first.sent_ns,
        )


class TotalOrder(Checker):
    """Finds receivers that disagree on the order. Witnesses: of each hop of the cycle, the two deliveries."""

    name = "total_order"

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[int, _Group] = {}
        self._stays: dict[tuple[int, int, int], _Stay] = {}

    def on_group_joined(self, record: GroupJoined) -> None:
        """Begin a new stay, whose order starts afresh."""
        self._stays.pop((record.node, record.incarnation, record.group), None)

    def on_group_left(self, record: GroupLeft) -> None:
        """End the stay. What it delivered still counts."""
        self._stays.pop((record.node, record.incarnation, record.group), None)

    def on_message_delivered(self, record: MessageDelivered) -> None:
        """Append to what the stay delivered."""
        stay = self._stays.get((record.node, record.incarnation, record.group))
        if stay is None:
            stay = self._begin(record)
        group = self._groups[record.group]
        message = (record.sender, record.sender_incarnation, record.sequence)
        number = group.numbers.get(message)
        if number is None:
            number = group.numbers[message] = len(group.firsts)
            group.firsts.append(record)
        if not stay.views or stay.views[-1] != record.view:
            stay.view_starts.append(len(stay.messages))
            stay.views.append(record.view)
        stay.messages.append(number)
        stay.times_ns.append(record.time_ns)

    def conclude(self) -> None:
        """Look for cycles in each group."""
        for _, group in sorted(self._groups.items()):
            for cycle in find_cycles([stay.messages for stay in group.stays], len(group.firsts)):
                self._report(group, cycle)

    def _begin(self, record: MessageDelivered) -> _Stay:
        stay = _Stay(record.node, record.incarnation)
        group = self._groups.get(record.group)
        if group is None:
            group = self._groups[record.group] = _Group()
        group.stays.append(stay)
        self._stays[record.node, record.incarnation, record.group] = stay
        return stay

    def _report(self, group: _Group, cycle: list[Hop]) -> None:
        witnesses = []
        parts = []
        for hop in cycle:
            stay = group.stays[hop.order]
            earlier, later = group.delivery(stay, hop.start), group.delivery(stay, hop.stop)
            witnesses += [earlier, later]
            parts.append(
                f"{stay.node}.{stay.incarnation} delivered {describe(message_of(earlier))} "
                f"before {later.sequence} of {later.sender}.{later.sender_incarnation}"
            )
        self.report("no one order fits: " + ", ".join(parts), *witnesses)
