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

    shared_frames_sent: int
    """Large frames that it wrote into memory that nodes of this machine share, each once however many read it."""

    shared_frames_missed: int
    """Such frames of others that were written over before it read them: lost as datagrams are, and repaired."""

    counters: dict[str, int]
    """As listed in docs/reference/counters.md."""

    memory: MemoryHeld
    """Messages and frames that it keeps, in bytes."""
