"""View agreement: who installs a view of a group sees the same members, in the same order, as all others
who install it.

Also: a life's views of a group have rising numbers, across leaving and joining again too; a life that
installs a view is a member of it; no member is listed twice. The order counts because rank by age elects
leaders. And of messages: who has installed a view sends in the one that it installed last, and everybody delivers
a message as one of the view that it was sent in.

Not seen here: two sides of a partition that install different views under different numbers.
"""

from bisect import bisect_right

from vivum.checkers.checker import Checker, describe, message_of
from vivum.observe.trace import GroupLeft, MessageDelivered, MessageSent, ViewInstalled


class ViewAgreement(Checker):
    """Finds views that differ or go back. Witnesses: the earlier installation, the later one."""

    name = "view_agreement"

    def __init__(self) -> None:
        super().__init__()
        self._views: dict[tuple[int, int], ViewInstalled] = {}
        self._last: dict[tuple[int, int, int], ViewInstalled] = {}
        self._present: dict[tuple[int, int, int], ViewInstalled] = {}
        # For every stream: from which message on it was in which view.
        self._sent: dict[tuple[int, int, int], tuple[list[int], list[MessageSent]]] = {}

    def on_view_installed(self, record: ViewInstalled) -> None:
        """Compare a view with the same view at others, and with this life's view before."""
        who = f"{record.node}.{record.incarnation}"
        which = f"view {record.view} of group {record.group}"
        first = self._views.setdefault((record.group, record.view), record)
        if first.members != record.members:
            other = "in another order" if sorted(first.members) == sorted(record.members) else "with other members"
            self.report(f"{who} installed {which} {other} than {first.node}.{first.incarnation} did", first, record)
        life = (record.node, record.incarnation, record.group)
        before = self._last.get(life)
        if record.view <= (0 if before is None else before.view):
            after = "no view" if before is None else f"view {before.view}"
            self.report(f"{who} installed {which} after {after}; numbers must rise", before, record)
        self._last[life] = self._present[life] = record
        if who not in record.members:
            self.report(f"{who} installed {which}, of which it is not a member", record)
        if len(set(record.members)) != len(record.members):
            self.report(f"{who} installed {which}, which lists a member twice", record)

    def on_group_left(self, record: GroupLeft) -> None:
        """End a stay: a later one may send before its first view is traced, and then in none."""
        self._present.pop((record.node, record.incarnation, record.group), None)

    def on_message_sent(self, record: MessageSent) -> None:
        """Compare the view of a message with the sender's own, and remember it."""
        stream = (record.node, record.incarnation, record.group)
        present = self._present.get(stream)
        if present is not None and present.view != record.view:
            self.report(
                f"{record.node}.{record.incarnation} sent {describe(message_of(record))} in view {record.view}, "
                f"but it was in view {present.view}",
                present,
                record,
            )
        starts, records = self._sent.setdefault(stream, ([], []))
        if not records or records[-1].view != record.view:
            starts.append(record.sequence)
            records.append(record)

    def on_message_delivered(self, record: MessageDelivered) -> None:
        """Compare the view of a delivery with that of its message."""
        starts, records = self._sent.get((record.sender, record.sender_incarnation, record.group), ([], []))
        index = bisect_right(starts, record.sequence) - 1
        if index >= 0 and records[index].view != record.view:
            self.report(
                f"{record.node}.{record.incarnation} delivered {describe(message_of(record))} as one of view "
                f"{record.view}, but it was sent in view {records[index].view}",
                records[index],
                record,
            )
