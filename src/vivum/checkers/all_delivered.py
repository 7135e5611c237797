"""Completeness: what was accepted reached every member of the view that it was sent in, or somebody was told. For
use after the network healed.

A message is owed to every stay that lasts to the end of the run, in a life that lasts to the end: where anybody
installed the view that the message was sent in, to the members of that view, also to one that heard of its join
later than others sent; otherwise to those who had joined before the send. The sender owes it to itself too if it is
in the group. A second stay of one life is owed messages from its own first view on: those of earlier views were
for the stay before.

A debt is paid by delivery in that stay, by `MessagesLost` or `MessagesSkipped` at that receiver, or by
`MessagesFailed` at the sender that names the receiver. A failure that names nobody (node 0) pays only where no view
says who the members are, or where the sender has left the group since it sent the message: one that stays must serve a
member that stays. Messages of a life that ended are owed only if it had reported them as `MessagesStable`: who crashed
cannot tell any more.

A confirmation binds at once. Who is in the view of the message, and still in the group's newest view when
`MessagesStable` comes, must have had the message by then, or get it later; that the protocol ends its life
instead is no excuse. A crash is one.

A life ends with `NodeStopped`, or with `NodeStarted` of a higher incarnation. A life that was killed and left
no such record looks alive: the one who kills must record it.

Not seen here: whether a joiner ever gets into a view, promises to those who leave, and whether a loss or a failure
had a cause (`failures_explained`).
"""

from collections import deque

from vivum.checkers.checker import ENDS_FROM_OUTSIDE, WITNESSES_RECENT_MAX, Checker, message_of
from vivum.core.ranges import RangeSet
from vivum.observe.trace import (
    GroupJoined,
    GroupLeft,
    MessageDelivered,
    MessageSent,
    MessagesFailed,
    MessagesLost,
    MessagesSkipped,
    MessagesStable,
    NodeStarted,
    NodeStopped,
    ViewInstalled,
)


class _Stay:
    """A stay that lasts so far: when it began, and what it was given or told, by sender's life."""

    __slots__ = ("began", "first_view", "had", "is_first", "joined")

    def __init__(self, joined: GroupJoined, began: int, is_first: bool) -> None:
        self.joined = joined
        self.began = began
        self.is_first = is_first
        self.first_view = 0
        self.had: dict[tuple[int, int], RangeSet] = {}


class _Stream:
    """What one life sent in a group: by (number of joins before, view), and what it reported."""

    __slots__ = ("confirmed", "failed", "left_behind", "sent", "stable")

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], RangeSet] = {}
        # By the node that may lack them; 0: anybody.
        self.failed: dict[int, RangeSet] = {}
        # What it sent before it left the group, or from outside.
        self.left_behind = RangeSet()
        self.stable = RangeSet()
        # The same by the group's newest view at that moment: members outside it had left before the confirmation.
        self.confirmed: dict[int, RangeSet] = {}


class AllDelivered(Checker):
    """Finds messages that did not arrive. Witnesses: the send of the first one, the receiver's join; where the receiver
    lost its life after the confirmation, that confirmation and the end of the life too."""

    name = "all_delivered"

    def __init__(self) -> None:
        super().__init__()
        self._joins = 0
        self._stays: dict[tuple[int, int, int], _Stay] = {}
        self._streams: dict[tuple[int, int, int], _Stream] = {}
        self._ended: set[tuple[int, int]] = set()
        self._joined_before: set[tuple[int, int, int]] = set()
        self._alive: dict[int, int] = {}
        self._views: dict[tuple[int, int], frozenset[str]] = {}
        self._newest: dict[int, int] = {}
        self._recent_sends: deque[MessageSent] = deque(maxlen=WITNESSES_RECENT_MAX)
        self._recent_stable: deque[MessagesStable] = deque(maxlen=WITNESSES_RECENT_MAX)

    def on_node_started(self, record: NodeStarted) -> None:
        """End the life before, of which no end may have been recorded."""
        before = self._alive.get(record.node)
        if before is not None and before != record.incarnation:
            self._ended.add((record.node, before))
        self._alive[record.node] = record.incarnation

    def on_node_stopped(self, record: NodeStopped) -> None:
        """End a life. One that the protocol ended must have had what was confirmed while it was a member."""
        if record.cause not in ENDS_FROM_OUTSIDE:
            self._check_confirmed(record)
        self._ended.add((record.node, record.incarnation))

    def on_group_joined(self, record: GroupJoined) -> None:
        """Begin a stay."""
        self._joins += 1
        key = (record.node, record.incarnation, record.group)
        self._stays[key] = _Stay(record, self._joins, key not in self._joined_before)
        self._joined_before.add(key)

    def on_group_left(self, record: GroupLeft) -> None:
        """End a stay; nothing is owed to it any more."""
        self._stays.pop((record.node, record.incarnation, record.group), None)
        stream = self._stream(record.group, record.node, record.incarnation)
        for sent in stream.sent.values():
            stream.left_behind.update(sent)

    def on_view_installed(self, record: ViewInstalled) -> None:
        """Remember the members of a view."""
        self._views.setdefault((record.group, record.view), frozenset(record.members))
        self._newest[record.group] = max(record.view, self._newest.get(record.group, 0))
        stay = self._stays.get((record.node, record.incarnation, record.group))
        if stay is not None and not stay.first_view:
            stay.first_view = record.view

    def on_message_sent(self, record: MessageSent) -> None:
        """Note a debt to all lives that have joined by now."""
        stream = self._stream(record.group, record.node, record.incarnation)
        when = (self._joins, record.view)
        sent = stream.sent.get(when)
        if sent is None:
            sent = stream.sent[when] = RangeSet()
        sent.add(record.sequence)
        if (record.node, record.incarnation, record.group) not in self._stays:
            stream.left_behind.add(record.sequence)
        self._recent_sends.append(record)

    def on_message_delivered(self, record: MessageDelivered) -> None:
        """Note a debt paid."""
        stay = self._stays.get((record.node, record.incarnation, record.group))
        if stay is not None:
            stream = (record.sender, record.sender_incarnation)
            had = stay.had.get(stream)
            if had is None:
                had = stay.had[stream] = RangeSet()
            had.add(record.sequence)

    def on_messages_lost(self, record: MessagesLost) -> None:
        """Note that the receiver was told."""
        self._settle(record)

    def on_messages_skipped(self, record: MessagesSkipped) -> None:
        """Note that the receiver had the same from another sender."""
        self._settle(record)

    def _settle(self, record: MessagesLost | MessagesSkipped) -> None:
        stay = self._stays.get((record.node, record.incarnation, record.group))
        if stay is not None:
            had = stay.had.setdefault((record.sender, record.sender_incarnation), RangeSet())
            had.add_range(record.sequence, record.stop)

    def on_messages_failed(self, record: MessagesFailed) -> None:
        """Note that the sender was told."""
        stream = self._stream(record.group, record.node, record.incarnation)
        stream.failed.setdefault(record.receiver, RangeSet()).add_range(record.sequence, record.stop)

    def on_messages_stable(self, record: MessagesStable) -> None:
        """Note that neither the sender's crash nor the loss of a member's life is an excuse for these."""
        stream = self._stream(record.group, record.node, record.incarnation)
        stream.stable.add_range(record.sequence, record.stop)
        newest = self._newest.get(record.group, 0)
        stream.confirmed.setdefault(newest, RangeSet()).add_range(record.sequence, record.stop)
        self._recent_stable.append(record)

    def conclude(self) -> None:
        """Compare debts and payments of every stay that lasted."""
        streams: dict[int, list[tuple[tuple[int, int], _Stream]]] = {}
        for (group, node, incarnation), stream in self._streams.items():
            streams.setdefault(group, []).append(((node, incarnation), stream))
        for (node, incarnation, group), stay in self._stays.items():
            if (node, incarnation) not in self._ended:
                for sender, stream in streams.get(group, ()):
                    missing = self._missing(stay, sender, stream)
                    if sender in self._ended:
                        missing = missing.intersection(stream.stable)
                    if missing:
                        self._report(missing, stay, sender)

    def _check_confirmed(self, end: NodeStopped) -> None:
        life = f"{end.node}.{end.incarnation}"
        for (group, *sender), stream in self._streams.items():
            stay = self._stays.get((end.node, end.incarnation, group))
            if stay is None:
                continue
            confirmed = RangeSet()
            for newest, ranges in stream.confirmed.items():
                if life in self._views.get((group, newest), ()):
                    confirmed.update(ranges)
            missing = self._missing(stay, (sender[0], sender[1]), stream).intersection(confirmed)
            if missing:
                self._report(missing, stay, (sender[0], sender[1]), end)

    def _stream(self, group: int, node: int, incarnation: int) -> _Stream:
        stream = self._streams.get((group, node, incarnation))
        if stream is None:
            stream = self._streams[group, node, incarnation] = _Stream()
        return stream

    def _missing(self, stay: _Stay, sender: tuple[int, int], stream: _Stream) -> RangeSet:
        """Return what a stay was to have of a stream, did not get, and nobody was told of."""
        joined = stay.joined
        receiver = f"{joined.node}.{joined.incarnation}"
        missing, unnamed = RangeSet(), RangeSet()
        for (joins, view), sent in stream.sent.items():
            members = self._views.get((joined.group, view))
            if members is None:
                if joins >= stay.began and view >= stay.first_view:
                    unnamed.update(sent)
            elif receiver in members and self._is_of_stay(stay, view, joins):
                missing.update(sent)
        missing.update(unnamed)
        if 0 in stream.failed:
            excused = stream.left_behind.copy()
            excused.update(unnamed)
            missing.difference_update(stream.failed[0].intersection(excused))
        for told in (stream.failed.get(joined.node), stay.had.get(sender)):
            if told is not None:
                missing.difference_update(told)
        return missing

    @staticmethod
    def _is_of_stay(stay: _Stay, view: int, joins: int) -> bool:
        """Return whether a member of a view is one by this stay, not by one before."""
        if stay.is_first:
            return True
        return view >= stay.first_view if stay.first_view else joins >= stay.began

    def _report(self, missing: RangeSet, stay: _Stay, sender: tuple[int, int], end: NodeStopped | None = None) -> None:
        joined, first = stay.joined, missing.first()
        sent = confirmed = None
        if self.has_room:
            name = (joined.group, *sender, first)
            sent = next((each for each in reversed(self._recent_sends) if message_of(each) == name), None)
            if end is not None:
                confirmed = next((each for each in reversed(self._recent_stable) if _confirms(each, name)), None)
        what = "nobody was told" if end is None else "lost its life after they were confirmed"
        self.report(
            f"{joined.node}.{joined.incarnation} never delivered {missing.count()} messages of "
            f"{sender[0]}.{sender[1]} in group {joined.group}, the first {first}, and {what}",
            sent,
            joined,
            confirmed,
            end,
        )


def _confirms(record: MessagesStable, message: tuple[int, int, int, int]) -> bool:
    group, sender, incarnation, sequence = message
    stream = (record.group, record.node, record.incarnation)
    return stream == (group, sender, incarnation) and record.sequence <= sequence < record.stop
