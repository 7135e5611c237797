"""Rate control: every node states the rate that it can take, the region takes the lowest or the mean, senders share it.

Seed 001, section 2: members of a region share their fate, so one number for the region is enough. A node judges by
what it loses: a few lost frames are noise and left to repair, more than that means that its link or its buffers are
too small for what all senders send together. It also judges by queues that stand on the way: they lose nothing yet,
but make every token late. In both cases it states a little less, and a little more in every period without.

One bad period says little: a link that loses one frame in a hundred loses three now and then, and a process that had
to wait for its processor makes frames late. What is done on such a sign alone is small, or soon undone.

Rates are frames a second; 0 means no limit.
"""

from collections.abc import Iterable

from vivum.core.time import SECOND
from vivum.protocols.qsm.settings import QsmSettings
from vivum.wire.tokens import RateVote

LOSS_PER_MILLE = 30
"""Loss above this share of frames is taken for overload; links that are merely bad lose less, or in short bursts."""

QUIET_PER_MILLE = 5
"""Below this share of loss the rate grows; between the two it stays."""

LOSSY_PERIODS = 3
"""So many periods in a row must have such loss: a burst, or a member that slept, is no overload."""

START_PER_MILLE = 1150
"""Growth in a period, until it is too much for the first time. A queue of the network takes what is too much for a few
milliseconds only, so that all of it is lost: a quarter more was seen to end in a storm of repairs."""

START_LOST_MIN = 10
"""At the start fewer lost frames are no sign of overload, however large a share they are. Of 200 frames a link that
loses one in a hundred loses seven in every two hundredth period, and ten in every twenty thousandth."""

FORGIVEN_PER_MILLE = 1100
"""Loss or a queue at the start is forgiven once, and again when the best rate seen has grown by so much."""

RESUME_PER_MILLE = 1050
"""What comes without loss or queue, so far above the rate at which it was too much before, shows that it is not any
more, or never was: the rate grows as at the start."""

DECREASE_PER_MILLE = 950
INCREASE_STEP_PER_MILLE = 3
INCREASE_PER_MILLE_MAX = 30
"""The longer nothing is lost, the faster the rate grows: a little at first, near where it was too much before."""

CEILING_PER_MILLE = 1020
LOWEST_PER_MILLE = 100
"""Never below this share of the best rate seen: a link that loses much must still be used."""

STANDING_NS = 1_000_000
"""A queue that takes longer than this in the mean, means that more is sent than the link takes."""

SHORT_NS = 300_000
"""A queue that takes so long keeps the link busy and hurts nobody: the rate stays."""

DRAIN_PERIODS = 2
DRAIN_PER_MILLE_MAX = 30
"""What stands above that is drained in so many periods, if it takes no more than this off the rate."""

EDGE_PER_MILLE = 5
EDGE_STEP_PER_MILLE = 2
"""So near to the rate at which a queue stood before, the rate grows by small steps: else it were past it at once."""

OWN_QUEUE_NS = 8_000_000
"""What frames of a sender alone may wait in its own interface at the start: that hurts nobody else."""

OWN_QUEUE_KEPT_NS = 12_000_000
"""What they are to wait there afterwards. The link works on while the sender waits for its processor, so the queue is
kept. More would hold up the tokens that the sender passes on, until the next one in the ring is taken for asleep."""

STEER_PERIODS = 3
STEER_PER_MILLE_MAX = 50
"""A queue that is shorter or longer than that is filled or drained in so many periods, if it takes no more than this,
or twice that to drain it."""

USED_PER_MILLE = 950
"""A sender that uses so much of what it may is held back by the rate alone: else what comes says little of the link."""

REFRESH_PERIODS = 100
REFRESHED_NS = 3_000_000
"""So often a queue that is kept is drained to so little: clocks drift, and only an empty queue shows how long frames
take without one."""

QUEUE_FLOOR_PER_MILLE = 750
"""Queues lower the rate no further than to this share of the best rate seen. At so much less any queue of the network
runs empty: what still makes frames late is a processor that others have."""

STUCK_PERIODS = 4
STUCK_PER_MILLE = 1030
"""After so many periods in which only the best rate seen was in the way, the rate grows past it. Senders that share
their processor never reach what they are allowed: what is allowed would stay where it is for ever."""

UNEASY_PERIODS = 4
"""After so many periods with loss between the two it counts as the link's own. Else one queue after the other would
lower the rate, and none of the times between would raise it again."""

IN_VAIN = 4
"""After so many decreases that did not help, by a fifth together, loss is the link's own and no overload."""


class RateEstimate:
    """What one node can take."""

    __slots__ = (
        "_best",
        "_clean_periods",
        "_decreases",
        "_drained_periods",
        "_edge",
        "_initial",
        "_is_starting",
        "_is_warned",
        "_loss_before",
        "_lossy_periods",
        "_lost",
        "_noise",
        "_own_frames",
        "_period_ns",
        "_queue_ns",
        "_reached_before",
        "_received",
        "_since_ns",
        "_standing_ns",
        "_stuck_periods",
        "_taken",
        "_uneasy_periods",
        "_was_full",
        "_was_queueing",
        "rate",
    )

    def __init__(self, settings: QsmSettings, now_ns: int) -> None:
        self.rate = self._initial = settings.rate_initial
        self._is_starting = True
        # At the start: the last period was too much.
        self._is_warned = False
        self._period_ns = settings.rate_period_ns
        self._since_ns = now_ns
        self._received = 0
        self._lost = 0
        self._own_frames = 0
        self._best = 0
        # The rate at which a queue began to stand the last time; 0 if none did.
        self._edge = 0
        self._was_queueing = False
        # What came while a queue stood all the time: what the link takes; 0 before the first.
        self._taken = 0
        # In this period a window was full.
        self._was_full = False
        # The shortest queue of this period in the interface of the only sender; None if there are others.
        self._queue_ns: int | None = None
        # What came in the period before, and how many there were since such a queue was seen to be short.
        self._reached_before = 0
        self._drained_periods = 0
        # The shortest queue of this period; None before the first.
        self._standing_ns: int | None = None
        self._lossy_periods = 0
        self._clean_periods = 0
        self._uneasy_periods = 0
        self._stuck_periods = 0
        self._decreases = 0
        # Shares of loss, per mille: when the rate was first lowered, and what is known to be the link's own.
        self._loss_before = 0
        self._noise = 0

    @property
    def is_starting(self) -> bool:
        """Nothing was too much so far."""
        return self._is_starting

    def on_frame(self, count: int = 1) -> None:
        """Count frames that came at once, not as repairs."""
        self._received += count

    def on_lost(self, frames: int) -> None:
        """Count frames that were found missing."""
        self._lost += frames

    def pause(self, now_ns: int, own_frames: int) -> None:
        """Do not judge this time: who is behind loses for other reasons than the rate of today."""
        self._since_ns, self._received, self._lost, self._own_frames = now_ns, 0, 0, own_frames
        self._standing_ns = None
        self._was_full = False
        self._lossy_periods = 0

    def update(
        self, now_ns: int, own_frames: int, standing_ns: int, is_full: bool = False, queue_ns: int | None = None
    ) -> int:
        """Judge the last period if it is over; return the rate to state.

        `own_frames` were sent by this node itself so far: the rate is that of all senders together. `standing_ns` is
        what all frames of the last while had to wait in queues on their way here. The least of it in the period counts:
        a queue that stands does so all the time, one that a late process makes comes and goes. `is_full`: a sender
        waits for its window. `queue_ns`: there is one sender alone, and its frames wait so long in its interface.
        """
        self._was_full = self._was_full or is_full
        is_first = self._standing_ns is None
        self._standing_ns = standing_ns if self._standing_ns is None else min(standing_ns, self._standing_ns)
        if is_first:
            self._queue_ns = queue_ns
        elif self._queue_ns is not None:
            self._queue_ns = None if queue_ns is None else min(queue_ns, self._queue_ns)
        elapsed_ns = now_ns - self._since_ns
        if elapsed_ns >= self._period_ns:
            received = self._received + own_frames - self._own_frames
            # The most that this node has shown that it can take.
            reached = received * SECOND // elapsed_ns
            self._best = max(self._best, reached)
            if own_frames != self._own_frames:
                self._queue_ns = None
            before = self.rate
            self._judge(received, reached, self._standing_ns)
            self._maybe_free(before, reached, self._standing_ns)
            self._reached_before = reached
            self._since_ns, self._received, self._lost, self._own_frames = now_ns, 0, 0, own_frames
            self._standing_ns = None
            self._was_full = False
        return self.rate

    def _judge(self, received: int, reached: int, standing_ns: int) -> None:
        loss = self._lost * 1000 // max(1, received + self._lost) if self._lost > 1 else 0
        is_queueing = standing_ns > STANDING_NS
        is_lossy = loss > self._noise + LOSS_PER_MILLE
        self._noise = min(self._noise, loss + self._noise * 9 // 10)
        self._lossy_periods = self._lossy_periods + 1 if is_lossy else 0
        if self._is_starting:
            self._start(is_lossy, is_queueing, standing_ns, reached)
        elif self._lossy_periods >= LOSSY_PERIODS:
            self._lossy_periods = self._clean_periods = 0
            self._lower(loss)
        elif self._queue_ns is not None and self._taken and not is_lossy:
            self._steer(self._queue_ns, reached + self._lost * reached // max(1, received), loss)
        elif is_queueing:
            self._drain(standing_ns, reached)
        elif loss <= self._noise + QUIET_PER_MILLE:
            self._decreases = self._uneasy_periods = 0
            self._clean_periods += 1
            if self._was_queueing:
                self.rate = max(self.rate, min(self._edge, self._taken) * (1000 - EDGE_PER_MILLE) // 1000)
            elif standing_ns < SHORT_NS:
                self._grow()
                self._is_starting = reached * 1000 > self._edge * RESUME_PER_MILLE
        else:
            self._bear(loss)
        self._was_queueing = is_queueing

    def _bear(self, loss: int) -> None:
        """Too little for overload, too much to go faster. If it stays so, it is the link, and no reason to wait."""
        self._uneasy_periods += 1
        if self._uneasy_periods >= UNEASY_PERIODS:
            self._noise, self._uneasy_periods = loss, 0

    def _steer(self, queue_ns: int, sent: int, loss: int) -> None:
        """Keep a queue of some length before the link of the only sender, of which so many frames a second came."""
        is_busy = queue_ns > SHORT_NS
        if is_busy and (queue_ns > OWN_QUEUE_KEPT_NS or sent * 1000 >= self.rate * USED_PER_MILLE):
            # It was never empty: what came is what the link takes, but for a process that was late.
            self._taken += (sent - self._taken) // 4
        elif sent > self._taken:
            self._taken += (sent - self._taken) // 2
        self._drained_periods = 0 if queue_ns <= REFRESHED_NS else self._drained_periods + 1
        kept_ns = OWN_QUEUE_KEPT_NS if self._drained_periods < REFRESH_PERIODS else REFRESHED_NS // 3
        change = (kept_ns - queue_ns) * 1000 // (STEER_PERIODS * self._period_ns)
        change = max(-2 * STEER_PER_MILLE_MAX, min(change, STEER_PER_MILLE_MAX))
        self._decreases = self._clean_periods = 0
        if loss > self._noise + QUIET_PER_MILLE:
            self._bear(loss)
            change = min(change, 0)
        else:
            self._uneasy_periods = 0
        floor = min(self.rate, self._best * QUEUE_FLOOR_PER_MILLE // 1000)
        self.rate = max(1, self._taken * (1000 + change) // 1000, floor)
        # Of two periods: what was late in one comes in the next.
        self._is_starting = not is_busy and (sent + self._reached_before) * 500 > self._edge * RESUME_PER_MILLE

    def _start(self, is_lossy: bool, is_queueing: bool, standing_ns: int, reached: int) -> None:
        """Grow fast while nobody knows yet what the link takes."""
        was_warned = self._is_warned
        self._is_warned = is_queueing or (is_lossy and self._lost >= START_LOST_MIN)
        # What is gone in the next period was a burst, or a late process, unless it comes again at such a rate.
        is_again = was_warned or self._best * 1000 <= self._edge * FORGIVEN_PER_MILLE
        is_over = (self._is_warned and is_again) or self._lossy_periods >= LOSSY_PERIODS
        if is_over and is_queueing and was_warned and self.rate:
            self._drain(standing_ns, reached)
        elif is_over or (self._is_warned and self.rate):
            self.rate = max(self._initial, self._best * 980 // 1000)
        elif self.rate:
            self.rate = max(self.rate, self._best * START_PER_MILLE // 1000)
        if self._is_warned or is_over:
            self._edge = self._best
        if is_over:
            self._is_starting = self._is_warned = False
            self._clean_periods = 0
            self._drained_periods = 0
            self._taken = reached if is_queueing else 0

    def _drain(self, standing_ns: int, reached: int) -> None:
        """Go slower. Nothing is lost yet, but tokens wait in the same queues."""
        self._clean_periods = 0
        rate = min(self.rate, self._best)
        if self._was_queueing:
            self._taken = reached
        else:
            self._edge = rate
        drain = min((standing_ns - SHORT_NS) * 1000 // (DRAIN_PERIODS * self._period_ns), DRAIN_PER_MILLE_MAX)
        floor = self._best * QUEUE_FLOOR_PER_MILLE // 1000
        self.rate = max(1, rate * (1000 - drain) // 1000, min(rate, floor))

    def _maybe_free(self, before: int, reached: int, standing_ns: int) -> None:
        """Let a rate grow that is stuck at what was seen, while nothing speaks against it and half of it is used."""
        is_clean = not (self._lossy_periods or self._uneasy_periods) and standing_ns < SHORT_NS
        if self.rate != before or not is_clean or self._was_full or 2 * reached < self.rate:
            self._stuck_periods = 0
            return
        self._stuck_periods += 1
        if self._stuck_periods >= STUCK_PERIODS:
            self._stuck_periods = 0
            self.rate = self.rate * (START_PER_MILLE if self._is_starting else STUCK_PER_MILLE) // 1000

    def _grow(self) -> None:
        growth = min(INCREASE_STEP_PER_MILLE * self._clean_periods, INCREASE_PER_MILLE_MAX)
        # Only a little past the best: if there is more to be had, the best will show it and grow.
        ceiling = self._best * CEILING_PER_MILLE // 1000 + 1
        low, high = (self._edge * each // 1000 for each in (1000 - EDGE_PER_MILLE, 1000 + EDGE_PER_MILLE))
        if low <= self.rate <= high:
            growth = EDGE_STEP_PER_MILLE
            self._clean_periods = 0
        elif self.rate < low:
            ceiling = low
        self.rate = min(self.rate * (1000 + growth) // 1000 + 1, max(ceiling, self.rate))

    def _lower(self, loss: int) -> None:
        if not self._decreases:
            self._loss_before = loss
        self._decreases += 1
        if self._decreases > IN_VAIN and loss * 10 > self._loss_before * 8:
            # A fifth less did not help. It is the link: back to where it was.
            self._noise, self._decreases = loss, 0
            self.rate = max(self.rate, self._best * 980 // 1000)
            return
        # From where it was, not from what came: under overload much less comes than the node could take.
        self.rate = max(1, self._best * LOWEST_PER_MILLE // 1000, self.rate * DECREASE_PER_MILLE // 1000)


def add_voice(vote: RateVote, rate: int) -> RateVote:
    """Put what one node states to what others said; 0 states nothing."""
    if not rate:
        return vote
    # Robust: nobody can drag the mean further than by half or twice of what the region goes at.
    heard = min(max(rate, vote.allowed // 2), 2 * vote.allowed) if vote.allowed else rate
    lowest = min(vote.lowest, rate) if vote.voices else rate
    return RateVote(lowest, vote.total + heard, vote.voices + 1, vote.allowed)


def add_votes(one: RateVote, other: RateVote) -> RateVote:
    """Put the votes of two sets of nodes together. What is allowed is what the first says: it came from above."""
    if not (one.voices and other.voices):
        some = one if one.voices else other
        return RateVote(some.lowest, some.total, some.voices, one.allowed)
    return RateVote(min(one.lowest, other.lowest), one.total + other.total, one.voices + other.voices, one.allowed)


def decide_rate(vote: RateVote, rule: str) -> int:
    """Settle what a region goes at: the lowest rate stated, or the mean; 0, no limit, if nobody said."""
    if not vote.voices:
        return 0
    return vote.lowest if rule == "lowest" else vote.total // vote.voices


class FairShares:
    """How the senders of a region share its rate: evenly, but what one leaves is for the others.

    A sender may be slow, or held back by another region: an even share would be lost with it, and the rate, which
    follows what comes, would never grow.
    """

    __slots__ = ("_demand", "_floor", "_level", "_rate")

    def __init__(self, rate: int, initial: int, used: Iterable[int]) -> None:
        """Share by what each active sender used of late, in frames a second. Any of them may start with `initial`."""
        demands = sorted(map(_demand, used))
        senders = max(1, len(demands))
        self._rate = rate
        self._demand = sum(demands)
        self._floor = min(rate, initial or rate) // senders
        # Nobody gets more than this level: at it, all together take the rate, or the most that each may want.
        left, count = rate, senders
        self._level = rate
        for demand in demands:
            if demand * count >= left:
                self._level = left // count
                break
            left -= demand
            count -= 1
        else:
            self._level = (demands[-1] if demands else 0) + left // senders

    def of(self, used: int) -> int:
        """Return the share of a sender that used this much: never 0, which would mean no limit, unless there is none.

        It may double what it used, or take what others do not want: all at once would be too much for a moment.
        """
        if not self._rate:
            return 0
        unwanted = self._rate - self._demand + _demand(used)
        return max(1, min(self._level, max(2 * used, self._floor, unwanted)))


def _demand(used: int) -> int:
    return used * START_PER_MILLE // 1000 + 1
