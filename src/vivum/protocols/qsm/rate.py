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

LOSSY_PERIODS = 3
"""So many periods in a row must have such loss: a burst, or a member that slept, is no overload."""

START_PER_MILLE = 1500
DECREASE_PER_MILLE = 950
INCREASE_STEP_PER_MILLE = 3
INCREASE_PER_MILLE_MAX = 30
"""The longer nothing is lost, the faster the rate grows: a little at first, near where it was too much before."""

CEILING_PER_MILLE = 1020
LOWEST_PER_MILLE = 100
"""Never below this share of the best rate seen: a link that loses much must still be used."""


class RateEstimate:
    """What one node can take."""

    __slots__ = (
        "_best",
        "_clean_periods",
        "_initial",
        "_is_starting",
        "_lossy_periods",
        "_own_frames",
        "_period_ns",
        "_received",
        "_repaired",
        "_since_ns",
        "rate",
    )

    def __init__(self, settings: QsmSettings, now_ns: int) -> None:
        self.rate = self._initial = settings.rate_initial
        self._is_starting = True
        self._period_ns = settings.rate_period_ns
        self._since_ns = now_ns
        self._received = 0
        self._repaired = 0
        self._own_frames = 0
        self._best = 0
        self._lossy_periods = 0
        self._clean_periods = 0

    def on_frame(self, is_repair: bool) -> None:
        """Count a frame that was new here."""
        self._received += 1
        self._repaired += is_repair

    def update(self, now_ns: int, own_frames: int) -> int:
        """Judge the last period if it is over; return the rate to state.

        `own_frames` were sent by this node itself so far: the rate is that of all senders together.
        """
        elapsed_ns = now_ns - self._since_ns
        if elapsed_ns >= self._period_ns:
            self._received += own_frames - self._own_frames
            self._own_frames = own_frames
            # What came at once, before repairs: the most that this node has shown that it can take.
            self._best = max(self._best, (self._received - self._repaired) * SECOND // elapsed_ns)
            is_lossy = self._repaired > 1 and self._repaired * 1000 > self._received * LOSS_PER_MILLE
            self._lossy_periods = self._lossy_periods + 1 if is_lossy else 0
            if self._is_starting:
                # Nobody knows yet what the link takes: half as much again, until it is too much for the first time.
                self._is_starting = not is_lossy
                self.rate = max(self._initial, self._best * (START_PER_MILLE if self._is_starting else 980) // 1000)
            elif self._lossy_periods >= LOSSY_PERIODS:
                self._lossy_periods = self._clean_periods = 0
                # From where it was, not from what came: under overload much less comes than the node could take.
                lowest_rate = self._best * LOWEST_PER_MILLE // 1000
                self.rate = max(1, lowest_rate, self.rate * DECREASE_PER_MILLE // 1000)
            elif not is_lossy:
                self._clean_periods += 1
                growth = min(INCREASE_STEP_PER_MILLE * self._clean_periods, INCREASE_PER_MILLE_MAX)
                # Only a little past the best: if there is more to be had, the best will show it and grow.
                ceiling = self._best * CEILING_PER_MILLE // 1000 + 1
                self.rate = min(self.rate * (1000 + growth) // 1000 + 1, max(ceiling, self.rate))
            self._since_ns, self._received, self._repaired = now_ns, 0, 0
        return self.rate


def lowest(one: int, other: int) -> int:
    """The lower of two stated rates, where 0 states none."""
    return min(one, other) if one and other else one or other


def share(rate: int, senders: int) -> int:
    """Each sender's part of a rate: never 0, which would mean no limit."""
    return max(1, rate // senders) if rate else 0


class Pacer:
    """Spreads the frames of a stream evenly at the rate that its region allows."""

    __slots__ = ("_next_ns", "_rate", "_slack_ns")

    def __init__(self, settings: QsmSettings) -> None:
        # Until the region has said what it can take.
        self._rate = settings.rate_initial
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
