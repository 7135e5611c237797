"""Rate control: every node states the rate that it can take, the region takes the lowest, senders share it.

Seed 001, section 2: members of a region share their fate, so one number for the region is enough. A node judges by
what it loses: a few lost frames are noise and left to repair, more than that means that its link or its buffers are
too small for what all senders send together. Then it states a little less than what it did receive, and a little
more in every period without such loss.

Rates are frames a second; 0 means no limit.
"""

from vivum.core.time import SECOND
from vivum.protocols.qsm.settings import QsmSettings

LOSS_PER_MILLE = 30
"""Loss above this share of frames is taken for overload; links that are merely bad lose less, or in short bursts."""

DECREASE_PERCENT = 97
INCREASE_PERCENT = 101
FAST_PERCENT = 110
LOWEST_PERCENT = 10
"""Never below this share of the best rate seen: a link that loses much must still be used."""


class RateEstimate:
    """What one node can take."""

    __slots__ = ("_best", "_period_ns", "_received", "_repaired", "_since_ns", "rate")

    def __init__(self, settings: QsmSettings, now_ns: int) -> None:
        self.rate = 0
        self._period_ns = settings.rate_period_ns
        self._since_ns = now_ns
        self._received = 0
        self._repaired = 0
        self._best = 0

    def on_frame(self, is_repair: bool) -> None:
        """Count a frame that was new here."""
        self._received += 1
        self._repaired += is_repair

    def update(self, now_ns: int) -> int:
        """Judge the last period if it is over; return the rate to state."""
        elapsed_ns = now_ns - self._since_ns
        if elapsed_ns >= self._period_ns:
            received = self._received * SECOND // elapsed_ns
            self._best = max(self._best, received)
            if self._repaired * 1000 > self._received * LOSS_PER_MILLE and self._repaired > 1:
                lowest = self._best * LOWEST_PERCENT // 100
                self.rate = max(1, lowest, received * DECREASE_PERCENT // 100)
            elif self.rate:
                # Fast while far below the best, slowly near it, where it was too much before.
                percent = FAST_PERCENT if 10 * self.rate < 9 * self._best else INCREASE_PERCENT
                self.rate = self.rate * percent // 100 + 1
                if self.rate > 2 * self._best:
                    self.rate = 0
            self._since_ns, self._received, self._repaired = now_ns, 0, 0
        return self.rate


def lowest(one: int, other: int) -> int:
    """The lower of two stated rates, where 0 states none."""
    return min(one, other) if one and other else one or other


class Pacer:
    """Spreads the frames of a stream evenly at the rate that its region allows."""

    __slots__ = ("_next_ns", "_rate", "_slack_ns")

    def __init__(self, settings: QsmSettings) -> None:
        self._rate = 0
        self._next_ns = 0
        self._slack_ns = settings.pacing_slack_ns

    def set_rate(self, rate: int) -> None:
        """Go at this rate from now on."""
        self._rate = rate

    def ready_ns(self, now_ns: int) -> int:
        """Tell when the next frame may leave: now, or later."""
        if not self._rate:
            return now_ns
        # A sender that was held up may catch up a little, not more: a burst is what rate control prevents.
        self._next_ns = max(self._next_ns, now_ns - self._slack_ns)
        return max(now_ns, self._next_ns)

    def on_sent(self) -> None:
        """Count a frame that left."""
        if self._rate:
            self._next_ns += SECOND // self._rate
