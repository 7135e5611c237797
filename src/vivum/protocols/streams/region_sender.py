"""The sender's side of one stream: everything that this node sends into one region view, whatever the group.

Feeds register by putting messages into the outbox of their group; the stream pulls from the outboxes in turn when
the window and the network have room, and packs messages of many groups into one frame (seed 004, section 4, Figures
9 and 10).

Three points move behind the sending: below `first` frames are stable, the window does not count them any more; below
`floor` nobody will ask for them; below `confirmed` every member has delivered them, and the application is told.

Invariants: `confirmed <= floor <= first <= next_frame`; exactly the frames `floor <= n < next_frame` are kept. Caches
have those below `first` too. If all caches of a frame slept or lost it, the sender has the last copy.
"""

from collections import deque
from collections.abc import Sequence

from vivum.core.ids import Channel, Endpoint, GroupId, ViewNumber
from vivum.core.ranges import RangeSet
from vivum.protocols.commands import SlowMembers
from vivum.protocols.membership.region_config import RegionConfig
from vivum.protocols.streams.kept_frames import KeptFrames
from vivum.protocols.streams.marks import (
    BEGIN_MARK,
    END,
    END_MARK,
    MARKS,
    SLOW_MARK,
    VIEW_MARK,
    ViewMark,
    begin_mark,
    slow_mark,
    view_mark,
)
from vivum.protocols.streams.pacer import Pacer
from vivum.protocols.streams.send_window import SendWindow
from vivum.protocols.streams.settings import StreamSettings
from vivum.wire.codec import FrameBuilder, Part, Stops, relabel
from vivum.wire.kinds import Kind
from vivum.wire.outboxes import Outboxes
from vivum.wire.tokens import RegionReport
from vivum.wire.trains import Train

ViewKey = tuple[int, int]
"""A region view: region and view."""

UNCONFIRMED_MAX = 1 << 17
"""Runs of frames, sealed together, that the application was not told of. Past it the window is closed: a member that
sleeps is waited for then, until the service drops it. At full rate that is several seconds, longer than the service
takes."""

FRAME_BYTES_CUT_MAX = 9000
"""In larger frames what is not filled is a small part, and a message that is cut costs every receiver a join."""

_ENDING = [(MARKS, END_MARK, [END], 0, 0)]


class RegionSender:
    """What this node sends into one region view."""

    def __init__(
        self,
        config: RegionConfig,
        destinations: Sequence[Endpoint | Channel],
        settings: StreamSettings,
        next_frame: int = 0,
    ) -> None:
        """Begin a stream, or go on with one that ended before this frame."""
        self.config = config
        self.destinations = destinations
        self.first = next_frame
        self.floor = next_frame
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
        self.window = SendWindow(settings, next_frame)
        # The rate allows the next frame then, and has counted it.
        self.reserved_ns: int | None = None
        self.outboxes = Outboxes(settings.frame_bytes_max <= FRAME_BYTES_CUT_MAX)
        # Of messages that are to go into this stream, those included that wait for a frame for several streams.
        self.waiting_bytes = 0
        # Frames for several streams wait for a frame of this one alone, or for a place in its window.
        self.is_awaited = False
        self.claims: set[object] = set()
        # Bytes of the frames in the window.
        self.window_bytes = 0
        # Frames of it that every member has, though one before them is still missing somewhere.
        self._ahead = 0
        # What to do about slow members: the strictest wish of the groups that are sent here, and what was told.
        self.slow = SlowMembers.ISOLATE
        self._told = SlowMembers.ISOLATE
        self._settings = settings
        # Group views that differ from the region's, and what is still to be told of them.
        self._views: dict[GroupId, ViewNumber] = {}
        self._view_marks: deque[ViewMark] = deque()
        self._frames = KeptFrames(next_frame)
        # For frames that are not confirmed, which messages end in them: the number of the first of some that were
        # sealed together, and their stops.
        self._stops: deque[tuple[int, Stops]] = deque()
        self._resent_ns: dict[int, int] = {}

    # Out.

    def feed(
        self,
        group: GroupId,
        first: int,
        payloads: Sequence[bytes],
        view: ViewNumber,
        size: int | None = None,
        slow: SlowMembers = SlowMembers.ISOLATE,
    ) -> None:
        """Queue messages of a group, accepted in this view of it; the caller may know their `size` in bytes."""
        if size is None:
            size = sum(map(len, payloads))
        self.expect(group, first, len(payloads), view, size, slow)
        self.outboxes.put(group, first, payloads, size)

    def expect(self, group: GroupId, first: int, count: int, view: ViewNumber, size: int, slow: SlowMembers) -> None:
        """Note messages that will go into this stream, from here or in frames for several streams."""
        assert self.closing_since_ns is None
        if slow > self.slow:
            self.slow = slow
        if view != (self._views.get(group, self.config.view) if self._views else self.config.view):
            # Another region of the group has changed, and this one has not: receivers cannot know.
            self._views[group] = view
            self._view_marks.append((group, first, view))
        self.waiting_bytes += size
        put = self.put.get(group)
        if put is None:
            put = self.put[group] = [first, first, first]
        put[1] = first + count

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

    def room(self, by: object = None) -> tuple[int, int]:
        """Return how many frames the window takes now, and how many bytes of frames; (0, 0) if it is closed.

        Others than `by` that claim a place in it are left theirs: at most a quarter of the window. The last frame may
        pass the bytes.
        """
        settings, in_window = self._settings, self.next_frame - self.first
        unstable = in_window - self._ahead
        frames = self.window.frames - unstable
        if self.claims:
            frames -= min(len(self.claims) - (by in self.claims), self.window.frames // 4)
        # However much is stable behind a gap, receivers hold no more than their caches take.
        frames = min(frames, settings.cache_frames_max - in_window, UNCONFIRMED_MAX - len(self._stops))
        size = self.window.bytes - self.window_bytes
        if not unstable:
            size = max(size, 1)
        return (frames, size) if frames > 0 and size > 0 else (0, 0)

    @property
    def must_speak(self) -> bool:
        """Only a frame of this stream alone can tell how it begins, of slow members, and of views of groups."""
        return self.next_frame == 0 or self.slow != self._told or bool(self._view_marks)

    @property
    def can_seal(self) -> bool:
        """Something waits and the window has room for it."""
        if not self.room()[0]:
            return False
        if self.outboxes or (self.is_awaited and self.must_speak):
            return True
        return self.closing and not self.closed and self.next_frame > 0

    def seal(
        self,
        builder: FrameBuilder,
        now_ns: int,
        header: tuple[int, ...],
        frames_max: int,
        bytes_max: int,
        before: Sequence["RegionSender"] = (),
    ) -> list[Train]:
        """Seal frames of what waits, as far as the window and the rate allow, and keep them until they are stable.

        At least one if `can_seal`; if marks take a frame of their own, only that. The rate has let the first go. The
        header is what frames have in common, up to their number and time. A new stream is delivered after those of
        `before`.
        """
        frames_room, bytes_room = self.room()
        frames_max, bytes_max = min(frames_max, frames_room), min(bytes_max, bytes_room)
        if self.pacer.is_limited:
            frames_max = min(frames_max, 1 + self.pacer.ready_count(now_ns))
        header = (*header, self.next_frame, now_ns)
        if self.must_speak and not self._speak(builder, before):
            # Messages must not overtake the marks that are left.
            trains, stops, _, taken = builder.seal_parts([], 0, False, 1, 1, *header)
            every = [stops]
        else:
            if self.slow != self._told:
                # Its mark found no room behind that of the beginning: it is for the next frame.
                frames_max = 1
            tail = _ENDING if self.closing and not self.closed else ()
            trains, every, taken = self.outboxes.seal(builder, frames_max, bytes_max, header, tail)
            if tail:
                self.closed = MARKS in every[-1].between(0, every[-1].frames)
        before_frame = self.next_frame
        self.keep(trains, every, taken, now_ns)
        self.pacer.on_sent(self.next_frame - before_frame - 1)
        return trains

    def is_clear(self, group: GroupId, view: ViewNumber) -> bool:
        """Return whether a message may pass the queue: nothing waits or is to be told, and the window has room."""
        return (
            view == self.config.view
            and group in self.put
            and not (self.outboxes or self.must_speak or self._views)
            and self.closing_since_ns is None
            and self.reserved_ns is None
            and self.room()[0] > 0
        )

    def seal_alone(
        self,
        builder: FrameBuilder,
        now_ns: int,
        header: tuple[int, ...],
        group: GroupId,
        first: int,
        payloads: Sequence[bytes],
    ) -> bytes:
        """Seal a frame of these messages, which must fit, and keep it; only where the stream `is_clear`."""
        part: Part = (group, first, list(payloads), 0, 0)
        header = (*header, self.next_frame, now_ns)
        trains, stops, _, _ = builder.seal_parts([part], 1, False, 1, 1, *header)
        self.put[group][1] = first + len(payloads)
        self.keep(trains, [stops], 0, now_ns)
        return trains[0].data

    def _speak(self, builder: FrameBuilder, before: Sequence["RegionSender"]) -> bool:
        """Begin a frame with marks; return whether messages may follow."""
        if self.next_frame == 0:
            names = [(each.config.region, each.config.view) for each in before]
            builder.append(MARKS, BEGIN_MARK, begin_mark(names))
        if self.slow != self._told and builder.append(MARKS, SLOW_MARK, slow_mark(self.slow)):
            self._told = self.slow
        while self._view_marks:
            if not builder.append(MARKS, VIEW_MARK, view_mark(self._view_marks[0])):
                return False
            self._view_marks.popleft()
        return True

    def keep(self, trains: Sequence[Train], stops: Sequence[Stops], taken: int, now_ns: int) -> None:
        """Keep the next frames until they are stable, with what ends in them and their bytes of messages together."""
        self._frames.extend(trains)
        for train in trains:
            self.window_bytes += len(train.data)
        for each in stops:
            self._stops.append((self.next_frame, each))
            self.next_frame += each.frames
        self.window.on_sent(self.next_frame - self.first - self._ahead)
        self.waiting_bytes -= taken
        self._beat_soon(now_ns)

    def _beat_soon(self, now_ns: int) -> None:
        self.heartbeat_ns = self._settings.heartbeat_ns_min
        self.heartbeat_at_ns = now_ns + self.heartbeat_ns

    @property
    def kept_bytes(self) -> int:
        """Bytes of the frames that are kept."""
        return self._frames.size

    # What the region reports.

    def on_report(self, now_ns: int, report: RegionReport) -> set[GroupId]:
        """Open the window, forget what nobody will ask for; return the groups of which all members have more now."""
        changed: set[GroupId] = set()
        first = max(self.first, min(report.stable, self.next_frame))
        if first > self.first:
            self.window_bytes -= self._frames.size_between(self.first, first)
            self.first = first
        self._ahead = 0
        if report.beyond:
            # Stable behind a gap: kept, but no longer in the window.
            ahead = RangeSet.from_bounds(report.beyond)
            ahead.discard_range(0, self.first)
            ahead.discard_range(self.next_frame, 1 << 64)
            self._ahead = ahead.count()
        self.window.fit(report.buffer_bytes, report.sharers)
        self.window.on_stable(now_ns, self.first, self.next_frame)
        self.window.pace(report.rate > 0, self.next_frame - self.first - self._ahead)
        self.pacer.set_rate(report.rate)
        floor = max(self.floor, min(report.floor, self.first))
        if self._resent_ns:
            for number in range(self.floor, floor):
                self._resent_ns.pop(number, None)
        self._frames.forget_below(floor)
        self.floor = floor
        confirmed = min(report.confirmed, self.floor)
        if confirmed > self.confirmed:
            self._confirm(confirmed, changed)
        if self.confirmed == self.next_frame:
            self.heartbeat_at_ns = None
        return changed

    def _confirm(self, stop: int, changed: set[GroupId]) -> None:
        """Note up to which frame all members have delivered everything, and the groups of which they have more now."""
        stops, put, start = self._stops, self.put, self.confirmed
        self.confirmed = stop
        while stops and stops[0][0] < stop:
            first, each = stops[0]
            for group, end in each.between(start - first, stop - first).items():
                if group != MARKS:
                    put[GroupId(group)][2] = end
                    changed.add(GroupId(group))
            if first + each.frames > stop:
                break
            stops.popleft()

    def end_unheard(self) -> set[GroupId]:
        """End the stream where nobody is left who could lack anything; return the groups that had something open.

        What was sent counts as at every member. What waits goes to nobody, and no frame says that it was the last: its
        number would never be confirmed.
        """
        stop = self.next_frame
        changed = self.on_report(0, RegionReport(0, stop, stop, (), 0, confirmed=stop))
        for group in self.outboxes.groups():
            self.outboxes.take(group)
            self.put[group][2] = self.put[group][1]
            changed.add(group)
        self.waiting_bytes = 0
        self.closed = True
        return changed

    def resend(self, missing: Sequence[int], now_ns: int, frames_max: int) -> list[bytes]:
        """Find frames that a region lacks, but for those that were just sent again."""
        found = []
        for start, stop in RangeSet.from_bounds(missing).ranges():
            for number in range(max(start, self.floor), min(stop, self.next_frame)):
                before_ns = self._resent_ns.get(number)
                if before_ns is None or now_ns - before_ns >= self._settings.resend_ns_min:
                    self._resent_ns[number] = now_ns
                    found.append(self._frame(number))
                    if len(found) == frames_max:
                        break
            if len(found) == frames_max:
                break
        self.window.on_lost(len(found))
        return found

    def _frame(self, number: int) -> bytes:
        """Find a kept frame; one for several streams gets the label of this one."""
        data = self._frames.get(number)
        if data[1] != Kind.SPREAD:
            return data
        own = relabel(data, *self.key)
        assert own is not None, "the frame was sealed for this stream too"
        return own

    @property
    def is_done(self) -> bool:
        """Nothing waits, everything sent is at every member, and nothing new will come."""
        quiet = not self.outboxes and self.confirmed == self.next_frame
        return self.closing and quiet and (self.closed or not self.next_frame)

    def on_heartbeat_due(self, now_ns: int) -> None:
        """Double the distance to the next heartbeat."""
        self.heartbeat_ns = min(2 * self.heartbeat_ns, self._settings.heartbeat_ns_max)
        self.heartbeat_at_ns = now_ns + self.heartbeat_ns


SendRoute = tuple[ViewNumber, tuple[RegionSender, ...]]
"""What a message to a group belongs to: the group's view, and the streams into its regions."""
