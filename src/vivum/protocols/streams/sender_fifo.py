"""All streams of one sender at one receiver, in the order of their views, turned into messages.

A sender has one stream into each region view. When views change, a receiver gets the sender's messages first from
the old stream, to its end, and then from the new one: FIFO across views. The first frame of a stream names the
streams before it that may not be complete (`BEGIN`), the last frame says that it is the last (`END`); both travel
as messages of a group that no topic has.

A frame that nobody can give any more may have had messages of any group of its region view, and marks: behind it
nothing can be told for certain of these groups. If its sender lives, this life ends; of a sender that is gone, what
comes behind it is reported as lost too. Groups that this node left since the frame's view are not meant: when it comes
back their messages may begin anywhere.

A view comes before its messages. A sender may know of a view before this node does, where another region of the group
changed: what it sent in that view waits here, with all that follows, until the view is installed.

Invariants: only the first stream delivers; messages of a group are delivered with rising sequence, and every hole
is reported, or ends this life if its sender lives. A message that limits refuse is no hole: it is reported when its
last piece has come.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set

from vivum.core.ids import GroupId, Member, ViewNumber
from vivum.core.machine import Delivery, Effect
from vivum.core.ranges import RangeSet
from vivum.observe.counters import Counters
from vivum.protocols.commands import GapReported, SlowMembers
from vivum.protocols.streams.marks import END_MARK, MARKS, SLOW_MARK, SLOW_MARKS, VIEW_MARK, decode_view_mark
from vivum.protocols.streams.stream_receiver import StreamReceiver
from vivum.wire.codec import Frame, PackedRun, TakenRun, single_frames, take_runs
from vivum.wire.fragments import Joiner

NEVER = 1 << 64
"""A view that never comes: messages of a group that this node left and did not enter again."""

BURST_BYTES = 8 << 20
"""Frames that are delivered at once after a gap was filled. What is held may be far more than a reader's queue takes:
the rest follows when the application has had its turn."""

VIEW_MARKS_MAX = 65_536
"""Groups of one stream whose views differ from the region's; as many as there may be topics. Further ones are refused,
and their messages counted as of the region's view."""

RUN_MESSAGES_MAX = 4096
"""Runs of messages are not made longer than this: readers take one at a time. What a reader does for each run is a
fifth of all that it does for runs of 627 messages, a frame of 100 bytes each."""


class SenderFifo:
    """One life of one sender."""

    __slots__ = (
        "_barred",
        "_behind",
        "_joiner",
        "_known_epoch",
        "_torn",
        "_waiting",
        "counters",
        "expected",
        "gone_since",
        "is_broken",
        "packed",
        "sender",
        "streams",
    )

    def __init__(
        self,
        sender: Member,
        joiner: Joiner,
        counters: Counters,
        barred: Mapping[int, int],
        behind: "set[SenderFifo]",
        packed: Set[int] = frozenset(),
        known_epoch: Callable[[], int] = lambda: NEVER,
    ) -> None:
        """Begin with nothing. `barred` has, for groups that this node left, the first view that counts again.

        Messages of `packed` groups are not cut where that can be. A FIFO that has more to deliver than it may at once
        puts itself into `behind`. `known_epoch` returns up to which number this node has installed views.
        """
        self.sender = sender
        self._behind = behind
        self.streams: list[StreamReceiver] = []
        # For each group the number of its next message, once one has come.
        self.expected: dict[int, int] = {}
        self._joiner = joiner
        self.counters = counters
        self._barred = barred
        self.packed = packed
        self._known_epoch = known_epoch
        # Runs behind a mark of a view that is not installed here yet, and the number of that view.
        self._waiting: tuple[int, list[Frame], list[TakenRun], StreamReceiver] | None = None
        # The groups that may have had messages in a frame that was skipped because its sender was gone.
        self._torn = RangeSet()
        # The first configuration without the sender, if the newest is without it too. It may not have heard, and speak.
        self.gone_since: int | None = None
        # Messages are missing that a living sender sent: nothing more is delivered, and this life must end.
        self.is_broken = False

    def forget_group(self, group: int) -> None:
        """This node left a group: when it comes back, messages may begin anywhere."""
        self.expected.pop(group, None)
        self._torn.discard(group)
        self._joiner.forget(self.sender, group)

    def add(self, stream: StreamReceiver) -> None:
        """Take a stream in, at the place of its view."""
        stream.sender_gone = self.gone_since is not None
        self.streams.append(stream)
        self.streams.sort(key=lambda each: each.view)

    def on_begin(self, stream: StreamReceiver, before: Collection[tuple[int, int]]) -> None:
        """A stream began; its sender names the streams `before` it that may not be complete.

        What it does not name it has seen through: every member has all of it, or left. If this node has not, and left
        groups since, it is one of those who left, and came back: of that stream it wants nothing, and gets nothing.
        """
        for each in self.streams:
            is_complete = each.closed and each.window.prefix >= each.window.stop
            if each.view < stream.view and not is_complete and (each.region, each.view) not in before:
                each.is_unwanted |= self._left_since(each)

    def _left_since(self, stream: StreamReceiver) -> bool:
        """Return whether this node left a group since the view of a stream, so that its sender may owe it nothing."""
        return any(view > stream.view for view in self._barred.values())

    def remove(self, stream: StreamReceiver, effects: list[Effect]) -> None:
        """Give up a stream whose region view is over: deliver what is held in order, skip what is missing."""
        if stream not in self.streams:
            return
        self._go_on(effects, is_late=True)
        # Those before it were replaced earlier still: nobody sees them through any more.
        for each in self.streams[: self.streams.index(stream) + 1]:
            each.window.skip_to(each.window.stop)
            # If something is missing of a group that was not left, the numbers of its messages will tell.
            each.is_unwanted |= self._left_since(each)
            # In parts all the same: a frame is let go when its messages are cut.
            while not self.is_broken and not self._deliver_from(each, effects, BURST_BYTES):
                self._go_on(effects, is_late=True)
            self.streams.remove(each)
        self.deliver(effects)

    def deliver(self, effects: list[Effect]) -> None:
        """Deliver all that is in order now, or as much of it as may be delivered at once."""
        self._behind.discard(self)
        self._go_on(effects)
        while self.streams and not self.is_broken and self._waiting is None:
            stream = self.streams[0]
            if not self._deliver_from(stream, effects, BURST_BYTES):
                if self._waiting is None and not self.is_broken:
                    self._behind.add(self)
                return
            is_over = stream.is_unwanted or (stream.closed and stream.delivered >= stream.window.stop)
            if not (is_over and len(self.streams) > 1):
                return
            # Delivered to its end. The region view keeps it for others; here the next one goes on.
            self.streams.pop(0)

    def is_ready(self, stream: StreamReceiver) -> bool:
        """Return whether messages of a stream can be delivered as they come: no other stream must come first."""
        is_free = not (self.is_broken or self._torn) and self._waiting is None
        return is_free and bool(self.streams) and stream is self.streams[0]

    @property
    def awaits_view(self) -> bool:
        """Whether messages wait for a view that this node has not installed yet."""
        return self._waiting is not None

    def _go_on(self, effects: list[Effect], *, is_late: bool = False) -> None:
        """Deliver what waited for a view, if that is installed now, or if it is too late to wait."""
        while self._waiting is not None and (is_late or self._waiting[0] <= self._known_epoch()):
            (_, frames, runs, stream), self._waiting = self._waiting, None
            self._deliver_runs(frames, runs, stream, effects)

    def deliver_run(
        self,
        stream: StreamReceiver,
        frames: list[Frame],
        runs: list[TakenRun],
        effects: list[Effect],
    ) -> None:
        """Deliver the messages of frames that were just taken, are next in their stream, and need not wait."""
        self._deliver_runs(frames, runs, stream, effects)
        # Where a mark closed the stream, the next one goes on.
        if len(self.streams) > 1:
            self.deliver(effects)

    def _deliver_from(self, stream: StreamReceiver, effects: list[Effect], bytes_max: int) -> bool:
        """Deliver what a stream has in order, up to so many bytes and to a view that is not installed yet.

        Return whether that was all.
        """
        held = stream.held
        stop = stream.window.prefix
        number = stream.delivered
        frames: list[Frame] = []
        while number < stop and bytes_max > 0:
            frame = held.pop(number, None)
            if frame is not None:
                number += frame.count
                bytes_max -= frame.size
                frames.append(frame)
                continue
            if not stream.is_unwanted:
                if not self._deliver(frames, stream, effects):
                    return False
                frames = []
                self._tear(stream)
                if not stream.sender_gone:
                    self.is_broken = True
                    return False
            # It was skipped, and so were all up to the next that is held: a peer can make that as many as it likes.
            number = min((each for each in held if number < each < stop), default=stop)
        if not self._deliver(frames, stream, effects):
            return False
        stream.delivered = number
        return number >= stop

    def _deliver(self, frames: list[Frame], stream: StreamReceiver, effects: list[Effect]) -> bool:
        """Deliver the messages of frames; return whether the stream may go on behind them."""
        if frames:
            self._deliver_runs(frames, self.cut(frames), stream, effects)
        return self._waiting is None and not self.is_broken

    def cut(self, frames: list[Frame]) -> list[TakenRun]:
        """Cut frames that follow each other in a stream into messages. Pieces are joined as far as they are there."""
        return take_runs(frames, RUN_MESSAGES_MAX, self.packed, self._joiner.message_bytes_max)

    def _tear(self, stream: StreamReceiver) -> None:
        """Note that a frame of a stream was skipped, which may have had messages of all groups that count in it."""
        touched = RangeSet.from_bounds(stream.groups)
        touched.difference_update(RangeSet.from_bounds(stream.lacks))
        for group, view in self._barred.items():
            if view > stream.view:
                touched.discard(group)
        self._torn.update(touched)

    def _deliver_runs(
        self, frames: list[Frame], runs: list[TakenRun], stream: StreamReceiver, effects: list[Effect]
    ) -> None:
        """Deliver runs of messages as far as may be; note the frame before which nothing is left of the stream."""
        sender, view, views = self.sender, stream.view, stream.views
        expected, append = self.expected, effects.append
        is_plain = not (self._torn or self._barred or stream.lacks)
        # The train that a run begins in, and how many frames are before that and the next one.
        which, before, behind = 0, 0, frames[0].count
        for place, (index, group, first, flags, payloads) in enumerate(runs):
            while index >= behind:
                which += 1
                before, behind = behind, behind + frames[which].count
            train = frames[which]
            if is_plain and not flags and expected.get(group) == first and group not in views:
                expected[group] = first + len(payloads)
                append(Delivery(group, sender, first, payloads, view, train.sent_ns))  # type: ignore[arg-type]
                continue
            number = train.sequence + index - before
            if group == MARKS:
                view_number = self._read_marks(number, first, payloads, stream)
                if view_number > self._known_epoch():
                    left = runs[place + 1 :]
                    self._waiting = (view_number, frames, left, stream)
                    stream.delivered = single_frames(frames)[left[0][0]].sequence if left else frames[-1].stop
                    return
            else:
                self._deliver_messages(group, first, flags, payloads, number, train.sent_ns, stream, effects)
                if self.is_broken:
                    stream.delivered = number
                    return
        stream.delivered = frames[-1].stop

    def _deliver_messages(
        self,
        group: int,
        first: int,
        flags: int,
        payloads: list[bytes] | PackedRun,
        frame: int,
        sent_ns: int,
        stream: StreamReceiver,
        effects: list[Effect],
    ) -> None:
        """Deliver a run of messages of a group that begins in a frame, if they are wanted and next."""
        view, lacks = stream.view, stream.lacks
        if lacks and bisect_right(lacks, group) % 2:
            self.counters.messages_filtered += len(payloads)
            return
        if self._barred and view < self._barred.get(group, 0):
            return
        expected = self.expected.get(group)
        if group in self._torn:
            if not stream.sender_gone:
                self.is_broken = True
                return
            stream.give_up_at(frame)
            self._report_lost(group, first if expected is None else expected, first + len(payloads), effects)
            return
        if expected is not None and first > expected:
            if not stream.sender_gone:
                self.is_broken = True
                return
            self._report_lost(group, expected, first, effects)
        if flags and (expected is None or first + len(payloads) > expected):
            assert isinstance(payloads, list), "messages that are pieces of others are always cut"
            undecided = first if expected is None else max(first, expected)
            first, payloads = self._joiner.add(self.sender, group, first, flags, payloads)
            # It passes over a message that it refused and whose last piece is here. That must be told now: no frame is
            # missing, so the sender hears that all have it, and no later message may come.
            self._report_lost(group, undecided, first, effects)
            if not payloads:
                return
        if expected is not None and first < expected:
            # What comes again is dropped. What was sealed behind it, in other frames maybe, is not.
            self.counters.frames_refused_state += 1
            payloads, first = payloads[expected - first :], expected
            if not payloads:
                return
        self.expected[group] = first + len(payloads)
        if group in stream.views:
            for start, part, number in _by_view(stream.views[group], first, payloads, view):
                effects.append(Delivery(GroupId(group), self.sender, start, part, number, sent_ns))
        else:
            effects.append(Delivery(GroupId(group), self.sender, first, payloads, view, sent_ns))

    def _report_lost(self, group: int, first: int, stop: int, effects: list[Effect]) -> None:
        if first < stop:
            self.counters.messages_lost += stop - first
            self.expected[group] = stop
            effects.append(GapReported(GroupId(group), self.sender, first, stop))

    def _read_marks(self, frame: int, first: int, payloads: Sequence[bytes], stream: StreamReceiver) -> int:
        """Take a mark; return the number of the view that must be installed before what follows, or 0."""
        mark = payloads[0]
        if first == VIEW_MARK:
            told = decode_view_mark(mark)
            if told is None:
                self.counters.frames_refused_state += 1
                return 0
            group, start, view = told
            if group not in stream.views and len(stream.views) >= VIEW_MARKS_MAX:
                self.counters.frames_refused_state += 1
                return 0
            marks = stream.views.setdefault(group, [])
            if marks and start <= marks[-1][0]:
                # No sender goes back; messages between the two would be delivered twice.
                self.counters.frames_refused_state += 1
                return 0
            marks.append((start, view))
            return view
        if first == SLOW_MARK:
            stream.slow = max(stream.slow, SLOW_MARKS.get(mark, SlowMembers.ISOLATE))
        elif first == END_MARK and frame + 1 >= stream.window.stop:
            stream.closed = True
        return 0


def _by_view(
    marks: list[tuple[int, int]], first: int, payloads: Sequence[bytes], region_view: ViewNumber
) -> Iterator[tuple[int, Sequence[bytes], ViewNumber]]:
    """Cut a run of messages where the view of their group changes. Marks that are behind it are forgotten."""
    while len(marks) > 1 and marks[1][0] <= first:
        marks.pop(0)
    stop = first + len(payloads)
    inner = [(start, view) for start, view in marks if first < start < stop]
    view = marks[0][1] if marks[0][0] <= first else region_view
    for start, next_view in [*inner, (stop, 0)]:
        yield first, payloads[len(payloads) - (stop - first) : len(payloads) - (stop - start)], ViewNumber(view)
        first, view = start, next_view
