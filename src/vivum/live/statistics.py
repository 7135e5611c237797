"""What a node tells of itself."""

from dataclasses import dataclass

from vivum.core.ids import Endpoint, Member
from vivum.protocols.qsm.memory import MemoryHeld


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """What a node did so far, and how it stands."""

    member: Member | None
    domain: str
    endpoint: Endpoint
    service: Endpoint | None
    carries_service: bool
    topics: int
    frame_bytes: int
    """The largest datagram that it sends."""

    window_frames: int
    receive_buffer_bytes: int
    """What the system granted."""

    lost_on_purpose: int
    """Datagrams that arrived and were thrown away, as `connect(loss=)` asks for."""

    counters: dict[str, int]
    """As listed in docs/reference/counters.md."""

    memory: MemoryHeld
    """Messages and frames that it keeps, in bytes."""
