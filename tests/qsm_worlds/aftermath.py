"""What QSM promises beyond the checkers that every protocol has, for use after the network healed.

All that a life sent which lasts to the end was confirmed or reported as failed, once. Nobody was told of a gap in what
a living sender sent, unless that was told too: who cannot get what others have starts a new life instead. And all who
are in a group stand in the same view of it, which has exactly them as members.
"""

from collections import Counter

from vivum.checkers.checker import Checker
from vivum.core.ranges import RangeSet
from vivum.observe.trace import (
    GroupJoined,
    GroupLeft,
    MessageSent,
    MessagesFailed,
    MessagesLost,
    MessagesStable,
    NodeStarted,
    NodeStopped,
    ViewInstalled,
)

Life = tuple[int, int]


class Aftermath(Checker):
    name = "aftermath"

    def __init__(self) -> None:
        super().__init__()
        self.failed: Counter[str] = Counter()
        self._ended: dict[Life, NodeStopped | NodeStarted] = {}
        self._open: dict[tuple[int, int, int], RangeSet] = {}
        self._failed: dict[tuple[int, int, int], RangeSet] = {}
        self._lost: list[MessagesLost] = []
        self._views: dict[tuple[int, int, int], ViewInstalled | None] = {}

    def on_node_started(self, record: NodeStarted) -> None:
        for incarnation in range(record.incarnation):
            self._ended.setdefault((record.node, incarnation), record)

    def on_node_stopped(self, record: NodeStopped) -> None:
        self._ended[record.node, record.incarnation] = record

    def on_message_sent(self, record: MessageSent) -> None:
        key = (record.node, record.incarnation, record.group)
        self._open.setdefault(key, RangeSet()).add(record.sequence)

    def on_messages_stable(self, record: MessagesStable) -> None:
        self._settle(record)

    def _settle(self, record: MessagesStable | MessagesFailed) -> None:
        left = self._open[record.node, record.incarnation, record.group]
        told = RangeSet([(record.sequence, record.stop)])
        if told.intersection(left) != told:
            told.difference_update(left)
            self.report(f"{record.node}.{record.incarnation} heard twice of {told} in group {record.group}", record)
        left.discard_range(record.sequence, record.stop)

    def on_messages_failed(self, record: MessagesFailed) -> None:
        self._settle(record)
        self.failed[record.cause] += record.stop - record.sequence
        key = (record.node, record.incarnation, record.group)
        self._failed.setdefault(key, RangeSet()).add_range(record.sequence, record.stop)

    def on_messages_lost(self, record: MessagesLost) -> None:
        self._lost.append(record)

    def on_group_joined(self, record: GroupJoined) -> None:
        self._views[record.node, record.incarnation, record.group] = None

    def on_group_left(self, record: GroupLeft) -> None:
        self._views.pop((record.node, record.incarnation, record.group), None)

    def on_view_installed(self, record: ViewInstalled) -> None:
        self._views[record.node, record.incarnation, record.group] = record

    def conclude(self) -> None:
        for (node, incarnation, group), left in self._open.items():
            if left and (node, incarnation) not in self._ended:
                what = f"{left.count()} messages in group {group}, the first {left.first()}"
                self.report(f"{node}.{incarnation} never heard what became of {what}")
        for lost in self._lost:
            sender = (lost.sender, lost.sender_incarnation)
            if sender in self._ended or (lost.node, lost.incarnation) in self._ended:
                continue
            untold = RangeSet([(lost.sequence, lost.stop)])
            untold.difference_update(self._failed.get((*sender, lost.group), RangeSet()))
            if untold:
                what = f"{untold} of {lost.sender}.{lost.sender_incarnation}, which lives, in group {lost.group}"
                self.report(f"{lost.node}.{lost.incarnation} was told that it lost {what}", lost)
        self._compare_views()

    def _compare_views(self) -> None:
        stays: dict[int, list[tuple[str, ViewInstalled | None]]] = {}
        for (node, incarnation, group), view in self._views.items():
            if (node, incarnation) not in self._ended:
                stays.setdefault(group, []).append((f"{node}.{incarnation}", view))
        for group, found in stays.items():
            names = {name for name, _ in found}
            for name, view in found:
                if view is None or set(view.members) != names:
                    seen = "no view" if view is None else f"view {view.view} with {' '.join(view.members)}"
                    self.report(f"{name} ended in {seen} of group {group}, which has {' '.join(sorted(names))}")
