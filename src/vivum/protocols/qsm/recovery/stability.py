"""What a region has decided about a stream: the decision at the top, and what each member knows of it.

A slow member is waited for as long as the others go at half of what they could do. Tokens say how far each member is,
not what it could do, so that is found by comparison: with the pace of the stream before, and, for a member put behind,
with the pace of the others while nobody holds them up.

Caches are bounded, so the floor may pass a member that sleeps; `confirmed` never does. A message is confirmed to the
sender's application when every member of the view has delivered it or has left; a member that caches gave up ends its
life first. What a member has received and holds back is stable and may be forgotten: nobody needs it again.

Invariants: `stable`, `floor` and `confirmed` never go back; `confirmed <= floor <= stable`.
"""

from vivum.core.time import SECOND
from vivum.protocols.commands import SlowMembers
from vivum.protocols.qsm.settings import QsmSettings
from vivum.wire.tokens import NOBODY, StreamRecord

FADING_PERIODS = 64
"""A pace that is not reached any more fades by this fraction for each `isolate_after_ns`: by half in 4 s."""

TRIAL_NS = 2 * SECOND
TRIALS_APART_MAX = 32
"""Probe: after holding up the others for this long, even at a fair pace, a member is no longer waited for, to see
whether the group speeds up. If not, it is waited for again, and the next probe comes twice as late, up to this
factor."""

SPARING = 20
"""This fraction of all time may be spent waiting for members whose frames are about to be given up: at full speed
caches are full after less than 0.1 s, and a member that paused a little longer would have to start over."""

AWAITED_MAX = 5
"""A member behind is waited for if it will be back within this many `isolate_after_ns`."""


class StreamStability:
    """The decision on one stream, as far as this node knows it; and, at a top leader, what it goes by."""

    __slots__ = ("_grace", "_pursuit", "_wait", "confirmed", "floor", "reported", "stable")

    def __init__(self) -> None:
        self.stable = 0
        self.floor = 0
        self.confirmed = 0
        self.reported = (0, 0, 0)
        # Of top leaders alone: made when they are needed.
        self._wait: _Wait | None = None
        self._pursuit: _Pursuit | None = None
        self._grace: _Grace | None = None

    def learn(self, record: StreamRecord) -> bool:
        """Take over what a token says; return whether it was news."""
        is_news = record.stable > self.stable or record.floor > self.floor or record.confirmed > self.confirmed
        self.stable = max(self.stable, record.stable)
        self.floor = max(self.floor, record.floor)
        self.confirmed = max(self.confirmed, record.confirmed)
        return is_news

    def decide(self, now_ns: int, record: StreamRecord, settings: QsmSettings, is_pace_known: bool = True) -> bool:
        """Decide, from the result of a top round, what is stable and what caches must keep; return whether it is news.

        Receivers that are behind, or sleep, are not waited for if there are others, unless they will be back soon. If
        there are none the sender must wait: it would run ahead of all, and nobody could give them what they lack. The
        sender itself is no receiver. The pace is not known where a rate holds all back that most did not find too high.
        """
        reached, behind = record.prefix, record.behind
        if record.slow >= SlowMembers.WAIT or reached == NOBODY:
            # Nothing is stable that one of them lacks; all of it, if there is nobody.
            reached = min(reached, behind)
        elif self._is_held_up(now_ns, record, settings, is_pace_known):
            reached, behind = record.runner_up, min(behind, record.prefix)
        elif self._is_coming(now_ns, record, settings):
            reached = min(reached, behind)
        oldest = record.stop - settings.cache_frames_max
        if self._is_spared(now_ns, behind, oldest, settings):
            # At most a window more is sent, unless frames behind a gap leave it: caches keep no more than that.
            reached, oldest = self.stable, max(self.floor, oldest - settings.window_frames)
        self.stable = max(self.stable, min(reached, record.stop))
        # The lowest prefix too: it was told before the round in which the stable point may have passed it.
        had = min(self.stable, behind, record.prefix)
        # However far behind somebody is, caches are bounded: what they cannot keep any more is given up.
        floor = min(self.stable, max(had, oldest))
        confirmed = min(had, record.delivered)
        is_news = floor > self.floor or self.stable > record.stable or confirmed > self.confirmed
        self.floor = max(self.floor, floor)
        self.confirmed = max(self.confirmed, confirmed)
        return is_news

    def _is_held_up(self, now_ns: int, record: StreamRecord, settings: QsmSettings, is_pace_known: bool) -> bool:
        """Return whether a single member holds up all others too much."""
        if self._wait is None:
            if record.runner_up == NOBODY:
                return False
            self._wait = _Wait(now_ns, record)
        return self._wait.is_too_much(now_ns, record, settings, is_pace_known)

    def _is_coming(self, now_ns: int, record: StreamRecord, settings: QsmSettings) -> bool:
        """Return whether to wait for a member behind: it keeps pace, and will be back soon."""
        if record.behind == NOBODY:
            self._pursuit = None
            return False
        if self._pursuit is None:
            self._pursuit = _Pursuit(now_ns, record)
        return self._pursuit.is_worth_a_wait(now_ns, record, settings, max(self.stable, record.prefix))

    def _is_spared(self, now_ns: int, behind: int, oldest: int, settings: QsmSettings) -> bool:
        """Return whether to wait a little before giving up what a member lacks: it would have to start over."""
        is_due = self.floor <= behind < oldest
        if self._grace is None:
            if not is_due:
                return False
            self._grace = _Grace(now_ns, settings)
        return self._grace.is_left(now_ns, is_due, settings)


class _Wait:
    """How long, and at what pace, all others have waited for the slowest."""

    __slots__ = (
        "_at",
        "_by",
        "_is_over",
        "_moved_ns",
        "_others",
        "_pace",
        "_paced_ns",
        "_seen",
        "_since_ns",
        "_trials",
    )

    def __init__(self, now_ns: int, record: StreamRecord) -> None:
        # The best recent pace of the others, in frames a second, and where they were when it was last measured.
        self._pace = 0
        self._paced_ns = now_ns
        self._others = record.runner_up
        self._trials = 1
        self._begin(now_ns, record, 0)

    def _begin(self, now_ns: int, record: StreamRecord, by: int) -> None:
        self._by = by
        self._is_over = False
        # When it began to hold up the others, when it was last seen to move, and when and where it was measured last.
        self._since_ns = self._moved_ns = now_ns
        self._seen = record.prefix
        self._at = (now_ns, record.prefix)

    def is_too_much(self, now_ns: int, record: StreamRecord, settings: QsmSettings, is_pace_known: bool) -> bool:
        """Return whether to end the wait. A stopped member holds up the others for at most `isolate_after_ns`."""
        self._measure(now_ns, record, settings)
        if record.runner_up == NOBODY or record.runner_up - record.prefix < settings.window // 8:
            self._by = 0
            return False
        if self._by != record.slowest:
            self._begin(now_ns, record, record.slowest)
        if record.prefix > self._seen:
            self._seen, self._moved_ns = record.prefix, now_ns
        measured_ns, prefix = self._at
        elapsed_ns = now_ns - measured_ns
        if now_ns - self._moved_ns >= settings.isolate_after_ns:
            self._is_over = True
        elif elapsed_ns >= settings.isolate_after_ns:
            is_slow = 2 * (record.prefix - prefix) * SECOND < self._pace * elapsed_ns
            is_trial = now_ns - self._since_ns >= TRIAL_NS * self._trials
            if is_trial:
                self._trials = min(2 * self._trials, TRIALS_APART_MAX)
            self._is_over = self._is_over or is_slow or is_trial or not is_pace_known
            self._at = (now_ns, record.prefix)
        return self._is_over

    def _measure(self, now_ns: int, record: StreamRecord, settings: QsmSettings) -> None:
        """See how fast all but the slowest go, whatever holds them up."""
        elapsed_ns = now_ns - self._paced_ns
        if elapsed_ns < settings.isolate_after_ns:
            return
        others = record.prefix if record.runner_up == NOBODY else record.runner_up
        pace = (others - self._others) * SECOND // elapsed_ns
        periods = min(elapsed_ns // settings.isolate_after_ns, FADING_PERIODS)
        self._pace = max(pace, self._pace * (FADING_PERIODS - periods) // FADING_PERIODS)
        self._paced_ns, self._others = now_ns, others


class _Pursuit:
    """How fast the last of those who are behind comes, and how fast the others went before they waited for it."""

    __slots__ = ("_behind", "_is_awaited", "_others", "_pace", "_since_ns")

    def __init__(self, now_ns: int, record: StreamRecord) -> None:
        self._is_awaited = False
        self._pace = 0
        self._note(now_ns, record)

    def _note(self, now_ns: int, record: StreamRecord) -> None:
        self._since_ns, self._behind, self._others = now_ns, record.behind, record.prefix

    def is_worth_a_wait(self, now_ns: int, record: StreamRecord, settings: QsmSettings, goal: int) -> bool:
        """Return whether to wait for it until it is at the goal.

        It is if it goes at half the pace of the others at least, without gaining on them: who gains needs no help. A
        window of its receive buffer is free, so half a window is not too late.
        """
        elapsed_ns = now_ns - self._since_ns
        come, gone = record.behind - self._behind, record.prefix - self._others
        if self._is_awaited:
            if elapsed_ns >= settings.isolate_after_ns // 2:
                self._is_awaited = 2 * come * SECOND >= self._pace * elapsed_ns
                self._note(now_ns, record)
        elif elapsed_ns > 0 and gone >= max(1, settings.window // 2):
            lag_ns = (goal - record.behind) * elapsed_ns // max(1, come)
            self._is_awaited = gone <= 2 * come <= 2 * gone and lag_ns <= AWAITED_MAX * settings.isolate_after_ns
            self._pace = gone * SECOND // elapsed_ns
            self._note(now_ns, record)
        return self._is_awaited


class _Grace:
    """For how long the others may wait for members that are about to be given up; it comes back with time."""

    __slots__ = ("_at_ns", "_left_ns", "_was_due")

    def __init__(self, now_ns: int, settings: QsmSettings) -> None:
        self._at_ns = now_ns
        self._left_ns = self._most_ns(settings)
        self._was_due = False

    def is_left(self, now_ns: int, is_due: bool, settings: QsmSettings) -> bool:
        """Return whether to wait now for a member about to be given up; count the time since the last call."""
        elapsed_ns = now_ns - self._at_ns
        self._at_ns = now_ns
        if self._was_due:
            self._left_ns -= elapsed_ns
        else:
            self._left_ns = min(self._left_ns + elapsed_ns // SPARING, self._most_ns(settings))
        self._was_due = is_due and self._left_ns > 0
        return self._was_due

    @staticmethod
    def _most_ns(settings: QsmSettings) -> int:
        """Return the longest single wait: a member stopped for 2 s costs the others less than a tenth of that."""
        return settings.isolate_after_ns * 3 // 2
