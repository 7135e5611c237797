"""Virtual synchrony: two lives that go from one view to the same next view delivered the same messages in
the first.

In which view a message was delivered is told by the delivery's `view`, which must be the view that the
receiver installed last. A life that crashes or leaves in a view owes nothing for it. A reported loss is no
excuse: a member that cannot have what the others have must not go on with them.

Not seen here: differences in the last view of a run, which nobody has left yet (`all_delivered`), and
order.

Cost: range sets of what each life delivered in its present view, and one such set for each pair of
successive views.
"""

from vivum.checkers.checker import Checker, RecentDeliveries, describe, message_of
from vivum.core.ranges import RangeSet
from vivum.observe.trace import GroupJoined, GroupLeft, MessageDelivered, ViewInstalled


class _Present:
    """The view that a life is in, and what it has delivered there, by sender's life."""

    __slots__ = ("delivered", "installed")

    def __init__(self, installed: ViewInstalled) -> None:
        self.installed = installed
        self.delivered: dict[tuple[int, int], RangeSet] = {}


class VirtualSynchrony(Checker):
    """Finds survivors of a view that disagree on what was delivered in it.

    Witnesses: the delivery that only one of them made, then the next view as each of the two installed it.
    """

    name = "virtual_synchrony"

    def __init__(self) -> None:
        super().__init__()
        self._present: dict[tuple[int, int, int], _Present] = {}
        self._ended: dict[tuple[int, int, int], tuple[_Present, ViewInstalled]] = {}
        self._recent = RecentDeliveries()

    def on_group_joined(self, record: GroupJoined) -> None:
        """Begin a stay in no view."""
        self._present.pop((record.node, record.incarnation, record.group), None)

    def on_group_left(self, record: GroupLeft) -> None:
        """End a stay; nothing is owed for its last view."""
        self._present.pop((record.node, record.incarnation, record.group), None)

    def on_message_delivered(self, record: MessageDelivered) -> None:
        """Count a delivery to the receiver's present view."""
        present = self._present.get((record.node, record.incarnation, record.group))
        self._recent.remember(record)
        if present is None or record.view != present.installed.view:
            if present is not None or record.view != 0:
                self._report_wrong_view(record, present)
            return
        stream = (record.sender, record.sender_incarnation)
        had = present.delivered.get(stream)
        if had is None:
            had = present.delivered[stream] = RangeSet()
        had.add(record.sequence)

    def on_view_installed(self, record: ViewInstalled) -> None:
        """Compare what was delivered in the view that ends with what others had who went the same way."""
        life = (record.node, record.incarnation, record.group)
        present = self._present.get(life)
        self._present[life] = _Present(record)
        if present is None:
            return
        step = (record.group, present.installed.view, record.view)
        other, other_next = self._ended.setdefault(step, (present, record))
        if other is not present and other.delivered != present.delivered:
            self._report_difference(other, other_next, present, record)

    def _report_wrong_view(self, record: MessageDelivered, present: _Present | None) -> None:
        now = "it had installed none" if present is None else f"it was in view {present.installed.view}"
        self.report(
            f"{record.node}.{record.incarnation} delivered {describe(message_of(record))} "
            f"in view {record.view}, but {now}",
            None if present is None else present.installed,
            record,
        )

    def _report_difference(
        self, other: _Present, other_next: ViewInstalled, present: _Present, record: ViewInstalled
    ) -> None:
        only_other, only_here = _without(other, present), _without(present, other)
        has, lacks = (other_next, record) if only_other else (record, other_next)
        (sender, incarnation), extra = next(iter((only_other or only_here).items()))
        message = (record.group, sender, incarnation, extra.first())
        count = sum(each.count() for each in (*only_other.values(), *only_here.values()))
        self.report(
            f"{has.node}.{has.incarnation} and {lacks.node}.{lacks.incarnation} went from view "
            f"{present.installed.view} to {record.view} of group {record.group}, but only "
            f"{has.node}.{has.incarnation} delivered {describe(message)}; they differ in {count} in all",
            self._recent.find((has.node, has.incarnation), message) if self.has_room else None,
            other_next,
            record,
        )


def _without(one: _Present, other: _Present) -> dict[tuple[int, int], RangeSet]:
    """List what one delivered and the other did not, by sender's life."""
    result = {}
    for stream, had in sorted(one.delivered.items(), key=lambda item: item[0]):
        extra = had.copy()
        extra.difference_update(other.delivered.get(stream, RangeSet()))
        if extra:
            result[stream] = extra
    return result
