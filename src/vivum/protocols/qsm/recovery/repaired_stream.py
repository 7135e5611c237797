"""A stream at a receiver that repairs it by tokens: what it keeps for others, asks for, and gives up.

Seed 004, section 3. The frames themselves are taken by `StreamReceiver`, of which nothing is overridden but the choice
of what is held: this adds no work to a frame that comes in order.
"""

from vivum.core.ids import Member, RegionId, ViewNumber
from vivum.core.ranges import RangeSet
from vivum.observe.counters import Counters
from vivum.protocols.commands import SlowMembers
from vivum.protocols.qsm.recovery.aggregate import limited
from vivum.protocols.qsm.recovery.holders import BLOCK_FRAMES, holds
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.rings.placement import Placement
from vivum.protocols.streams.stream_receiver import StreamReceiver
from vivum.wire.codec import Frame

CHECK_NS_MAX = 200_000_000
"""More than this between two looks at a stream means that the node did not run."""

WAKING_NS = 30_000_000
"""For this long a node that slept may read what waited in its socket."""

SLOW_ROUND_NS = 30_000_000
"""A round of the token on a link that repairs fill."""

SURE_NS = 300_000_000
"""After this time repairs come as fast as they will."""

CHASE_NS = 50_000_000
"""After this time a node that slept knows about how fast repairs come: some rounds of the token."""


class RepairedStream(StreamReceiver):
    """What this node has of one stream, and what it does to have all of it."""

    __slots__ = (
        "_asked",
        "_behind_ns",
        "_chase",
        "_expected",
        "_expected_before",
        "_expected_until_ns",
        "_judged",
        "_looked_ns",
        "_placement",
        "_position",
        "_rumour_ns",
        "_rumour_stop",
        "_rumour_stop_before",
        "_seen_at_token",
        "_settings",
        "_stuck_at",
        "_stuck_ns",
    )

    def __init__(
        self,
        sender: Member,
        region: RegionId,
        view: ViewNumber,
        placement: Placement,
        position: tuple[int, int],
        settings: QsmSettings,
        counters: Counters,
        now_ns: int,
    ) -> None:
        super().__init__(sender, region, view, settings, counters, now_ns)
        slots = placement.levels[0][0].slots
        # In a small region everybody holds everything; where the sender has no other receiver, nobody holds anything.
        is_small = placement.partitions == 1 and len(slots) <= settings.cache_holders
        self._holds_none = is_small and sum(slot != (sender.node,) for slot in slots) == 1
        self._holds_all = is_small and not self._holds_none
        self._placement = placement
        self._position = position
        self._settings = settings
        # One past the highest frame that had come at the last token.
        self._seen_at_token = 0
        # How far the stream is by hearsay, now and some time ago.
        self._rumour_stop = 0
        self._rumour_stop_before = 0
        self._rumour_ns = now_ns
        # Below this, frames that did not come at once were counted as lost.
        self._judged = 0
        self._asked = RangeSet()
        # Frames that a member has promised lately, and those promised some time before.
        self._expected = RangeSet()
        self._expected_before = RangeSet()
        self._expected_until_ns = 0
        # For how long this node has been behind the others.
        self._behind_ns = 0
        self._stuck_at = 0
        self._stuck_ns = 0
        self._looked_ns = now_ns
        # Of a node that slept: how it catches up.
        self._chase: _Chase | None = None

    def _held_of(self, frame: Frame) -> list[Frame]:
        """Return what this node is to keep for others of a frame, or of those of a train: some blocks of it."""
        found, start, holders = [], frame.sequence, self._settings.cache_holders
        while start < frame.stop:
            stop = min(start - start % BLOCK_FRAMES + BLOCK_FRAMES, frame.stop)
            if holds(self._placement, *self._position, start, holders):
                found.append(frame.part(start, stop))
            start = stop
        return found

    def request(self, now_ns: int, left: RangeSet, ranges_max: int, frames_max: int) -> tuple[RangeSet, int]:
        """Return what to ask for in a passing token, in which `left` of our last request was not served.

        Also tell how many frames were found to be lost since the last time.

        A frame behind which others came before the last token is lost. One that is known only by hearsay may be on its
        way, or wait in our own socket: it is asked for when nothing new has come for a while. What somebody took
        out of the request is on its way too, for a while.
        """
        if self._chase is not None:
            self._chase.begin(now_ns, self._missing(), self.window.stop)
        served = self._asked
        served.difference_update(left)
        self._expect(now_ns, served)
        window = self.window
        known = self._seen_at_token
        if now_ns - self._heard_ns >= self._settings.rumour_ns:
            known = max(known, self._rumour_stop_before)
        if window.prefix == window.stop:
            wanted, lost = RangeSet(), 0
        else:
            wanted, lost = self._lacking(known, ranges_max)
        self._judged = max(self._judged, known)
        self._seen_at_token = self._highest
        if now_ns - self._rumour_ns >= self._settings.rumour_ns:
            self._rumour_stop_before, self._rumour_stop = self._rumour_stop, window.stop
            self._rumour_ns = now_ns
        # The lowest ones: they hold up what came behind them.
        self._asked = wanted.head(frames_max).lowest(ranges_max) if wanted else wanted
        return self._asked.copy(), lost

    def _lacking(self, known: int, ranges_max: int) -> tuple[RangeSet, int]:
        """Return what is missing below `known` and nobody has promised; and how many frames were found to be lost."""
        wanted = RangeSet.from_bounds(self.window.missing(ranges_max))
        # No more than there is room for: what comes beyond the window is thrown away.
        wanted.discard_range(min(known, self.window.prefix + self.window.capacity), 1 << 64)
        lost = 0
        if known > self._judged:
            lost = sum(stop - max(start, self._judged) for start, stop in wanted.ranges() if stop > self._judged)
        wanted.difference_update(self._expected)
        wanted.difference_update(self._expected_before)
        return wanted, lost

    def _expect(self, now_ns: int, served: RangeSet) -> None:
        """Wait for these repairs, between half of the time for it and all of it.

        Those promised earlier are not waited for any longer because of new ones: where frames are lost all the time,
        so are repairs, and somebody promises something in every round.
        """
        if now_ns >= self._expected_until_ns:
            is_recent = now_ns < self._expected_until_ns + self._settings.repair_wait_ns // 2
            self._expected_before = self._expected if is_recent else RangeSet()
            self._expected = RangeSet()
            self._expected_until_ns = now_ns + self._settings.repair_wait_ns // 2
        self._expected.update(served)

    def feedback(self, ranges_max: int) -> tuple[int, tuple[int, ...]]:
        """Return how far this node looks, and the ranges that it misses below that."""
        if self.is_unwanted:
            return self.window.stop, ()
        lacking = RangeSet.from_bounds(self.window.missing(ranges_max + 1))
        lacking.discard_range(self._highest, 1 << 64)
        return limited(self._highest, lacking, ranges_max)

    def is_beyond_help(self, now_ns: int) -> bool:
        """Return whether this node must give up: a frame is missing that nobody must have any more, or the others are
        ahead for longer than the sender wants to put up with.
        """
        prefix = self.window.prefix
        if now_ns - self._looked_ns > CHECK_NS_MAX:
            self._chase = _Chase(now_ns)
        # Time in which this node slept does not count: what it lacks may lie in its own socket.
        elapsed_ns = min(now_ns - self._looked_ns, CHECK_NS_MAX)
        self._looked_ns = now_ns
        if self._chase is not None and self._has_lost_chase(now_ns, self._chase):
            return True
        self._behind_ns = self._behind_ns + elapsed_ns if prefix < self.stable else 0
        if self.slow == SlowMembers.DROP and self._behind_ns >= self._settings.drop_after_ns and not self.is_unwanted:
            return True
        if prefix != self._stuck_at or prefix >= self.window.stop:
            self._stuck_at = prefix
            self._stuck_ns = 0
            return False
        self._stuck_ns += elapsed_ns
        forgotten = (self.sender_gone or prefix < self.stable) and not self.is_unwanted
        return forgotten and self._stuck_ns >= self._settings.give_up_after_ns

    def _missing(self) -> int:
        window = self.window
        return window.stop - window.prefix - window.held

    def _has_lost_chase(self, now_ns: int, chase: "_Chase") -> bool:
        """Return whether caches will have forgotten what this node missed in its sleep before it has all of it."""
        window, settings = self.window, self._settings
        if not chase.has_begun or self.sender_gone or self.is_unwanted or self.slow >= SlowMembers.WAIT:
            return False
        if window.prefix >= self.stable:
            self._chase = None
            return False
        if window.prefix < self.cache.floor:
            return True
        still = chase.frames_sent_until_over(now_ns, self._missing(), window.stop, settings)
        # The others may wait a little in the end (`StreamStability`), and repairs come at an uneven pace.
        return window.held + still > settings.cache_frames_max * 5 // 4


class _Chase:
    """How a node that slept comes nearer to the others, who go on."""

    __slots__ = ("_missing", "_since_ns", "_stop", "_woke_ns")

    def __init__(self, now_ns: int) -> None:
        self._woke_ns = now_ns
        self._since_ns: int | None = None
        self._missing = self._stop = 0

    @property
    def has_begun(self) -> bool:
        """Whether it has heard since how far the others are."""
        return self._since_ns is not None

    def begin(self, now_ns: int, missing: int, stop: int) -> None:
        """Note where it begins, unless it has begun; at a token, which tells how far the others are.

        The first tokens may be old, and have waited in the socket.
        """
        if self._since_ns is None or self._since_ns < self._woke_ns + WAKING_NS:
            self._since_ns, self._missing, self._stop = now_ns, missing, stop

    def frames_sent_until_over(self, now_ns: int, missing: int, stop: int, settings: QsmSettings) -> int:
        """Return how many frames more will be sent until all that is missing has come; 0 if it is too early to say."""
        assert self._since_ns is not None
        elapsed_ns = now_ns - self._since_ns
        if elapsed_ns < CHASE_NS:
            return 0
        # The first requests may not have been answered yet: at least what one in each slow round brings.
        least = settings.asked_frames_max * elapsed_ns // SLOW_ROUND_NS if elapsed_ns < SURE_NS else 1
        come = max(self._missing - missing, least, 1)
        return missing * (stop - self._stop) // come
