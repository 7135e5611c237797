"""All streams of one sender at one receiver, in the order of their views, turned into messages.

A sender has one stream into each region view. When views change, a receiver gets the sender's messages first from
the old stream, to its end, and then from the new one: FIFO across views. The first frame of a stream names the
streams before it that may not be complete (`BEGIN`), the last frame says that it is the last (`END`); both travel
as messages of a group that no topic has.

Invariants: only the first stream delivers; messages of a group are delivered with rising sequence, and every hole
is reported, or ends this life if its sender lives.
"""

from collections.abc import Mapping

import msgspec

from vivum.core.ids import GroupId, Member, RegionId, ViewNumber
from vivum.core.machine import Delivery, Output
from vivum.observe.counters import Counters
from vivum.protocols.commands import GapReported, SlowMembers
from vivum.protocols.qsm.incoming import StreamReceiver
from vivum.wire.codec import GROUP_MAX, Frame
from vivum.wire.fragments import Joiner

MARKS = GroupId(GROUP_MAX)
"""The group of BEGIN and END marks; no topic gets this number."""

END = b"end"
_SLOW = {policy: b"slow members: " + policy.name.lower().encode() for policy in SlowMembers}
_SLOW_MARKS = {mark: policy for policy, mark in _SLOW.items()}

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(list[tuple[int, int]])


def begin_mark(before: list[tuple[RegionId, ViewNumber]]) -> bytes:
    """Make the mark with which a stream begins: the streams that must be delivered first."""
    return _encode(before)


def slow_mark(policy: SlowMembers) -> bytes:
    """Make the mark that tells what to do about slow members from now on."""
    return _SLOW[policy]


def streams_before(frame: Frame) -> list[tuple[int, int]]:
    """Read the mark of a stream's first frame. What a peer got wrong there counts as no mark."""
    for group, _, _, payloads in frame.messages():
        if group == MARKS:
            try:
                return _decoder.decode(payloads[0])
            except (msgspec.MsgspecError, RecursionError):
                return []
    return []


class Chain:
    """One life of one sender."""

    __slots__ = ("_barred", "_counters", "_excused", "_expected", "_joiner", "is_broken", "sender", "streams")

    def __init__(self, sender: Member, joiner: Joiner, counters: Counters, barred: Mapping[int, int]) -> None:
        """Begin with nothing. `barred` has, for groups that this node left, the first view that counts again."""
        self.sender = sender
        self.streams: list[StreamReceiver] = []
        self._expected: dict[int, int] = {}
        self._joiner = joiner
        self._counters = counters
        self._barred = barred
        # Groups of which a message was refused here, because its fragments were over a limit.
        self._excused: set[int] = set()
        # Messages are missing that a living sender sent: nothing more is delivered, and this life must end.
        self.is_broken = False

    def forget_group(self, group: int) -> None:
        """This node left a group: when it comes back, messages may begin anywhere."""
        self._expected.pop(group, None)
        self._joiner.forget(self.sender, group)

    def add(self, stream: StreamReceiver) -> None:
        """Take a stream in, at the place of its view."""
        self.streams.append(stream)
        self.streams.sort(key=lambda each: each.view)

    def remove(self, stream: StreamReceiver, output: Output) -> None:
        """Give up a stream whose region view is over: deliver what is held in order, skip what is missing."""
        if stream not in self.streams:
            return
        # Those before it were replaced earlier still: nobody sees them through any more.
        for each in self.streams[: self.streams.index(stream) + 1]:
            each.window.skip_to(each.window.stop)
            if not self.is_broken:
                self._deliver_from(each, output)
            self.streams.remove(each)
        self.deliver(output)

    def deliver(self, output: Output) -> None:
        """Deliver all that is in order now."""
        while self.streams and not self.is_broken:
            stream = self.streams[0]
            self._deliver_from(stream, output)
            is_over = stream.is_unwanted or (stream.closed and stream.delivered >= stream.window.stop)
            if not (is_over and len(self.streams) > 1):
                return
            # Delivered to its end. The region view keeps it for others; here the next one goes on.
            self.streams.pop(0)

    def _deliver_from(self, stream: StreamReceiver, output: Output) -> None:
        held = stream.held
        stop = stream.window.prefix
        number = stream.delivered
        while number < stop and not self.is_broken:
            frame = held.pop(number, None)
            number += 1
            # A frame that was skipped is not there; what it had is reported when the next message shows the hole.
            if frame is not None:
                self._deliver(frame, stream, output)
        stream.delivered = max(number, stream.delivered)

    def _deliver(self, frame: Frame, stream: StreamReceiver, output: Output) -> None:
        sent_ns, view = frame.sent_ns, stream.view
        for group, first, flags, payloads in frame.messages():
            if group == MARKS:
                if payloads[-1] == END and frame.sequence + 1 >= stream.window.stop:
                    stream.closed = True
                for payload in payloads:
                    stream.slow = max(stream.slow, _SLOW_MARKS.get(payload, SlowMembers.ISOLATE))
                continue
            if self._barred and view < self._barred.get(group, 0):
                continue
            expected = self._expected.get(group)
            if flags and (expected is None or first + len(payloads) > expected):
                refused = self._counters.joins_refused
                first, payloads = self._joiner.add(self.sender, group, first, flags, payloads)
                if self._counters.joins_refused != refused:
                    self._excused.add(group)
                if not payloads:
                    continue
            if expected is not None and first < expected:
                self._counters.frames_refused_state += 1
                continue
            if expected is not None and first > expected:
                if not stream.sender_gone and group not in self._excused:
                    self.is_broken = True
                    return
                self._excused.discard(group)
                self._counters.messages_lost += first - expected
                output.events.append(GapReported(GroupId(group), self.sender, expected, first))
            self._expected[group] = first + len(payloads)
            output.deliveries.append(Delivery(GroupId(group), self.sender, first, payloads, view, sent_ns))
