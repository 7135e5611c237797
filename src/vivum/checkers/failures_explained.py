"""Failures explained: a message is reported as failed or lost only where a fault can have touched it.

Each message of a `MessagesFailed` or `MessagesLost` needs a fault (`harm.py` has those that count) that began before
the report, at its sender, at the node that is told, or at any node that was ever in the group. The message
must have been on its way: accepted at most `ON_THE_WAY_NS` before the fault began, and not later than the fault's end
and its aftermath. Where no fault is, nothing fails, though links lose up to 5 %, repeat and reorder.

For simulations: only they record faults.
"""

from bisect import bisect_left

from vivum.checkers.checker import Checker, describe
from vivum.checkers.harm import HarmLog
from vivum.core.time import SECOND
from vivum.observe.trace import FaultInjected, GroupJoined, MessageSent, MessagesFailed, MessagesLost, ViewInstalled

ON_THE_WAY_NS = 1 * SECOND
"""How long a message may take from its sender's hand to everybody in a world without faults."""


class FailuresExplained(Checker):
    """Finds reports of failure or loss for nothing. Witness: the report."""

    name = "failures_explained"

    def __init__(self) -> None:
        super().__init__()
        self._harm = HarmLog()
        self._members: dict[int, set[int]] = {}
        # Of each stream: sequences, and when each was accepted.
        self._sent: dict[tuple[int, int, int], tuple[list[int], list[int]]] = {}

    def on_fault_injected(self, record: FaultInjected) -> None:
        """Note a cause."""
        self._harm.add(record)

    def on_group_joined(self, record: GroupJoined) -> None:
        """Note a member of a group."""
        self._members.setdefault(record.group, set()).add(record.node)

    def on_view_installed(self, record: ViewInstalled) -> None:
        """Note the members of a group, though they may not know yet."""
        members = self._members.setdefault(record.group, set())
        members.update(int(member.partition(".")[0]) for member in record.members)

    def on_message_sent(self, record: MessageSent) -> None:
        """Note when a message was accepted."""
        sequences, times_ns = self._sent.setdefault((record.group, record.node, record.incarnation), ([], []))
        sequences.append(record.sequence)
        times_ns.append(record.time_ns)

    def on_messages_failed(self, record: MessagesFailed) -> None:
        """Ask for the cause of a failure."""
        self._judge(record, (record.node, record.incarnation), "not delivered")

    def on_messages_lost(self, record: MessagesLost) -> None:
        """Ask for the cause of a loss."""
        self._judge(record, (record.sender, record.sender_incarnation), "lost")

    def _judge(self, record: MessagesFailed | MessagesLost, sender: tuple[int, int], what: str) -> None:
        sequences, times_ns = self._sent.get((record.group, *sender), ([], []))
        first, stop = (bisect_left(sequences, each) for each in (record.sequence, record.stop))
        harms = self._harm.at({record.node, sender[0], *self._members.get(record.group, ())})
        for sequence, at_ns in zip(sequences[first:stop], times_ns[first:stop], strict=True):
            if not any(harm.explains(at_ns, ON_THE_WAY_NS) for harm in harms):
                self.report(
                    f"{record.node}.{record.incarnation} was told that {describe((record.group, *sender, sequence))} "
                    f"was {what}, and no fault explains it",
                    record,
                )
                return
