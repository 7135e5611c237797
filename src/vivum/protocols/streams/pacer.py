"""Pacing: spread the frames of a stream evenly at the rate that its region allows."""

from vivum.core.time import SECOND
from vivum.protocols.streams.settings import StreamSettings


class Pacer:
    """Spreads the frames of a stream evenly at the rate that its region allows."""

    __slots__ = ("_go_ns", "_late_slack_ns", "_next_ns", "_quantum_ns", "_rate", "_slack_ns", "_waits")

    def __init__(self, settings: StreamSettings) -> None:
        # The window alone is the limit, until the region says that a link or a member takes less.
        self._rate = 0
        self._next_ns = 0
        self._slack_ns = settings.pacing_slack_ns
        self._late_slack_ns = max(settings.pacing_slack_ns, settings.pacing_late_slack_ns)
        self._quantum_ns = settings.pacing_quantum_ns
        # Frames wait for nothing but the rate, until this time: if they come late, so was this process.
        self._waits = False
        self._go_ns = 0

    @property
    def is_limited(self) -> bool:
        """Return whether a rate limit is set."""
        return bool(self._rate)

    def set_rate(self, rate: int) -> None:
        """Go at this rate from now on."""
        self._rate = rate

    def ready_ns(self, now_ns: int) -> int:
        """Return when the next frame may leave: now, or later."""
        if not self._rate:
            return now_ns
        # A sender that was held up may catch up a little, not more: a burst is what rate control prevents.
        slack_ns = self._late_slack_ns if self._waits else self._slack_ns
        self._next_ns = max(self._next_ns, now_ns - slack_ns)
        if self._next_ns > now_ns:
            self._waits = True
            self._go_ns = self._next_ns + (self._quantum_ns if SECOND // self._rate < self._quantum_ns else 0)
        return self._go_ns if self._waits and self._go_ns > now_ns else now_ns

    def rest(self) -> None:
        """Note that something else than the rate holds the stream up: its window, or that nothing waits."""
        self._waits = False

    def ready_count(self, now_ns: int) -> int:
        """Return how many frames the limit lets out now. Call only with a limit, right after `ready_ns`."""
        return max(0, (now_ns - self._next_ns) // max(1, SECOND // self._rate) + 1)

    def on_sent(self, frames: int = 1) -> None:
        """Count frames that left."""
        if self._rate:
            self._next_ns += frames * (SECOND // self._rate)
