"""Statistics of a node."""

from dataclasses import dataclass

from vivum.core.ids import Endpoint, Member
from vivum.protocols.qsm.memory import MemoryHeld


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """What a node has done so far, and its present state."""

    member: Member | None
    domain: str
    endpoint: Endpoint
    service: Endpoint | None
    carries_service: bool
    topics: int
    frame_bytes: int
    """Size of the largest datagram that it sends."""

    window_frames: int
    receive_buffer_bytes: int
    """Size of the receive buffer that the system granted."""

    lost_on_purpose: int
    """Arrived datagrams that were dropped on purpose (`connect(loss=)`)."""

    shared_frames_sent: int
    """Large frames written into shared memory, each counted once however many nodes read it."""

    shared_frames_missed: int
    """Frames in other nodes' memory that were overwritten before they were read: lost, and repaired like datagrams."""

    counters: dict[str, int]
    """As listed in docs/reference/counters.md."""

    memory: MemoryHeld
    """Bytes of the messages and frames that it keeps."""
