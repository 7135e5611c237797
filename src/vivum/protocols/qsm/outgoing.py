"""The sender's side of one stream: everything that this node sends into one region view, whatever the group.

Feeds register by putting messages into the outbox of their group; the stream pulls from the outboxes in turn when
the window and the network have room, and packs messages of many groups into one frame (seed 004, section 4, Figures
9 and 10).

Two points move behind the sending: below `first` frames are stable, the window does not count them any more; below
`confirmed` every member has them, those included that slept or lagged, and the application is told.

Invariants: `confirmed <= first <= next_frame`; exactly the frames `confirmed <= n < next_frame` are kept. Caches have
those below `first` too, unless all who should hold one slept or lost it: then the sender is the last who has it.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice

from vivum.core.ids import Channel, Endpoint, GroupId
from vivum.core.ranges import RangeSet
from vivum.protocols.commands import SlowMembers
from vivum.protocols.membership.region_config import RegionConfig
from vivum.protocols.qsm.chain import END, MARKS, begin_mark, slow_mark
from vivum.protocols.qsm.rate import Pacer
from vivum.protocols.qsm.settings import QsmSettings
from vivum.wire.codec import FrameBuilder
from vivum.wire.fragments import Outbox


class RegionSender:
    """What this node sends into one region view."""

    def __init__(
        self,
        config: RegionConfig,
        destinations: Sequence[Endpoint | Channel],
        settings: QsmSettings,
        next_frame: int = 0,
    ) -> None:
        """Begin a stream, or go on with one that ended before this frame."""
        self.config = config
        self.destinations = destinations
        self.first = next_frame
        self.confirmed = next_frame
        self.next_frame = next_frame
        self.key = (config.region, config.view)
        self.closing_since_ns: int | None = None
        self.closed = False
        self.heartbeat_ns = settings.heartbeat_ns_min
        self.heartbeat_at_ns: int | None = None
        # For each group: the first message put in here, one past the last, and one past the last that is stable.
        self.put: dict[GroupId, list[int]] = {}
        self.pacer = Pacer(settings)
        self.waiting_bytes = 0
        # Bytes of the frames in the window, and how many there may be.
        self._window_bytes = 0
        self._window_bytes_max = settings.window_bytes
        # What to do about slow members: the strictest wish of the groups that are sent here, and what was told.
        self.slow = SlowMembers.ISOLATE
        self._told = SlowMembers.ISOLATE
        self._settings = settings
        self._outboxes: dict[GroupId, Outbox] = {}
        self._ready: deque[GroupId] = deque()
        self._packed: list[tuple[GroupId, int]] = []
        self._frames: deque[bytes] = deque()
        self._stops: deque[list[tuple[GroupId, int]]] = deque()
        self._resent_ns: dict[int, int] = {}

    # Out.

    def pending_bytes(self, group: GroupId) -> int:
        """Bytes of a group that wait here."""
        outbox = self._outboxes.get(group)
        return 0 if outbox is None else outbox.size

    def feed(
        self,
        group: GroupId,
        first: int,
        payloads: Sequence[bytes],
        size: int | None = None,
        slow: SlowMembers = SlowMembers.ISOLATE,
    ) -> None:
        """Queue messages of a group, of which the caller may know the `size` in bytes."""
        if size is None:
            size = sum(map(len, payloads))
        assert not self.closing
        self.slow = max(self.slow, slow)
        outbox = self._outboxes.get(group)
        if outbox is None:
            outbox = self._outboxes[group] = Outbox(group, cut_to_fill=True)
            self._ready.append(group)
            if group not in self.put:
                self.put[group] = [first, first, first]
        outbox.put(first, payloads, size)
        self.waiting_bytes += size
        self.put[group][1] = first + len(payloads)

    def close(self, now_ns: int) -> None:
        """Take no more messages: a new view took over. What waits still goes to this one, to which it was promised."""
        self.closing_since_ns = now_ns

    def reopen(self) -> None:
        """Go on: the region view concerns this node again, and was not replaced meanwhile."""
        self.closing_since_ns = None
        self.closed = False

    @property
    def closing(self) -> bool:
        """A new view took over."""
        return self.closing_since_ns is not None

    @property
    def can_seal(self) -> bool:
        """Something waits and the window has room for it."""
        unstable = self.next_frame - self.first
        if unstable >= self._settings.window_frames or (unstable and self._window_bytes >= self._window_bytes_max):
            return False
        return bool(self._ready) or (self.closing and not self.closed and self.next_frame > 0)

    def pack(self, builder: FrameBuilder, before: Sequence["RegionSender"]) -> int:
        """Fill one frame from the groups that wait, in turn; return its number. `sealed` must follow."""
        if self.next_frame == 0:
            names = [(each.config.region, each.config.view) for each in before]
            builder.append(MARKS, 0, begin_mark(names))
        if self.slow != self._told and builder.append(MARKS, 1, slow_mark(self.slow)):
            self._told = self.slow
        ready, packed = self._ready, self._packed
        while ready:
            group = ready[0]
            outbox = self._outboxes[group]
            waiting, was_cut = outbox.size, outbox.is_cut
            # A group that ended the last frame with a piece of a message ends its turn with the rest of it.
            packed.append((group, outbox.fill(builder, rest_only=was_cut and len(ready) > 1)))
            self.waiting_bytes -= waiting - outbox.size
            if not outbox:
                ready.popleft()
                # Thousands of groups that are silent now must not keep an empty box each.
                del self._outboxes[group]
            elif outbox.is_cut:
                # The frame is full. The next one begins with the rest, so that few messages are open at receivers;
                # but one that takes many frames shares them with the other groups.
                if was_cut:
                    ready.rotate(-1)
                break
            else:
                ready.rotate(-1)
                if not was_cut:
                    break
        if self.closing and not ready and builder.append(MARKS, 2, END):
            self.closed = True
        return self.next_frame

    def sealed(self, data: bytes, now_ns: int) -> None:
        """Keep the frame that was just packed until it is stable."""
        self._frames.append(data)
        self._window_bytes += len(data)
        self._stops.append(self._packed)
        self._packed = []
        self.next_frame += 1
        self.heartbeat_ns = self._settings.heartbeat_ns_min
        self.heartbeat_at_ns = now_ns + self.heartbeat_ns

    # What the region reports.

    def on_report(self, stable: int, floor: int, sharers: int = 1) -> set[GroupId]:
        """Open the window, forget what every member has; return the groups of which all members have more now.

        `sharers` are all that send into the region: the buffers of its members are for all of them.
        """
        changed: set[GroupId] = set()
        self._window_bytes_max = self._settings.window_bytes // sharers
        first = max(self.first, min(stable, self.next_frame))
        if first > self.first:
            left = islice(self._frames, self.first - self.confirmed, first - self.confirmed)
            self._window_bytes -= sum(map(len, left))
            self.first = first
        while self.confirmed < min(floor, self.first):
            self._frames.popleft()
            self._resent_ns.pop(self.confirmed, None)
            for group, stop in self._stops.popleft():
                self.put[group][2] = stop
                changed.add(group)
            self.confirmed += 1
        if self.confirmed == self.next_frame:
            self.heartbeat_at_ns = None
        return changed

    def resend(self, missing: Sequence[int], now_ns: int, frames_max: int) -> list[bytes]:
        """Find frames that a region lacks, but for those that were just sent again."""
        found = []
        for start, stop in RangeSet.from_bounds(missing).ranges():
            for number in range(max(start, self.confirmed), min(stop, self.next_frame)):
                before_ns = self._resent_ns.get(number)
                if before_ns is None or now_ns - before_ns >= self._settings.resend_ns_min:
                    self._resent_ns[number] = now_ns
                    found.append(self._frames[number - self.confirmed])
                    if len(found) == frames_max:
                        return found
        return found

    def kept(self, bounds: Sequence[int], frames_max: int) -> list[tuple[int, bytes]]:
        """Find kept frames of these ranges, with their numbers, for a member of our own ring that asks."""
        found: list[tuple[int, bytes]] = []
        for start, stop in RangeSet.from_bounds(bounds).ranges():
            for number in range(max(start, self.confirmed), min(stop, self.next_frame)):
                if len(found) == frames_max:
                    return found
                found.append((number, self._frames[number - self.confirmed]))
        return found

    @property
    def is_done(self) -> bool:
        """Nothing waits, everything sent is at every member, and nothing new will come."""
        quiet = not self._ready and self.confirmed == self.next_frame
        return self.closing and quiet and (self.closed or not self.next_frame)

    def on_heartbeat_due(self, now_ns: int) -> None:
        """Double the distance to the next heartbeat."""
        self.heartbeat_ns = min(2 * self.heartbeat_ns, self._settings.heartbeat_ns_max)
        self.heartbeat_at_ns = now_ns + self.heartbeat_ns
