"""Completeness: what was accepted reached everybody who was there, or somebody was told. For use after the
network healed.

A message is owed to every stay that began before the send and lasts to the end of the run, in a life that lasts
to the end. The sender owes it to itself too if it is in the group. Where the view that the message was sent in
was installed by anybody, only its members are owed it: in their first stay whether they installed that view or
jumped over it; in a later stay only from its own first view on, since before that they were members by the stay
before. A view that nobody installed binds those who had come to an earlier one. A debt is paid by delivery in that
stay, by `MessagesLost` at that receiver, or by `MessagesFailed` at the sender that names the receiver or, as node 0,
nobody. Messages of a life that ended are owed only if it had reported them as `MessagesStable`: who crashed
cannot tell any more.

A life ends with `NodeStopped`, or with `NodeStarted` of a higher incarnation. A life that was killed and left
no such record looks alive: the one who kills must record it.

Not seen here: whether a joiner ever gets into a view, and promises to those who leave.
"""

from collections import deque

from vivum.checkers.checker import WITNESSES_RECENT_MAX, Checker, message_of
from vivum.core.ranges import RangeSet
from vivum.observe.trace import (
    GroupJoined,
    GroupLeft,
    MessageDelivered,
    MessageSent,
    MessagesFailed,
    MessagesLost,
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

    __slots__ = ("failed", "sent", "stable")

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], RangeSet] = {}
        # By the node that may lack them; 0: anybody.
        self.failed: dict[int, RangeSet] = {}
        self.stable = RangeSet()


class AllDelivered(Checker):
    """Finds messages that did not arrive. Witnesses: the send of the first one, the receiver's join."""

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
        self._recent_sends: deque[MessageSent] = deque(maxlen=WITNESSES_RECENT_MAX)

    def on_node_started(self, record: NodeStarted) -> None:
        """End the life before, of which no end may have been recorded."""
        before = self._alive.get(record.node)
        if before is not None and before != record.incarnation:
            self._ended.add((record.node, before))
        self._alive[record.node] = record.incarnation

    def on_node_stopped(self, record: NodeStopped) -> None:
        """End a life."""
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

    def on_view_installed(self, record: ViewInstalled) -> None:
        """Remember the members of a view."""
        self._views.setdefault((record.group, record.view), frozenset(record.members))
        stay = self._stays.get((record.node, record.incarnation, record.group))
        if stay is not None and not stay.first_view:
            stay.first_view = record.view

    def on_message_sent(self, record: MessageSent) -> None:
        """Note a debt to all who have joined by now."""
        stream = self._stream(record.group, record.node, record.incarnation)
        when = (self._joins, record.view)
        sent = stream.sent.get(when)
        if sent is None:
            sent = stream.sent[when] = RangeSet()
        sent.add(record.sequence)
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
        stay = self._stays.get((record.node, record.incarnation, record.group))
        if stay is not None:
            had = stay.had.setdefault((record.sender, record.sender_incarnation), RangeSet())
            had.add_range(record.sequence, record.stop)

    def on_messages_failed(self, record: MessagesFailed) -> None:
        """Note that the sender was told."""
        failed = self._stream(record.group, record.node, record.incarnation).failed
        failed.setdefault(record.receiver, RangeSet()).add_range(record.sequence, record.stop)

    def on_messages_stable(self, record: MessagesStable) -> None:
        """Note that the sender's crash is no excuse for these."""
        self._stream(record.group, record.node, record.incarnation).stable.add_range(record.sequence, record.stop)

    def conclude(self) -> None:
        """Compare debts and payments of every stay that lasted."""
        streams: dict[int, list[tuple[tuple[int, int], _Stream]]] = {}
        for (group, node, incarnation), stream in self._streams.items():
            streams.setdefault(group, []).append(((node, incarnation), stream))
        for (node, incarnation, group), stay in self._stays.items():
            if (node, incarnation) not in self._ended:
                for sender, stream in streams.get(group, ()):
                    missing = self._owed(f"{node}.{incarnation}", stay, group, sender, stream)
                    if missing:
                        self._report(missing, stay, sender)

    def _stream(self, group: int, node: int, incarnation: int) -> _Stream:
        stream = self._streams.get((group, node, incarnation))
        if stream is None:
            stream = self._streams[group, node, incarnation] = _Stream()
        return stream

    def _owed(self, receiver: str, stay: _Stay, group: int, sender: tuple[int, int], stream: _Stream) -> RangeSet:
        owed = RangeSet()
        for (joins, view), sent in stream.sent.items():
            members = self._views.get((group, view))
            if joins < stay.began:
                continue
            is_of_this_stay = view >= stay.first_view or (stay.is_first and members is not None)
            if is_of_this_stay and (members is None or receiver in members):
                owed.update(sent)
        for node in (0, stay.joined.node):
            if node in stream.failed:
                owed.difference_update(stream.failed[node])
        if sender in self._ended:
            owed = owed.intersection(stream.stable)
        had = stay.had.get(sender)
        if had is not None:
            owed.difference_update(had)
        return owed

    def _report(self, missing: RangeSet, stay: _Stay, sender: tuple[int, int]) -> None:
        joined, first = stay.joined, missing.first()
        name = (joined.group, *sender, first)
        sent = None
        if self.has_room:
            sent = next((each for each in reversed(self._recent_sends) if message_of(each) == name), None)
        self.report(
            f"{joined.node}.{joined.incarnation} never delivered {missing.count()} messages of "
            f"{sender[0]}.{sender[1]} in group {joined.group}, the first {first}, and nobody was told",
            sent,
            joined,
        )
