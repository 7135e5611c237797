"""Harm: which faults of a run can cost a node its life, or a message its way, and when.

Fed with `FaultInjected`. A fault explains what happens from its beginning until `AFTERMATH_NS` after its end. Not all
faults are harm: nobody may lose anything because datagrams come twice or out of order, because applications join
and leave, or because the configuration service dies. Nor because of what a network loses from the beginning, up to
5 %: the simulator tells of more than that as a fault at every node.
"""

from collections.abc import Collection
from typing import NamedTuple

from vivum.core.time import SECOND
from vivum.observe.faults import HEALED, read_fault
from vivum.observe.trace import FaultInjected

HARMFUL = frozenset({"crash", "pause", "slow", "partition", "one_way", "loss", "burst"})
"""Faults of a host or of its link. A partition is harm to the nodes that it names: those cut off."""

AFTERMATH_NS = 20 * SECOND
"""A fault that is over explains nothing after this time. The longest wait that ends a life is for a view that does not
become quiet, 15 s (`quiesce_ns_max`); it begins when the members that are gone have been found, within seconds."""


class Harm(NamedTuple):
    """One fault: at these nodes (none: at every one), from a time to a time (None: it is still on)."""

    record: FaultInjected
    nodes: frozenset[int]
    begin_ns: int
    end_ns: int | None

    def hits(self, node: int) -> bool:
        """Return whether the fault is at a node."""
        return not self.nodes or node in self.nodes

    def explains(self, at_ns: int, lead_ns: int = 0) -> bool:
        """Return whether a time is between the fault's beginning, less a lead, and the end of its aftermath."""
        return self.begin_ns - lead_ns <= at_ns and (self.end_ns is None or at_ns <= self.end_ns + AFTERMATH_NS)


class HarmLog:
    """All harm so far."""

    def __init__(self) -> None:
        self._harms: list[Harm] = []

    def add(self, record: FaultInjected) -> None:
        """Take what the simulator tells: a fault begins, or all are over."""
        now_ns = record.time_ns
        if record.cause == HEALED:
            self._harms = [
                each._replace(end_ns=now_ns) if each.end_ns is None or each.end_ns > now_ns else each
                for each in self._harms
            ]
            return
        fault = read_fault(record.cause)
        if fault is not None and fault.kind in HARMFUL:
            end_ns = None if fault.lasts_ns is None else now_ns + fault.lasts_ns
            self._harms.append(Harm(record, frozenset(fault.nodes), now_ns, end_ns))

    def at(self, nodes: Collection[int]) -> list[Harm]:
        """Return the faults at any of these nodes, in the order in which they began."""
        return [harm for harm in self._harms if any(map(harm.hits, nodes))]
