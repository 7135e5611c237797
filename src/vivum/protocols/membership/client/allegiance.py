"""Which service a client follows: its term, when it was last heard, and whom this node supports if it is not.

Terms only grow. Epochs of one era (`service.ERA_BITS`) were given by one service; the `ends` that a later one tells
show which of them it knows of. A node whose epoch is not among these stood on a side that lost.
"""

from vivum.core.ids import Endpoint
from vivum.protocols.membership.service.state import ERA_BITS
from vivum.wire.standby import ServiceStatus

ROUND_BITS = 16
"""The bits of a term below its round: they have the node that won it, so that no two nodes can have one term."""


def term_of(round_: int, node: int) -> int:
    """Make the term of a node that won a round."""
    return round_ << ROUND_BITS | node & ((1 << ROUND_BITS) - 1)


class Allegiance:
    """The service that a node follows."""

    __slots__ = ("_supported", "heard_ns", "round", "status", "term")

    def __init__(self) -> None:
        self.term = 0
        self.heard_ns = 0
        self.status: ServiceStatus | None = None
        """What was last told of it, with its endpoint."""

        self.round = 0
        self._supported: Endpoint | None = None

    def fault_of_term(self, term: int, has_life: bool) -> str | None:
        """Return why a frame of a term is refused; None if it is accepted, and adopt the term."""
        if term < self.term:
            return "of a service that was replaced"
        if term > self.term:
            if has_life:
                return "of a term that this node was not told of"
            self.term = term
            self.status = None
        return None

    def adopt(self, source: Endpoint, status: ServiceStatus) -> Endpoint:
        """Follow a service that is not of a lower term; return its endpoint."""
        endpoint = Endpoint(status.host, status.port) if status.host else source
        self.term = status.term
        self.status = ServiceStatus(status.term, *endpoint, status.standbys, status.ends)
        return endpoint

    @staticmethod
    def is_of_its_history(status: ServiceStatus, epoch: int) -> bool:
        """Return whether a service of a higher term knows of an epoch that this node was told by one before."""
        era = epoch >> ERA_BITS
        return epoch == 0 or any(end >> ERA_BITS == era and epoch <= end for end in status.ends)

    def support(self, round_: int, candidate: Endpoint) -> bool | None:
        """Support a candidate, one in each round. False: another was supported; None: the round is over."""
        if round_ <= self.term >> ROUND_BITS or round_ < self.round:
            return None
        if round_ == self.round:
            return candidate == self._supported
        self.round, self._supported = round_, candidate
        return True
