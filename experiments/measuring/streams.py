"""How far senders' streams are: frames pending, time to acknowledge, frames sent.

A stream is all that a sender sends into one region view. A frame is pending from its sealing until its sender knows
that it is stable. Streams come and go with region views, so what is pending is added up at each moment.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from statistics import fmean

from experiments.measuring.numbers import Numbers, percentile
from vivum.core.time import MILLISECOND
from vivum.protocols.streams.region_sender import RegionSender

ACK_STRIDE = 7
"""One frame in this many is followed from sealing to stable. Odd, or it would beat with steady rates."""


class StreamLog:
    """How far one stream was at each sample."""

    def __init__(self) -> None:
        self.times_ns = array("q")
        self.sealed = array("q")
        self.stable = array("q")
        self.copies = 1

    def note(self, now_ns: int, sealed: int, stable: int) -> None:
        """Take a sample."""
        self.times_ns.append(now_ns)
        self.sealed.append(sealed)
        self.stable.append(stable)

    @property
    def frames(self) -> int:
        """Frames sealed between the first and the last sample."""
        return self.sealed[-1] - self.sealed[0]

    def acknowledged(self) -> list[tuple[int, int]]:
        """Follow frames sealed in the time measured: when each was sealed, and how long until it was stable.

        Both ends are late by a part of a sample; in the mean by the same.
        """
        found = []
        for number in range(self.sealed[0], self.stable[-1], ACK_STRIDE):
            begin_ns = self.times_ns[bisect_right(self.sealed, number)]
            found.append((begin_ns, self.times_ns[bisect_right(self.stable, number)] - begin_ns))
        return found


class StreamLogs:
    """All streams of all senders."""

    def __init__(self) -> None:
        self._logs: dict[tuple[int, ...], StreamLog] = {}
        self._pending = array("q")

    def sample(self, now_ns: int, streams: Iterable[tuple[tuple[int, ...], RegionSender]]) -> None:
        """Look at all streams that there are now, each with its name."""
        pending = 0
        for key, stream in streams:
            log = self._logs.get(key)
            if log is None:
                log = self._logs[key] = StreamLog()
            log.note(now_ns, stream.next_frame, stream.first)
            log.copies = len(stream.destinations)
            pending += stream.next_frame - stream.first
        self._pending.append(pending)

    def sum_up(self, seconds: float, saved: int) -> Numbers:
        """Sum up. `saved`: frames that were counted in several streams, and sent once for all of them."""
        logs = self._logs.values()
        times = sorted(each for log in logs for each in _uncut(log.acknowledged(), log.times_ns[-1]))
        numbers = {
            "frames_per_s": (sum(log.frames for log in logs) - saved) / seconds,
            "data_datagrams_per_s": (sum(log.frames * log.copies for log in logs) - saved) / seconds,
            "pending_mean": fmean(self._pending),
            "pending_max": float(max(self._pending)),
        }
        if times:
            numbers["ack_ms_mean"] = fmean(times) / MILLISECOND
            numbers["ack_ms_p99"] = percentile(times, 99) / MILLISECOND
        return numbers


def _uncut(acknowledged: list[tuple[int, int]], end_ns: int) -> list[int]:
    """Leave out the last frames: of those only the ones that were stable soon are known, which would flatter."""
    longest_ns = max((elapsed_ns for _, elapsed_ns in acknowledged), default=0)
    return [elapsed_ns for begin_ns, elapsed_ns in acknowledged if begin_ns + longest_ns <= end_ns]
