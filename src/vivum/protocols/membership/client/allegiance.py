"""Which leader of the service a client follows: its history, its term, and when it was last heard.

Within a history terms only grow, and nothing that was told is ever taken back.
"""

from vivum.core.ids import Endpoint
from vivum.wire.service_log import ServiceStatus


class Allegiance:
    """The leader that a node follows."""

    __slots__ = ("heard_ns", "history", "status", "term")

    def __init__(self) -> None:
        self.history = 0
        """0 while it follows none: the first answer decides."""

        self.term = 0
        self.heard_ns = 0
        self.status: ServiceStatus | None = None
        """What was last told of the leader, with its endpoint."""

    def leave(self) -> None:
        """Follow nobody; when somebody was last heard stays known."""
        self.history = self.term = 0
        self.status = None

    def fault_of(self, history: int, term: int) -> str | None:
        """Return why a word of a leader is refused; None if it is accepted, and follow that leader."""
        if not history:
            return "of no history"
        if self.history and history != self.history:
            return "of another history than this node follows"
        if term < self.term:
            return "of a leader that was replaced"
        if not self.history or term > self.term:
            self.history, self.term = history, term
            self.status = None
        return None

    def adopt(self, source: Endpoint, status: ServiceStatus) -> Endpoint:
        """Note what is said of the leader that is followed; return its endpoint."""
        endpoint = Endpoint(status.host, status.port) if status.host else source
        self.status = ServiceStatus(*endpoint, status.replicas, status.parent, status.parent_epoch)
        return endpoint
