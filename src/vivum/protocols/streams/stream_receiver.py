"""One sender's stream into one region view, at one receiver: what came, what is missing, what is kept for others.

Numbers frames, not messages: groups play no part here, so thousands of them cost nothing (seed 001, section 2).
Messages are made by the FIFO that the stream belongs to. How missing frames are asked for, and which frames a node
keeps for others, is up to the protocol: it makes a subclass.

Invariants: `held` has the frames received and not yet delivered; `cache` has frames received from its floor on that
this node holds for others; `confirmable <= delivered <= window.prefix`.
"""

from vivum.core.ids import Member, RegionId, ViewNumber
from vivum.core.ranges import RangeSet
from vivum.observe.counters import Counters
from vivum.protocols.commands import SlowMembers
from vivum.protocols.streams.frame_cache import FrameCache
from vivum.protocols.streams.settings import StreamSettings
from vivum.wire.codec import BEYOND, DUPLICATE, GROUP_MAX, Frame, SequenceWindow
from vivum.wire.kinds import Kind

RESENT = Kind.RESENT

NO_DELAY = 1 << 63

ANY_GROUPS = (0, GROUP_MAX)
"""Bounds of all groups that a topic may have."""

DELAY_PERIOD_NS = 20_000_000
"""The delays of frames in this time show the queues on the way."""

DRIFT_PER_MILLION = 200
"""How much two clocks may drift apart: two cheap ones, in opposite directions."""


class StreamReceiver:
    """What this node has of one stream."""

    __slots__ = (
        "_counters",
        "_delay_base_ns",
        "_delay_count",
        "_delay_low_ns",
        "_delay_since_ns",
        "_delay_sum_ns",
        "_heard_ns",
        "_highest",
        "_holds_all",
        "_holds_none",
        "cache",
        "closed",
        "delivered",
        "given_up_at",
        "groups",
        "held",
        "is_unwanted",
        "lacks",
        "largest",
        "region",
        "sender",
        "sender_gone",
        "slow",
        "stable",
        "standing_ns",
        "view",
        "views",
        "window",
    )

    def __init__(
        self,
        sender: Member,
        region: RegionId,
        view: ViewNumber,
        settings: StreamSettings,
        counters: Counters,
        now_ns: int,
    ) -> None:
        self.sender = sender
        self.region = region
        self.view = view
        # The sender may be a window ahead of the stable point, and we may be behind that as far as caches reach. Keep
        # what comes meanwhile, or we would have to ask for all of it again and never catch up.
        self.window = SequenceWindow(0, settings.cache_frames_max + settings.window_frames)
        # Before this frame nothing is left to deliver; messages that wait for a view count as left.
        self.delivered = 0
        self.stable = 0
        # Bytes of the largest frame since something became stable, or of one that came with it.
        self.largest = 0
        self.closed = False
        self.sender_gone = False
        # The sender's policy for slow members.
        self.slow = SlowMembers.ISOLATE
        # The first frame that this node gave up.
        self.given_up_at: int | None = None
        # Whether this node has left all groups of the region view, and only helps the others.
        self.is_unwanted = False
        # Bounds of the groups of the region view; all groups until they are known.
        self.groups: tuple[int, ...] = ANY_GROUPS
        # Bounds of groups that this node did not ask for, in an approximate region: it drops their messages.
        self.lacks: tuple[int, ...] = ()
        # For groups whose view, by the sender's mark, is not the region's: from which message on, which view.
        self.views: dict[int, list[tuple[int, int]]] = {}
        # By the number of the first, trains in one piece.
        self.held: dict[int, Frame] = {}
        self.cache = FrameCache()
        # All frames, or none, are held for others; else `_held_of` says which.
        self._holds_all = False
        self._holds_none = True
        self._counters = counters
        # One past the highest frame that came, and when it came.
        self._highest = 0
        self._heard_ns = now_ns
        # Of frames that came at once, by the clocks of both ends: the shortest delay ever; since the last look, the
        # shortest, the sum of all, and how many.
        self._delay_base_ns = NO_DELAY
        self._delay_low_ns = NO_DELAY
        self._delay_sum_ns = 0
        self._delay_count = 0
        self._delay_since_ns = now_ns
        # How much longer than the shortest delay frames took lately, standing in queues; None if no frames came.
        self.standing_ns: int | None = None

    @property
    def is_settled(self) -> bool:
        """Whether everything ever sent is at every member and delivered here, and no more will come."""
        if self.is_unwanted:
            return True
        stop = self.window.stop
        # The floor, not the stable point: until then a member may need us for what it lacks.
        reached = self.stable if self.sender_gone else self.cache.floor
        return (self.closed or self.sender_gone) and self.delivered >= stop and reached >= stop

    @property
    def reached(self) -> int:
        """Return the frame below which this node needs nothing more: the end, if it has left all groups."""
        return self.window.stop if self.is_unwanted else self.window.prefix

    @property
    def confirmable(self) -> int:
        """Return the frame below which this node has delivered everything: nothing waits, nothing was given up."""
        if self.is_unwanted:
            return self.window.stop
        return self.delivered if self.given_up_at is None else min(self.delivered, self.given_up_at)

    # What arrives.

    def on_data(self, now_ns: int, frame: Frame) -> bool:
        """Take a frame; return whether it is new."""
        window, sequence, is_repair = self.window, frame.sequence, frame.kind is RESENT
        if len(self.held) >= window.capacity:
            # Behind a stream that must be delivered first. The sender has to wait for us.
            self._counters.frames_beyond_window += 1
            return False
        known = window.stop
        verdict = window.add(sequence)
        if verdict == DUPLICATE:
            self._counters.frames_duplicate += 1
            if is_repair:
                self._counters.repairs_wasted += 1
            return False
        if verdict == BEYOND:
            window.announce(sequence + 1)
            self._counters.frames_beyond_window += 1
            return False
        if is_repair:
            self._counters.repairs_received += 1
        else:
            self._note_delay(now_ns - frame.sent_ns, 1)
        if sequence >= known:
            self.closed = False
        if sequence >= self._highest:
            self._highest = sequence + 1
            self._heard_ns = now_ns
        if frame.length > self.largest:
            self.largest = frame.length
        if not self.is_unwanted:
            self.held[sequence] = frame
        self._keep(frame)
        return True

    def is_next(self, first: int, stop: int) -> bool:
        """Return whether frames are new and next, with nothing missing or held: they may be delivered at once."""
        window = self.window
        return (
            first == window.prefix
            and self.delivered == first
            and not window.held
            and not self.is_unwanted
            and stop - first <= window.capacity
        )

    def on_run(self, now_ns: int, frames: list[Frame]) -> None:
        """Take frames that follow each other and are next. They must be delivered at once."""
        window = self.window
        first, stop = frames[0].sequence, frames[-1].stop
        if stop > window.stop:
            self.closed = False
        # As if each were added singly: none of them came before.
        window.skip_to(stop)
        self._highest = stop
        self._heard_ns = now_ns
        for frame in frames:
            if frame.length > self.largest:
                self.largest = frame.length
            self._keep(frame)
        self._note_delay(now_ns - frames[-1].sent_ns, stop - first)

    def on_later_run(self, now_ns: int, frames: list[Frame]) -> bool:
        """Take frames that follow each other behind all that came; they wait for what is missing.

        Return False, and do nothing, if that is not what they are: they are for `on_data`, one by one.
        """
        first, stop, known = frames[0].sequence, frames[-1].stop, self.window.stop
        if self.is_unwanted or stop - self.delivered > self.window.capacity or not self.window.add_run(first, stop):
            return False
        if stop > known:
            self.closed = False
        self._highest = stop
        self._heard_ns = now_ns
        for frame in frames:
            if frame.length > self.largest:
                self.largest = frame.length
            self.held[frame.sequence] = frame
            self._keep(frame)
        self._note_delay(now_ns - frames[-1].sent_ns, stop - first)
        return True

    def _note_delay(self, delay_ns: int, count: int) -> None:
        """Note how long frames took. Of those that came together the last one says: others may have waited for it."""
        if delay_ns < self._delay_low_ns:
            self._delay_low_ns = delay_ns
        self._delay_sum_ns += count * delay_ns
        self._delay_count += count

    def _keep(self, frame: Frame) -> None:
        """Keep what is held for others of a frame, or of those of a train."""
        if self._holds_all:
            self.cache.add(frame)
        elif not self._holds_none:
            for part in self._held_of(frame):
                self.cache.add(part)

    def _held_of(self, frame: Frame) -> list[Frame]:  # noqa: ARG002
        """Return what this node is to keep for others of a frame. Nothing, unless the protocol says which."""
        return []

    def measure_delay(self, now_ns: int) -> None:
        """Measure how long frames stood in queues lately.

        The mean, not the minimum: senders that stop when their windows are full let queues run empty now and then.
        """
        elapsed_ns = now_ns - self._delay_since_ns
        if elapsed_ns < DELAY_PERIOD_NS:
            return
        self._delay_since_ns = now_ns
        low_ns, self._delay_low_ns = self._delay_low_ns, NO_DELAY
        sum_ns, self._delay_sum_ns = self._delay_sum_ns, 0
        count, self._delay_count = self._delay_count, 0
        if not count:
            self.standing_ns = None
            return
        # Clocks drift apart, so an old shortest delay does not stay valid.
        self._delay_base_ns = min(self._delay_base_ns + elapsed_ns * DRIFT_PER_MILLION // 1_000_000, low_ns)
        self.standing_ns = sum_ns // count - self._delay_base_ns

    def on_status(self, stop: int, closed: bool, stable: int, floor: int, slow: int = 0) -> None:
        """Learn from a token or a heartbeat how far the stream is and what may be forgotten."""
        if slow > self.slow:
            self.slow = SlowMembers(min(slow, SlowMembers.WAIT))
        if stop > self.window.stop:
            # A sender may close a stream, and go on with it when the same region view concerns it again.
            self.window.announce(stop)
            self.closed = closed
        elif stop == self.window.stop:
            self.closed = self.closed or closed
        if stable > self.stable:
            self.stable, self.largest = stable, 0
        if floor > self.cache.floor:
            self.cache.forget_below(floor)

    # Repair.

    def serve(self, bounds: tuple[int, ...], frames_max: int) -> list[Frame]:
        """Return frames in the cache that a member asks for."""
        cache = self.cache
        if not cache:
            return []
        found: list[Frame] = []
        for start, stop in RangeSet.from_bounds(bounds).ranges():
            if len(found) >= frames_max:
                break
            found += cache.between(max(start, cache.floor), min(stop, self.window.stop), frames_max - len(found))
        return found

    def give_up_next(self) -> None:
        """Skip the gap at the head of the stream. Its sender may live outside our groups: never confirm the gap."""
        bounds = self.window.missing(1)
        self.give_up_at(bounds[0])
        self.window.skip_to(bounds[1])

    def give_up_at(self, sequence: int) -> None:
        """Note that a frame was not delivered, and never will be."""
        if self.given_up_at is None:
            self.given_up_at = sequence
