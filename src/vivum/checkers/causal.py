"""Causal order: a life delivers no message after one that was sent with knowledge of it.

The past of a message is all that its sender had sent, in any group, and all that it had delivered, in any
group, before it sent the message, with the pasts of those. m1 in past(m2), both delivered by one life: m1
must come first.

Lenient in one point: a joiner's stream may begin anywhere, so what was already in the past of the life's
deliveries when its stay in m1's group began is excused in that stay. Holes are not seen here (`fifo`,
`all_delivered`), nor are deliveries of what was not sent (`no_creation`).

How it stays cheap. Each life numbers its own sends, whatever the group. A past is then one count for each
life: how many of its first sends. Pasts are never copied: for each send only the *needs* that are new since
the life's last send are kept, and each receiver merges each need of each sender once. A delivery costs a
few dictionary lookups, plus the new needs of the message, at most one for each sender that its sender
heard since it last sent.
"""

from vivum.checkers.checker import Checker, describe, message_of
from vivum.observe.trace import GroupJoined, MessageDelivered, MessageSent


class _Life:
    """What one life knows, as a sender and as a receiver. Compared by identity."""

    __slots__ = ("barred", "barred_at_join", "barred_by", "fresh", "merged", "needs", "sends", "snapshot")

    def __init__(self) -> None:
        # As sender: the number of each send, and for each send what was delivered since the one before.
        self.sends: dict[tuple[int, int], int] = {}
        self.needs: list[tuple[tuple[_Life, int], ...]] = []
        self.fresh: dict[_Life, int] = {}
        # As receiver: how many sends of each life are in the past of something delivered here, and which
        # delivery raised that count last; how many of that life's lists of needs are merged in.
        self.barred: dict[_Life, int] = {}
        self.barred_by: dict[_Life, MessageDelivered] = {}
        self.merged: dict[_Life, int] = {}
        # A copy of `barred` for each group joined when it was not empty; shared until it changes.
        self.barred_at_join: dict[int, dict[_Life, int]] = {}
        self.snapshot: dict[_Life, int] | None = None


class Causal(Checker):
    """Finds what came after its dependants. Witnesses: the dependent message's delivery, the late one."""

    name = "causal"

    def __init__(self) -> None:
        super().__init__()
        self._lives: dict[tuple[int, int], _Life] = {}

    def on_group_joined(self, record: GroupJoined) -> None:
        """Excuse in this stay what is barred already."""
        life = self._life(record.node, record.incarnation)
        if life.barred:
            if life.snapshot is None:
                life.snapshot = life.barred.copy()
            life.barred_at_join[record.group] = life.snapshot

    def on_message_sent(self, record: MessageSent) -> None:
        """Number the send and note what its sender learned since its last one."""
        life = self._life(record.node, record.incarnation)
        key = (record.group, record.sequence)
        if key not in life.sends:
            life.sends[key] = len(life.needs)
            life.needs.append(tuple(life.fresh.items()))
            life.fresh.clear()

    def on_message_delivered(self, record: MessageDelivered) -> None:
        """Check that nothing delivered before needed this message, then bar all that this message needs."""
        receiver = self._life(record.node, record.incarnation)
        sender = self._life(record.sender, record.sender_incarnation)
        number = sender.sends.get((record.group, record.sequence))
        if number is None:
            return
        if number < receiver.barred.get(sender, 0):
            excused = receiver.barred_at_join.get(record.group)
            if excused is None or number >= excused.get(sender, 0):
                self._report(record, receiver.barred_by[sender])
        if number >= receiver.merged.get(sender, 0):
            self._merge(receiver, sender, number, record)
        if sender is not receiver and number >= receiver.fresh.get(sender, 0):
            receiver.fresh[sender] = number + 1

    def _life(self, node: int, incarnation: int) -> _Life:
        life = self._lives.get((node, incarnation))
        if life is None:
            life = self._lives[node, incarnation] = _Life()
        return life

    def _merge(self, receiver: _Life, sender: _Life, number: int, record: MessageDelivered) -> None:
        """Bar the past of the sender's send of this number at the receiver."""
        barred, merged = receiver.barred, receiver.merged
        raised = []
        if number > barred.get(sender, 0):
            barred[sender] = number
            raised.append(sender)
        open_needs = [(sender, number + 1)]
        while open_needs:
            life, count = open_needs.pop()
            first = merged.get(life, 0)
            if first >= count:
                continue
            merged[life] = count
            for needs in life.needs[first:count]:
                for other, other_count in needs:
                    if barred.get(other, 0) < other_count:
                        barred[other] = other_count
                        raised.append(other)
                        open_needs.append((other, other_count))
        for life in raised:
            receiver.barred_by[life] = record
        if raised:
            receiver.snapshot = None

    def _report(self, late: MessageDelivered, dependent: MessageDelivered) -> None:
        self.report(
            f"{late.node}.{late.incarnation} delivered {describe(message_of(late))} after "
            f"{describe(message_of(dependent))}, which was sent with knowledge of it",
            dependent,
            late,
        )
