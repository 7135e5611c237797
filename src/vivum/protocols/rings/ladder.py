"""The rings that one node stands in, from its own partition up to the one ring of the whole view.

A leader of a ring speaks for it in the ring above. The host says what: it keeps the result of each round that it led,
and puts it into the tokens of the level above.
"""

from typing import Generic

from vivum.core.ids import NodeId
from vivum.protocols.rings.placement import Placement
from vivum.protocols.rings.ring import Ring, RingHost, RingTimes, T
from vivum.wire.rings import TokenReceipt


class RingLadder(Generic[T]):
    """One node's rings, lowest first, and who of the view is gone."""

    __slots__ = ("gone", "rings")

    def __init__(self, placement: Placement, me: NodeId, host: RingHost[T], times: RingTimes, now_ns: int) -> None:
        """Stand in all rings of a node."""
        self.gone: set[NodeId] = set()
        self.rings: list[Ring[T]] = []
        below = None
        for plan in placement.rings_of(me):
            below = Ring(plan, me, host, times, now_ns, self.gone, below)
            self.rings.append(below)

    def find(self, level: int, number: int) -> Ring[T] | None:
        """Find a ring of this node by its name in a token; None if the node is not in it."""
        ring = self.rings[level] if level < len(self.rings) else None
        return ring if ring is not None and ring.plan.number == number else None

    def next_deadline_ns(self) -> int:
        """Return when a ring has something to do."""
        return min([ring.next_deadline_ns() for ring in self.rings])

    def on_timer(self, now_ns: int) -> None:
        """Do what is due in each ring."""
        for ring in self.rings:
            if ring.next_deadline_ns() <= now_ns:
                ring.on_timer(now_ns)

    @property
    def has_messages(self) -> bool:
        """Whether there are tokens or receipts to send."""
        for ring in self.rings:  # noqa: SIM110 - asked after every arrival
            if ring.has_messages:
                return True
        return False

    def take_messages(self, now_ns: int) -> list[tuple[NodeId, T | TokenReceipt]]:
        """Hand over tokens and receipts that are to be sent, and to whom."""
        return [message for ring in self.rings for message in ring.take_messages(now_ns)]
