"""A stream at a receiver that repairs it by tokens: what it keeps for others, asks for, and gives up.

Seed 004, section 3. The frames themselves are taken by `StreamReceiver`, of which nothing is overridden but the choice
of what is held: this adds no work to a frame that comes in order.
"""

from vivum.core.ids import Member, RegionId, ViewNumber
from vivum.core.ranges import RangeSet
from vivum.observe.counters import Counters
from vivum.protocols.commands import SlowMembers
from vivum.protocols.qsm.recovery.aggregate import limited
from vivum.protocols.qsm.recovery.holders import holds
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.rings.placement import Placement
from vivum.protocols.streams.stream_receiver import StreamReceiver

CHECK_NS_MAX = 200_000_000
"""More than this between two looks at a stream means that the node did not run."""


class RepairedStream(StreamReceiver):
    """What this node has of one stream, and what it does to have all of it."""

    __slots__ = (
        "_asked",
        "_behind_ns",
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

    def _holds(self, sequence: int) -> bool:
        """Return whether this node is to keep a frame for others."""
        holders = self._settings.cache_holders
        return not self._holds_none and holds(self._placement, *self._position, sequence, holders)

    def request(self, now_ns: int, left: RangeSet, ranges_max: int, frames_max: int) -> tuple[RangeSet, int]:
        """Return what to ask for in a passing token, in which `left` of our last request was not served.

        Also tell how many frames were found to be lost since the last time.

        A frame behind which others came before the last token is lost. One that is known only by hearsay may be on its
        way, or wait in our own socket: it is asked for when nothing new has come for a while. What somebody took
        out of the request is on its way too, for a while.
        """
        served = self._asked.copy()
        served.difference_update(left)
        self._expect(now_ns, served)
        wanted = RangeSet.from_bounds(self.window.missing(ranges_max))
        known = self._seen_at_token
        if now_ns - self._heard_ns >= self._settings.rumour_ns:
            known = max(known, self._rumour_stop_before)
        # No more than there is room for: what comes beyond the window is thrown away.
        wanted.discard_range(min(known, self.window.prefix + self.window.capacity), 1 << 64)
        lost = 0
        if known > self._judged:
            lost = sum(stop - max(start, self._judged) for start, stop in wanted.ranges() if stop > self._judged)
            self._judged = known
        wanted.difference_update(self._expected)
        wanted.difference_update(self._expected_before)
        self._seen_at_token = self._highest
        if now_ns - self._rumour_ns >= self._settings.rumour_ns:
            self._rumour_stop_before, self._rumour_stop = self._rumour_stop, self.window.stop
            self._rumour_ns = now_ns
        # The lowest ones: they hold up what came behind them.
        self._asked = wanted.head(frames_max).lowest(ranges_max)
        return self._asked.copy(), lost

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
        # Time in which this node slept does not count: what it lacks may lie in its own socket.
        elapsed_ns = min(now_ns - self._looked_ns, CHECK_NS_MAX)
        self._looked_ns = now_ns
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
