"""The hybrid way: one frame for a whole group, numbered in each of its regions, and repaired by each of them.

A frame of kind SPREAD begins with the list of the streams that it belongs to, with its number in each. A receiver
takes its own region view and number from that list, and has an ordinary frame of that stream: windows, caches, rings
and repairs know nothing of the hybrid way. The sender keeps one object for all streams of a frame, and labels a copy
when it sends a repair.

Messages belong to the streams at the time when they were accepted, and those of a group never overtake each other.
They wait here until the streams have sent older messages of their group. When a stream closes, or a group goes another
way, the messages that wait here are handed to the streams, which send them on their own.

Invariant: while messages of a group wait here, all its streams are open, and nothing newer of it waits in them.
"""

from collections.abc import Iterable, Sequence

from vivum.core.ids import Channel, GroupId, Member, RegionId, ViewNumber
from vivum.core.machine import Datagram
from vivum.observe.counters import Counters
from vivum.protocols.commands import SlowMembers
from vivum.protocols.streams.marks import MARKS
from vivum.protocols.streams.region_sender import RegionSender, ViewKey
from vivum.wire.codec import Frame, FrameBuilder, relabel, split
from vivum.wire.kinds import Kind
from vivum.wire.outboxes import Outboxes
from vivum.wire.spread import LIST_SEQUENCE, SpreadList
from vivum.wire.trains import address, couple, frames_in_train, pad


def pick(frame: Frame, keys: Iterable[ViewKey]) -> Frame | None:
    """Return the frame of our own stream in one for several; None if it is for none of these region views."""
    data = frame.to_bytes()
    for region, view in keys:
        mine = relabel(data, region, view)
        if mine is not None:
            return split(mine)[0]
    return None


class SpreadSender:
    """What this node sends to all groups that have the same regions."""

    __slots__ = ("_held", "_list", "_view", "channel", "outboxes", "reserved_ns", "streams")

    def __init__(self, channel: Channel, streams: tuple[RegionSender, ...]) -> None:
        self.channel = channel
        self.streams = streams
        self.outboxes = Outboxes()
        # The rates of all streams allow the next frame then.
        self.reserved_ns: int | None = None
        self._list = SpreadList([stream.key for stream in streams])
        # Receivers that do not know the newest of the views yet keep the frame until then.
        self._view = ViewNumber(max(stream.config.view for stream in streams))
        # Groups with older messages that wait in the streams.
        self._held: dict[GroupId, None] = {}

    def feed(
        self,
        group: GroupId,
        first: int,
        payloads: Sequence[bytes],
        view: ViewNumber,
        size: int | None,
        slow: SlowMembers,
    ) -> None:
        """Queue messages of a group, of `size` bytes, behind those that wait in the streams."""
        if size is None:
            size = sum(map(len, payloads))
        for stream in self.streams:
            stream.expect(group, first, len(payloads), view, size, slow)
        hold = group in self._held or any(stream.outboxes.has(group) for stream in self.streams)
        if hold:
            self._held[group] = None
        self.outboxes.put(group, first, payloads, size, hold=hold)

    def release(self) -> bool:
        """Release groups whose older messages were sent; return whether anything can be sent."""
        for group in list(self._held):
            if not any(stream.outboxes.has(group) for stream in self.streams):
                del self._held[group]
                self.outboxes.release(group)
        return bool(self.outboxes)

    def dissolve(self, group: GroupId) -> None:
        """Hand the waiting messages of a group to the streams."""
        if self.outboxes.has(group):
            outbox = self.outboxes.take(group)
            for stream in self.streams:
                stream.outboxes.adopt(group, outbox)
        self._held.pop(group, None)

    def has_windows(self) -> bool:
        """Return whether all streams have room. If not, claim the next free place in each."""
        if all(stream.room(self)[0] for stream in self.streams):
            return True
        for stream in self.streams:
            stream.claims.add(self)
        return False

    def let_go(self) -> None:
        """Give up reserved places."""
        self.reserved_ns = None
        for stream in self.streams:
            stream.claims.discard(self)

    def ready_ns(self, now_ns: int) -> int:
        """Return when the rates of all streams allow the next frame: now, or later.

        Each stream counts the frame at once. Otherwise streams that are always busy would hardly ever be ready at the
        same time.
        """
        if self.reserved_ns is None:
            self.reserved_ns = max(stream.pacer.ready_ns(now_ns) for stream in self.streams)
            for stream in self.streams:
                stream.pacer.on_sent()
        return self.reserved_ns

    def seal(self, builder: FrameBuilder, domain: int, me: Member, now_ns: int) -> tuple[bytes, int]:
        """Seal a frame and number it in all streams; return it and its bytes of messages."""
        self.let_go()
        numbers = self._list.encode([stream.next_frame for stream in self.streams])
        fits = builder.append(MARKS, LIST_SEQUENCE, numbers)
        assert fits, "a frame for these regions fits: the hybrid way was chosen for them"
        # The header names no region, so its field tells readers of traces whom the frame is for.
        header = (Kind.SPREAD, domain, *me, RegionId(self.outboxes.next_group), self._view, 0, now_ns)
        trains, stops, taken = self.outboxes.seal(builder, 1, 1, header)
        for stream in self.streams:
            stream.keep(trains, stops, taken, now_ns)
        return trains[0].data, taken


class Spreading:
    """All that this node sends the hybrid way."""

    def __init__(self, ready_streams: dict[ViewKey, None], counters: Counters, frame_bytes_max: int) -> None:
        """Begin with nothing. Streams that must send a frame of their own first are put into `ready_streams`."""
        self._ready_streams = ready_streams
        self._counters = counters
        self._frame_bytes_max = frame_bytes_max
        self._senders: dict[tuple[Channel, tuple[ViewKey, ...]], SpreadSender] = {}
        self._of_stream: dict[ViewKey, dict[SpreadSender, None]] = {}
        self._of_group: dict[GroupId, SpreadSender] = {}
        self._ready: dict[SpreadSender, None] = {}
        self._paced: dict[SpreadSender, int] = {}

    # In.

    def route(self, group: GroupId, streams: tuple[RegionSender, ...], channel: Channel | None) -> SpreadSender | None:
        """Find the sender for new messages of a group; None for the streams. The former one hands over what waits."""
        sender = None
        if channel is not None and len(streams) > 1:
            key = (channel, tuple(stream.key for stream in streams))
            sender = self._senders.get(key)
            if sender is None:
                sender = self._senders[key] = SpreadSender(channel, streams)
                for stream in streams:
                    self._of_stream.setdefault(stream.key, {})[sender] = None
        before = self._of_group.get(group)
        if before is not sender:
            if before is not None:
                before.dissolve(group)
                self._let_streams_go_on(before)
                del self._of_group[group]
            if sender is not None:
                self._of_group[group] = sender
        return sender

    def pending_bytes(self, group: GroupId) -> int:
        """Return the bytes of a group that wait here."""
        sender = self._of_group.get(group)
        return 0 if sender is None else sender.outboxes.pending_bytes(group)

    @property
    def is_used(self) -> bool:
        """Return whether any group goes the hybrid way."""
        return bool(self._senders)

    def shares(self, stream: RegionSender) -> bool:
        """Return whether a stream has frames in common with others."""
        return stream.key in self._of_stream

    def wake(self, stream: RegionSender) -> None:
        """Note that a stream has more room, has begun, or has sent what waited in it."""
        for sender in self._of_stream.get(stream.key, ()):
            self.awake(sender)

    def awake(self, sender: SpreadSender) -> None:
        """Note that a sender may have something to seal."""
        if sender not in self._paced and sender.release():
            self._ready[sender] = None

    def close(self, stream: RegionSender) -> None:
        """Note that a stream takes no new messages: hand all that wait for it and for others to the streams."""
        for sender in list(self._of_stream.get(stream.key, ())):
            for group in sender.outboxes.groups():
                sender.dissolve(group)
            self._let_streams_go_on(sender)
            self._forget(sender)

    def _let_streams_go_on(self, sender: SpreadSender) -> None:
        if not sender.outboxes.groups():
            sender.let_go()
            self._paced.pop(sender, None)
            self._ready.pop(sender, None)
        for stream in sender.streams:
            self._ready_streams[stream.key] = None
            self.wake(stream)

    def _forget(self, sender: SpreadSender) -> None:
        del self._senders[sender.channel, tuple(stream.key for stream in sender.streams)]
        for stream in sender.streams:
            of_stream = self._of_stream[stream.key]
            del of_stream[sender]
            if not of_stream:
                del self._of_stream[stream.key]
                stream.is_awaited = False
        for group in [group for group, each in self._of_group.items() if each is sender]:
            del self._of_group[group]

    def clear(self) -> None:
        """Forget everything: this life is over."""
        for kept in (self._senders, self._of_stream, self._of_group, self._ready, self._paced):
            kept.clear()

    # Time.

    def deadlines_ns(self) -> Iterable[int]:
        """Return when rates let frames go."""
        return self._paced.values()

    def on_timer(self, now_ns: int) -> None:
        """Wake the senders whose time has come."""
        for sender in [sender for sender, ready_ns in self._paced.items() if ready_ns <= now_ns]:
            del self._paced[sender]
            self._ready[sender] = None

    # Out.

    @property
    def has_data(self) -> bool:
        """Return whether a frame could be sealed now."""
        return bool(self._ready)

    def seal_next(
        self, now_ns: int, domain: int, me: Member, builder: FrameBuilder, datagrams: list[Datagram]
    ) -> tuple[int, int, int]:
        """Seal a train for the next sender, as far as windows and rates allow.

        Return its bytes and frames, and the bytes of messages that no longer wait in streams.
        """
        sender = next(iter(self._ready))
        del self._ready[sender]
        frames: list[bytes] = []
        waited = 0
        while len(frames) < frames_in_train(self._frame_bytes_max):
            if not sender.release() or not self._have_spoken(sender) or not sender.has_windows():
                break
            ready_ns = sender.ready_ns(now_ns)
            if ready_ns > now_ns:
                self._paced[sender] = ready_ns
                break
            data, taken = sender.seal(builder, domain, me, now_ns)
            frames.append(data)
            waited += taken * len(sender.streams)
        else:
            if sender.outboxes:
                self._ready[sender] = None
        self._counters.frames_spread += len(frames)
        self._counters.frames_spread_streams += len(frames) * len(sender.streams)
        padded = [pad(frame, self._frame_bytes_max) for frame in frames[:-1]] + frames[-1:]
        datagrams += address(couple(padded, self._frame_bytes_max), (sender.channel,))
        return sum(map(len, padded)), len(frames), waited

    def _have_spoken(self, sender: SpreadSender) -> bool:
        """Let each stream first send alone what only it can announce, such as what came before it."""
        have_spoken = True
        for stream in sender.streams:
            if stream.must_speak:
                have_spoken = False
                stream.is_awaited = True
                self._ready_streams[stream.key] = None
        return have_spoken
