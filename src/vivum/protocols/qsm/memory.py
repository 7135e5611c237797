"""What a node keeps in memory for QSM, and how much of it there may be.

Memory held decides speed in a managed runtime (seed 004, section 5), so it is bounded, measured and told: to
`statistics()`, to traces, and to simulated hosts, which become slower with what they hold.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from vivum.protocols.commands import QueueGrew
from vivum.protocols.qsm.region import RegionMember
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.streams.region_sender import RegionSender


@dataclass(frozen=True, slots=True)
class MemoryHeld:
    """Bytes that a node keeps, without the objects around them."""

    waiting_bytes: int
    """Messages that were accepted and are in no frame yet."""
    sent_bytes: int
    """Own frames that not every member is known to have."""
    cached_bytes: int
    """Frames of others that are kept for repair."""
    held_bytes: int
    """Frames of others that wait for an earlier one."""

    @property
    def total_bytes(self) -> int:
        """All together. A frame that is cached and held counts twice, though it is there once."""
        return self.waiting_bytes + self.sent_bytes + self.cached_bytes + self.held_bytes


class MemoryWatch:
    """Reports new highs. Measures only when asked, so that frames cost nothing extra."""

    def __init__(self, settings: QsmSettings) -> None:
        self._limit = settings.cache_frames_max + settings.window_frames
        self._highs = {"sent": 0, "cached": 0, "held": 0}

    def look(self, senders: Iterable[RegionSender], regions: Iterable[RegionMember]) -> list[QueueGrew]:
        """Report, for the longest queue of each kind, that it is longer than ever."""
        depths = dict.fromkeys(self._highs, 0)
        for sender in senders:
            depths["sent"] = max(depths["sent"], sender.next_frame - sender.floor)
        for region in regions:
            for stream in region.streams.values():
                depths["cached"] = max(depths["cached"], len(stream.cache))
                depths["held"] = max(depths["held"], sum([frame.count for frame in stream.held.values()]))
        grown = []
        for name, depth in depths.items():
            if depth > self._highs[name]:
                self._highs[name] = depth
                grown.append(QueueGrew(f"{name} frames of a stream", depth, self._limit, "frames"))
        return grown


def measure_memory(waiting_bytes: int, senders: Iterable[RegionSender], regions: Iterable[RegionMember]) -> MemoryHeld:
    """Add up what is kept."""
    streams = [stream for region in regions for stream in region.streams.values()]
    return MemoryHeld(
        waiting_bytes,
        sum(sender.kept_bytes for sender in senders),
        sum(stream.cache.size for stream in streams),
        sum({id(frame.data): len(frame.data) for stream in streams for frame in stream.held.values()}.values()),
    )
