"""The sender's side of one group: accept, pack, keep until stable, find what to send again.

Knows nothing of sockets or timers: the machine above asks it for frames and hands it what ACKs and NAKs say.

Invariants: `first <= next_frame`; in reliable mode exactly the frames `first <= n < next_frame` are kept; no member
that is waited for has a prefix below `first`.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from vivum.core.errors import NotNowError
from vivum.core.ids import Channel, GroupId, Incarnation, NodeId
from vivum.core.ranges import RangeSet
from vivum.protocols.reference.settings import ReferenceSettings
from vivum.wire.codec import FrameBuilder
from vivum.wire.outboxes import Outboxes

MESSAGE_OVERHEAD_BYTES = 64
"""What a waiting message takes besides its bytes, about: a queue of empty messages must have an end too."""


class Peer:
    """What the sender knows of one other member of the group."""

    __slots__ = ("awaited", "failed_message", "heard_ns", "incarnation", "prefix")

    def __init__(self, prefix: int) -> None:
        self.incarnation = Incarnation(0)
        self.prefix = prefix
        self.heard_ns = 0
        self.awaited = True
        # Messages below this need not be reported as failed at this member any more.
        self.failed_message = 0


class OutgoingStream:
    """All that this node sends to one group."""

    __slots__ = (
        "_frames",
        "_messages_sealed",
        "_outboxes",
        "_settings",
        "channel",
        "first",
        "group",
        "heartbeat_ns",
        "next_frame",
        "next_message",
        "peers",
        "stable_message",
    )

    def __init__(
        self,
        group: GroupId,
        channel: Channel,
        others: Iterable[NodeId],
        settings: ReferenceSettings,
        next_frame: int = 0,
        next_message: int = 0,
    ) -> None:
        """Begin a stream, or go on with its numbers after a stay that ended: others have counted so far."""
        self.group = group
        self.channel = channel
        self.peers = {node: Peer(next_frame) for node in others}
        self.next_message = next_message
        self.next_frame = next_frame
        self.first = next_frame
        self.stable_message = next_message
        self.heartbeat_ns = settings.heartbeat_ns_min
        self._settings = settings
        self._outboxes = Outboxes(cut_to_fill=False)
        self._messages_sealed = next_message
        # Each frame with one past the last message that it completes: what a receiver of all up to it has.
        self._frames: deque[tuple[bytes, int]] = deque()

    # On send.

    @property
    def pending_bytes(self) -> int:
        """Memory of what was accepted and is not yet in a frame."""
        return self._outboxes.pending_bytes(self.group) + MESSAGE_OVERHEAD_BYTES * (
            self.next_message - self._messages_sealed
        )

    def accept(self, payloads: Sequence[bytes]) -> int:
        """Queue messages; return the sequence of the first. All or none: raises `NotNowError` at the limit."""
        size = sum(map(len, payloads)) + MESSAGE_OVERHEAD_BYTES * len(payloads)
        pending = self.pending_bytes
        # One message larger than the whole queue must still get through, alone.
        if pending + size > self._settings.pending_bytes_max and (pending or len(payloads) > 1):
            remedy = "wait until some are sent" if pending else "send fewer at once"
            raise NotNowError(
                f"group {self.group} has {pending} bytes waiting; with {size} more it would pass "
                f"pending_bytes_max={self._settings.pending_bytes_max}: {remedy}"
            )
        first = self.next_message
        self._outboxes.put(self.group, first, payloads)
        self.next_message += len(payloads)
        return first

    @property
    def can_seal(self) -> bool:
        """Something waits and the window has room for it."""
        return bool(self._outboxes) and (
            not self._settings.reliable or self.next_frame - self.first < self._settings.window_frames
        )

    def seal(self, builder: FrameBuilder, header: tuple[int, ...], now_ns: int) -> bytes:
        """Seal one frame of what waits, and keep it if somebody may ask for it; the header ends before its number."""
        (train,), (stops,), _ = self._outboxes.seal(builder, 1, 1, (*header, self.next_frame, now_ns))
        data = train.data
        self._messages_sealed = stops.between(0, 1)[self.group]
        self.next_frame += 1
        self.heartbeat_ns = self._settings.heartbeat_ns_min
        if self._settings.reliable and self.peers:
            self._frames.append((data, self._messages_sealed))
        else:
            self.first = self.next_frame
            self.stable_message = self._messages_sealed
        return data

    # What others report.

    def kept(self, bounds: Sequence[int]) -> Iterator[bytes]:
        """Find the frames of these ranges that are still kept."""
        for start, stop in RangeSet.from_bounds(bounds).ranges():
            for number in range(max(start, self.first), min(stop, self.next_frame)):
                yield self._frames[number - self.first][0]

    def on_report(self, peer: Peer, incarnation: Incarnation, prefix: int, now_ns: int) -> None:
        """A member has all frames below `prefix`."""
        if incarnation > peer.incarnation:
            peer.incarnation = incarnation
            peer.prefix = 0
        peer.heard_ns = now_ns
        peer.prefix = max(peer.prefix, prefix)
        # One that was dropped is waited for again once it can be served.
        peer.awaited = peer.prefix >= self.first

    def release(self) -> tuple[int, int]:
        """Forget frames that all waited-for members have; return the range of messages that became stable."""
        reached = min((peer.prefix for peer in self.peers.values() if peer.awaited), default=self.next_frame)
        before = self.stable_message
        while self.first < reached:
            self.stable_message = self._frames.popleft()[1]
            self.first += 1
        return before, self.stable_message

    def take_failed(self, node: NodeId, first: int, stop: int) -> int:
        """Note that messages up to `stop` are reported as failed at a member; return the first that is news."""
        peer = self.peers[node]
        first = max(first, peer.failed_message)
        peer.failed_message = max(stop, peer.failed_message)
        return first

    @property
    def not_awaited(self) -> list[NodeId]:
        """Return the receivers that are not waited for, which never get what is released now."""
        return [node for node, peer in self.peers.items() if not peer.awaited]

    # Every interval.

    @property
    def unstable(self) -> bool:
        """Return whether a receiver that is waited for lacks something."""
        return self.first < self.next_frame

    @property
    def needs_heartbeat(self) -> bool:
        """Somebody may not know how far the stream has come, or that it was dropped."""
        return self.unstable or (self.next_frame > 0 and not all(peer.awaited for peer in self.peers.values()))

    def drop_silent(self, now_ns: int) -> list[NodeId]:
        """Wait no longer for members that lack frames and were silent too long; return who they are."""
        dropped = []
        for node, peer in self.peers.items():
            silent_ns = now_ns - peer.heard_ns
            if peer.awaited and peer.prefix < self.next_frame and silent_ns >= self._settings.drop_after_ns:
                peer.awaited = False
                dropped.append(node)
        return dropped

    def message_of(self, frame: int) -> int:
        """The first message that is not complete without this frame: what a member with that prefix expects next."""
        if frame <= self.first:
            return self.stable_message
        return self._frames[frame - self.first - 1][1]
