"""Rate control: every node states the rate that it can take, the region takes the lowest or the mean, senders share it.

Seed 001, section 2: members of a region share their fate, so one number for the region is enough. A node judges by
what it loses: a few lost frames are noise and left to repair; more means that its link or its buffers are too small for
all senders together. It also judges by standing queues on the way: they lose nothing yet, but delay every token. In
both cases it states a slightly lower rate, and a slightly higher one after every period without such signs.

One bad period says little: a link that loses one frame in a hundred sometimes loses three, and a process that waited
for its processor makes frames late. The reaction to a single such sign is small, or soon undone.

At the start there is no rate: as long as nothing is lost and no queue grows, the windows of senders alone bound them.
A rate is stated where that turns out to be too much, within two short periods, and taken back when more comes without
loss or queue than was too much before.

Rates are frames a second; 0 means no limit.
"""

from collections.abc import Iterable

from vivum.core.time import SECOND
from vivum.protocols.qsm.settings import QsmSettings
from vivum.wire.tokens import RateVote

LOSS_PER_MILLE = 30
"""Loss above this share of frames counts as overload; bad links lose less, or lose in short bursts."""

QUIET_PER_MILLE = 5
"""Below this share of loss the rate grows; between the two it stays."""

LOSSY_PERIODS = 3
"""Consecutive periods with such loss that count as overload: a burst, or a member that slept, is none."""

START_PERIODS = 5
"""While there is no rate, a period is this fraction of the usual one: windows double in each round of the token."""

REGROWTH_PERIODS = 2
"""The same while a first rate grows."""

START_PER_MILLE = 1150
"""Growth in a period of the first rate, until it is too high too. It was found while windows doubled, so it may be half
of what the link takes."""

FREED_PERIODS = 10
"""Periods of such growth without loss or queue, four times as much in all, after which there is no rate again: what was
too much for a moment was not the link."""

START_RATE = 2000
"""The lowest rate at the start, a fifth of what a node of seed 004 handles: the first period may have few frames."""

START_LOST_MIN = 10
"""At the start, fewer lost frames than this are no sign of overload, however large their share. Of 200 frames, a link
that loses one in a hundred loses seven in every two hundredth period, and ten in every twenty thousandth."""

FORGIVEN_PER_MILLE = 1100
"""Loss or a queue at the start is forgiven once, and again when the best rate seen has grown by this factor."""

RESUME_PER_MILLE = 1050
"""If frames arrive without loss or queue this far above the rate that was too high before, that rate is not too high
any more, or never was: grow as at the start."""

DECREASE_PER_MILLE = 950
INCREASE_STEP_PER_MILLE = 3
INCREASE_PER_MILLE_MAX = 30
"""The longer nothing is lost, the faster the rate grows: slowly at first, near the rate that was too high before."""

CEILING_PER_MILLE = 1020
LOWEST_PER_MILLE = 100
"""The rate stays above this share of the best rate seen: a lossy link must still be used."""

STANDING_NS = 1_000_000
"""If frames wait longer than this in queues, on average, more is sent than the link takes."""

SHORT_NS = 300_000
"""A queue of this length keeps the link busy and does no harm: the rate stays."""

DRAIN_PERIODS = 2
DRAIN_PER_MILLE_MAX = 30
"""Periods in which a longer queue is drained, and the largest share of the rate that draining may take."""

EDGE_PER_MILLE = 5
EDGE_STEP_PER_MILLE = 2
"""This near to the rate at which a queue stood before, the rate grows in small steps, so as not to overshoot it."""

OWN_QUEUE_NS = 8_000_000
"""How long frames of the only sender may wait in its own interface at the start: that delays nobody else."""

OWN_QUEUE_KEPT_NS = 12_000_000
"""How long they should wait there afterwards. With a queue, the link stays busy while the sender waits for its
processor. A longer one would delay the tokens that the sender passes on, until the next member of the ring is believed
asleep."""

STEER_PERIODS = 3
STEER_PER_MILLE_MAX = 50
"""Periods in which a shorter or longer queue is filled or drained, and the largest change of the rate for filling;
draining may change it twice as much."""

USED_PER_MILLE = 950
"""A sender that uses this share of its rate is limited by the rate alone. Below it, arrivals say little about the
link."""

REFRESH_PERIODS = 100
REFRESHED_NS = 3_000_000
"""How often a kept queue is drained, and to what length. Clocks drift, and only an empty queue shows how long frames
take without one."""

QUEUE_FLOOR_PER_MILLE = 750
"""Queues lower the rate to no less than this share of the best rate seen. At that rate any queue of the network runs
empty: what still delays frames is a busy processor."""

STUCK_PERIODS = 4
STUCK_PER_MILLE = 1030
"""After this many periods in which only the best rate seen limited it, the rate grows past that. Senders that share
a processor never reach their allowed rate, which would otherwise stay the same for ever."""

UNEASY_PERIODS = 4
"""After this many periods with loss between the two thresholds, the loss counts as the link's own. Otherwise one queue
after the other would lower the rate, and nothing would raise it in between."""

IN_VAIN = 4
"""After this many decreases that did not help, a fifth in total, loss counts as the link's own and not as overload."""

COLLAPSE_PER_MILLE = 250
COLLAPSE_PERIODS = 2
"""If more than this is lost in so many periods in a row, the link takes much less than before: the rate goes at once to
what came."""

DEMAND_PER_MILLE = 1150
"""What a sender may want that used so much."""

NEW_SHARE = 4
"""A sender that is new, or was idle, begins with this fraction of an even share; it doubles in each period."""


class RateEstimate:
    """What one node can take."""

    __slots__ = (
        "_best",
        "_clean_periods",
        "_collapsed_periods",
        "_decreases",
        "_drained_periods",
        "_edge",
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
        self.rate = 0
        self._is_starting = True
        # At the start: whether the last period was too fast.
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
        # Arrivals while a queue stood all the time, so what the link takes; 0 before the first.
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
        self._collapsed_periods = 0
        self._clean_periods = 0
        self._uneasy_periods = 0
        self._stuck_periods = 0
        self._decreases = 0
        # Shares of loss, per mille: when the rate was first lowered, and what is known to be the link's own.
        self._loss_before = 0
        self._noise = 0

    @property
    def is_starting(self) -> bool:
        """Whether this node has found no rate too high so far."""
        return self._is_starting

    def on_frame(self, count: int = 1) -> None:
        """Count frames that came at once, not as repairs."""
        self._received += count

    def on_lost(self, frames: int) -> None:
        """Count frames that were found missing."""
        self._lost += frames

    def pause(self, now_ns: int, own_frames: int) -> None:
        """Skip this period: a node that is behind loses frames for other reasons than the present rate."""
        self._since_ns, self._received, self._lost, self._own_frames = now_ns, 0, 0, own_frames
        self._standing_ns = None
        self._was_full = False
        self._lossy_periods = 0

    def update(
        self, now_ns: int, own_frames: int, standing_ns: int, is_full: bool = False, queue_ns: int | None = None
    ) -> int:
        """Judge the last period if it is over; return the rate to state.

        `own_frames` is how many this node itself has sent so far: the rate is that of all senders together.
        `standing_ns` is how long frames lately had to wait in queues on their way here. The minimum of a period counts:
        a standing queue is always there, one made by a late process comes and goes. `is_full` says that a sender waits
        for its window. `queue_ns`, if there is only one sender, is how long its frames wait in its interface.
        """
        self._was_full = self._was_full or is_full
        is_first = self._standing_ns is None
        self._standing_ns = standing_ns if self._standing_ns is None else min(standing_ns, self._standing_ns)
        if is_first:
            self._queue_ns = queue_ns
        elif self._queue_ns is not None:
            self._queue_ns = None if queue_ns is None else min(queue_ns, self._queue_ns)
        elapsed_ns = now_ns - self._since_ns
        if elapsed_ns >= self._judged_ns:
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

    @property
    def _judged_ns(self) -> int:
        """How long a period is."""
        if not self._is_starting:
            return self._period_ns
        return self._period_ns // (REGROWTH_PERIODS if self.rate else START_PERIODS)

    def _judge(self, received: int, reached: int, standing_ns: int) -> None:
        loss = self._lost * 1000 // max(1, received + self._lost) if self._lost > 1 else 0
        is_queueing = standing_ns > STANDING_NS
        is_lossy = loss > self._noise + LOSS_PER_MILLE
        self._noise = min(self._noise, loss + self._noise * 9 // 10)
        self._lossy_periods = self._lossy_periods + 1 if is_lossy else 0
        self._collapsed_periods = self._collapsed_periods + 1 if loss > self._noise + COLLAPSE_PER_MILLE else 0
        if self._is_starting:
            self._start(is_lossy, is_queueing, standing_ns, reached)
        elif self._collapsed_periods >= COLLAPSE_PERIODS:
            self._collapse(loss, reached)
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
                if reached * 1000 > self._edge * RESUME_PER_MILLE:
                    self._is_starting, self._clean_periods = True, 0
        else:
            self._bear(loss)
        self._was_queueing = is_queueing

    def _bear(self, loss: int) -> None:
        """Handle loss too small for overload and too large to go faster. If it persists, it is the link's own."""
        self._uneasy_periods += 1
        if self._uneasy_periods >= UNEASY_PERIODS:
            self._noise, self._uneasy_periods = loss, 0

    def _steer(self, queue_ns: int, sent: int, loss: int) -> None:
        """Keep a queue of some length before the link of the only sender, from which `sent` frames a second came."""
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
        """Set no limit while nobody knows yet what the link takes."""
        was_warned = self._is_warned
        self._is_warned = is_queueing or (is_lossy and self._lost >= START_LOST_MIN)
        # What is gone in the next period was a burst, or a late process, unless it comes again at such a rate.
        is_again = was_warned or self._best * 1000 <= self._edge * FORGIVEN_PER_MILLE
        is_over = (self._is_warned and is_again) or self._lossy_periods >= LOSSY_PERIODS
        if is_over and is_queueing and was_warned and self.rate:
            self._drain(standing_ns, reached)
        elif is_over or self._is_warned:
            self.rate = max(START_RATE, self._best * 980 // 1000)
        elif self.rate:
            self._clean_periods += 1
            is_freed = self._clean_periods >= FREED_PERIODS
            self.rate = 0 if is_freed else max(self.rate, self._best * START_PER_MILLE // 1000)
        if self._is_warned or is_over:
            self._edge = self._best
            self._clean_periods = 0
        if is_over:
            self._is_starting = self._is_warned = False
            self._drained_periods = 0
            self._taken = reached if is_queueing else 0

    def _drain(self, standing_ns: int, reached: int) -> None:
        """Lower the rate. Nothing is lost yet, but tokens wait in the same queues."""
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
        """Raise a rate that is stuck at the best seen, if nothing speaks against it and half of it is used."""
        is_clean = not (self._lossy_periods or self._uneasy_periods) and standing_ns < SHORT_NS
        if not self.rate or self.rate != before or not is_clean or self._was_full or 2 * reached < self.rate:
            self._stuck_periods = 0
            return
        self._stuck_periods += 1
        if self._stuck_periods >= STUCK_PERIODS:
            self._stuck_periods = 0
            self.rate = self.rate * STUCK_PER_MILLE // 1000

    def _grow(self) -> None:
        growth = min(INCREASE_STEP_PER_MILLE * self._clean_periods, INCREASE_PER_MILLE_MAX)
        # Only a little past the best: if more is possible, the best will grow.
        ceiling = self._best * CEILING_PER_MILLE // 1000 + 1
        low, high = (self._edge * each // 1000 for each in (1000 - EDGE_PER_MILLE, 1000 + EDGE_PER_MILLE))
        if low <= self.rate <= high:
            growth = EDGE_STEP_PER_MILLE
            self._clean_periods = 0
        elif self.rate < low:
            ceiling = low
        self.rate = min(self.rate * (1000 + growth) // 1000 + 1, max(ceiling, self.rate))

    def _collapse(self, loss: int, reached: int) -> None:
        """Go to what came; what was seen before was another link. If that did not help, the loss is the link's own."""
        self._collapsed_periods = self._lossy_periods = self._clean_periods = 0
        if self._decreases and loss * 10 > self._loss_before * 8:
            self._noise, self._decreases = loss, 0
            return
        self._loss_before, self._decreases = loss, 1
        self.rate = self._best = self._edge = max(1, min(self.rate, reached))
        self._taken = min(self._taken, self.rate)

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


def add_voice(vote: RateVote, rate: int, buffer_bytes: int = 0) -> RateVote:
    """Add the rate that one node states to the vote, 0 states nothing, and the window that fits its buffer."""
    smallest = _smaller(vote.buffer_bytes, buffer_bytes)
    if not rate:
        return RateVote(vote.lowest, vote.total, vote.voices, vote.allowed, smallest)
    # Robust: each statement counts as at least half and at most twice the present rate of the region.
    heard = min(max(rate, vote.allowed // 2), 2 * vote.allowed) if vote.allowed else rate
    lowest = min(vote.lowest, rate) if vote.voices else rate
    return RateVote(lowest, vote.total + heard, vote.voices + 1, vote.allowed, smallest)


def add_votes(one: RateVote, other: RateVote) -> RateVote:
    """Merge the votes of two sets of nodes. The allowed rate is that of the first, which came from above."""
    smallest = _smaller(one.buffer_bytes, other.buffer_bytes)
    if not (one.voices and other.voices):
        some = one if one.voices else other
        return RateVote(some.lowest, some.total, some.voices, one.allowed, smallest)
    lowest = min(one.lowest, other.lowest)
    return RateVote(lowest, one.total + other.total, one.voices + other.voices, one.allowed, smallest)


def _smaller(one: int, other: int) -> int:
    return min(one, other) if one and other else one or other


def decide_rate(vote: RateVote, rule: str) -> int:
    """Decide a region's rate: the lowest or the mean of the stated ones; 0, no limit, if there are none."""
    if not vote.voices:
        return 0
    return vote.lowest if rule == "lowest" else vote.total // vote.voices


class FairShares:
    """Shares a region's rate among its senders: evenly, but what one does not use goes to the others.

    A sender may be slow, or held back by another region. Part of an even share would be lost with it, and the rate,
    which follows what arrives, would never grow.
    """

    __slots__ = ("_demand", "_floor", "_level", "_rate")

    def __init__(self, rate: int, used: Iterable[int]) -> None:
        """Share by what each active sender used recently, in frames a second."""
        demands = sorted(map(_demand, used))
        senders = max(1, len(demands))
        self._rate = rate
        self._demand = sum(demands)
        self._floor = rate // (NEW_SHARE * senders)
        # No sender gets more than this level. At it, all together use the rate, or all that they may want.
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
        """Return the share of a sender that used this much. Never 0, which means no limit, unless there is none.

        It may double what it used, or take what others do not want. More at once would overload for a moment.
        """
        if not self._rate:
            return 0
        unwanted = self._rate - self._demand + _demand(used)
        return max(1, min(self._level, max(2 * used, self._floor, unwanted)))


def _demand(used: int) -> int:
    return used * DEMAND_PER_MILLE // 1000 + 1
