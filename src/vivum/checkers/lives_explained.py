"""Lives explained: the protocol ends a life only for a cause in the world, and one cause costs a node one life.

A life is *lost* if the protocol ended it: `NodeStopped` with any cause but a crash or a close, or `NodeStarted` of
another life without any end. What may cost a node its life (`harm.py` has the faults that count):

- a fault at the node itself, which was on within the last `AFTERMATH_NS`;
- such faults at half or more of the nodes with which the life shared a view. A member that cannot get what others
  have starts over, and those who have it may all be cut off or dead;
- such faults at more than half of all other nodes, as when a partition cuts the larger side off: the nodes that it
  does not name are then those that have to give way.

A node may lose one life for each such fault. Where no fault is, nobody loses a life, though links lose up to 5 %,
repeat and reorder, members join and leave, and the service dies.

For simulations: only they record faults.
"""

from collections import Counter

from vivum.checkers.checker import ENDS_FROM_OUTSIDE, Checker
from vivum.checkers.harm import Harm, HarmLog
from vivum.observe.trace import FaultInjected, NodeStarted, NodeStopped, ViewInstalled


class LivesExplained(Checker):
    """Finds lives that ended for nothing. Witnesses: the last fault that counts, if any, and the end."""

    name = "lives_explained"

    def __init__(self) -> None:
        super().__init__()
        self._harm = HarmLog()
        self._running: dict[int, int] = {}
        self._lost: Counter[int] = Counter()
        self._nodes: set[int] = set()
        self._peers: dict[tuple[int, int], set[int]] = {}

    def on_fault_injected(self, record: FaultInjected) -> None:
        """Note a cause."""
        self._harm.add(record)

    def on_view_installed(self, record: ViewInstalled) -> None:
        """Note with whom a life shares a view."""
        members = {int(member.partition(".")[0]) for member in record.members}
        self._nodes |= members
        self._peers.setdefault((record.node, record.incarnation), set()).update(members)

    def on_node_started(self, record: NodeStarted) -> None:
        """Begin a life. One before it that has no end was lost."""
        before = self._running.get(record.node)
        if before is not None and before != record.incarnation:
            self._judge(record, before)
        self._running[record.node] = record.incarnation

    def on_node_stopped(self, record: NodeStopped) -> None:
        """Ask for the cause of an end."""
        self._running.pop(record.node, None)
        if record.cause not in ENDS_FROM_OUTSIDE:
            self._judge(record, record.incarnation)

    def _judge(self, end: NodeStarted | NodeStopped, incarnation: int) -> None:
        self._lost[end.node] += 1
        count = self._lost[end.node]
        causes = self._causes(end.node, incarnation, end.time_ns)
        if count > len(causes):
            known = f"{len(causes)} faults explain" if len(causes) != 1 else "1 fault explains"
            self.report(
                f"{end.node}.{incarnation} lost its life; that is {count} of this node's, and {known} one",
                causes[-1].record if causes else None,
                end,
            )

    def _causes(self, node: int, incarnation: int, now_ns: int) -> list[Harm]:
        harms = [harm for harm in self._harm.at(self._nodes | {node}) if harm.explains(now_ns)]
        peers, others = self._peers.get((node, incarnation), set()) - {node}, self._nodes - {node}
        hit = {other for other in others if any(harm.hits(other) for harm in harms)}
        if (peers and 2 * len(hit & peers) >= len(peers)) or 2 * len(hit) > len(others):
            return harms
        return [harm for harm in harms if harm.hits(node)]
