"""The reference protocol as one machine: streams, timers, and what to say when asked.

Design note: `docs/design/reference.md`. The machine notes *that* an ACK, NAK, heartbeat or repair is due and makes
the frame in `make_frames`, from the state of that moment.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from random import Random
from typing import NamedTuple

from vivum.core.deadlines import Deadlines
from vivum.core.errors import LimitError, UsageError
from vivum.core.ids import Channel, Endpoint, GroupId, Incarnation, Member, NodeId, ViewNumber
from vivum.core.limits import Limits
from vivum.core.machine import ChannelClosed, ChannelOpened, Command, Datagram, Delivery, Effect, Priority
from vivum.observe.trace import GroupJoined, GroupLeft, Tracer
from vivum.protocols.commands import (
    JoinGroup,
    LeaveGroup,
    QueueGrew,
    SendConfirmed,
    SendFailed,
    SendMessages,
)
from vivum.protocols.reference.incoming import NO_VIEW, IncomingStream
from vivum.protocols.reference.outgoing import OutgoingStream, Peer
from vivum.protocols.reference.settings import ReferenceSettings
from vivum.wire.codec import Frame, FrameBuilder, resend
from vivum.wire.control import Ack, Heartbeat, Nak, encode_control
from vivum.wire.fragments import Joiner
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind

DATA_KINDS = frozenset({Kind.DATA, Kind.RESENT})


class Membership(NamedTuple):
    """A group that this node is in. Light: a node may be in thousands and send to few."""

    channel: Channel
    nodes: frozenset[NodeId]


StreamKey = tuple[int, int]
"""Sender's node and group: a node has one life at a time."""

Timer = tuple[str, object]
"""What is due: "ack", "nak" or "give_up" for an incoming stream, "heartbeat" or "drop" for a group."""


class ReferenceMachine:
    """Best-effort multicast, then negative acknowledgements to the sender."""

    transport = "reference"
    kinds = frozenset({Kind.DATA, Kind.RESENT, Kind.NAK, Kind.ACK, Kind.HEARTBEAT})
    commands: frozenset[type[Command]] = frozenset({JoinGroup, LeaveGroup, SendMessages})

    def __init__(
        self,
        member: Member,
        endpoints: Mapping[NodeId, Endpoint],
        gate: Gate,
        rng: Random,
        settings: ReferenceSettings | None = None,
        limits: Limits | None = None,
        trace: Tracer | None = None,
    ) -> None:
        self.member = member
        self.settings = settings or ReferenceSettings()
        self.limits = limits or Limits()
        self.trace = trace
        self.counters = gate.counters
        self._gate = gate
        self._endpoints = endpoints
        self._rng = rng
        self._now_ns = 0
        self._groups: dict[GroupId, Membership] = {}
        self._outgoing: dict[GroupId, OutgoingStream] = {}
        # Next frame and message of groups that this life sent to and left: a later stay goes on with them.
        self._left_at: dict[GroupId, tuple[int, int]] = {}
        self._incoming: dict[StreamKey, IncomingStream] = {}
        self._joiner = Joiner(self.limits, self.counters)
        self._builder = FrameBuilder(self.settings.frame_bytes_max)
        self._timers: Deadlines[Timer] = Deadlines()
        self.effects: list[Effect] = []
        # Due now, in order of becoming due; dictionaries serve as ordered sets.
        self._acks: dict[StreamKey, None] = {}
        self._naks: dict[StreamKey, None] = {}
        self._heartbeats: dict[tuple[GroupId, NodeId | None], None] = {}
        self._repairs: dict[tuple[Endpoint, bytes], None] = {}
        self._ready: dict[GroupId, None] = {}
        self._pending_high = 0
        self._on_timer_of: dict[str, Callable[..., None]] = {
            "ack": self._on_ack_due,
            "nak": self._on_nak_due,
            "give_up": self._on_give_up_due,
            "heartbeat": self._on_heartbeat_due,
            "drop": self._on_drop_due,
        }

    # Commands.

    def submit(self, now_ns: int, command: Command) -> None:
        """Join, leave or send."""
        self._now_ns = now_ns
        match command:
            case SendMessages():
                self._send(command)
            case JoinGroup():
                self._join(command)
            case LeaveGroup():
                self._leave(command)

    def _join(self, command: JoinGroup) -> None:
        if command.group in self._groups:
            raise UsageError(f"node {self.member} is already in group {command.group}")
        nodes = frozenset(command.nodes)
        if not self._endpoints.keys() >= nodes:
            unknown = sorted(nodes - self._endpoints.keys())
            raise UsageError(f"group {command.group} has nodes without an endpoint: {unknown}")
        self._groups[command.group] = Membership(command.channel, nodes)
        self.effects.append(ChannelOpened(command.channel))
        if self.trace is not None:
            self.trace(GroupJoined(self._now_ns, *self.member, command.group))

    def _leave(self, command: LeaveGroup) -> None:
        membership = self._groups.pop(command.group, None)
        if membership is None:
            raise UsageError(f"node {self.member} is not in group {command.group}; join it first")
        stream = self._outgoing.pop(command.group, None)
        if stream is not None:
            self._fail(stream, stream.stable_message, stream.next_message, None, "the sender left the group")
            self._left_at[command.group] = (stream.next_frame, stream.next_message)
        self._ready.pop(command.group, None)
        for key in [key for key in self._incoming if key[1] == command.group]:
            self._forget(key)
        self.effects.append(ChannelClosed(membership.channel))
        if self.trace is not None:
            self.trace(GroupLeft(self._now_ns, *self.member, command.group))

    def _outgoing_of(self, group: GroupId) -> OutgoingStream:
        """Find the stream to a group, or begin it with the first message."""
        stream = self._outgoing.get(group)
        if stream is None:
            membership = self._groups.get(group)
            if membership is None:
                raise UsageError(f"node {self.member} is not in group {group}; join it before sending")
            others = sorted(membership.nodes - {self.member.node})
            numbers = self._left_at.pop(group, (0, 0))
            stream = OutgoingStream(group, membership.channel, others, self.settings, *numbers)
            self._outgoing[group] = stream
        return stream

    def _send(self, command: SendMessages) -> None:
        stream = self._outgoing_of(command.group)
        largest = max(map(len, command.payloads), default=0)
        if largest > self.limits.message_bytes_max:
            raise LimitError(f"a message of {largest} bytes is over message_bytes_max={self.limits.message_bytes_max}")
        first = stream.accept(command.payloads)
        self._ready[command.group] = None
        if stream.pending_bytes > self._pending_high:
            self._pending_high = stream.pending_bytes
            limit = max(self.settings.pending_bytes_max, self.limits.message_bytes_max)
            self.effects.append(QueueGrew("pending", stream.pending_bytes, limit, "bytes"))
        self.effects.append(Delivery(command.group, self.member, first, command.payloads, NO_VIEW, self._now_ns))

    def next_sequence(self, group: GroupId) -> int:
        """Return the number that the next own message of a group gets."""
        stream = self._outgoing.get(group)
        return self._left_at.get(group, (0, 0))[1] if stream is None else stream.next_message

    def view_of(self, group: GroupId) -> ViewNumber:  # noqa: ARG002
        """Return that there are no views."""
        return NO_VIEW

    # Frames.

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a well-formed frame: ignore what makes no sense now, then act by kind."""
        self._now_ns = now_ns
        if frame.kind in DATA_KINDS:
            stream = self._incoming.get((frame.sender, frame.region))
            if stream is None or stream.sender.incarnation != frame.incarnation:
                # An open stream is a member's: leaving the group closes it.
                stream = self._stream_of(source, frame) if self._is_of_member(source, frame) else None
            if stream is None:
                return
            stream.heard_ns = now_ns
            if self.settings.reliable:
                stream.on_data(frame, self.effects)
                self._watch(stream)
            else:
                stream.on_best_effort(frame, self.effects)
            return
        if not self._is_of_member(source, frame):
            return
        body = self._gate.decode(now_ns, source, frame)
        if body is None:
            return
        if isinstance(body, Heartbeat):
            self._on_heartbeat(source, frame, body)
            return
        outgoing = self._outgoing.get(GroupId(frame.region))
        if outgoing is None:
            self._refuse(source, frame, "speaks of a stream that does not exist")
        elif isinstance(body, Ack):
            self._on_ack(source, outgoing, frame, body)
        elif isinstance(body, Nak):
            self._on_nak(source, outgoing, frame, body)

    def _is_of_member(self, source: Endpoint, frame: Frame) -> bool:
        """Return whether a frame is of another member of a group that this node is in; refuse it if not."""
        membership = self._groups.get(GroupId(frame.region))
        if membership is None or frame.sender not in membership.nodes or frame.sender == self.member.node:
            self._refuse(source, frame, "not a member of a group that this node is in")
            return False
        return True

    def _on_heartbeat(self, source: Endpoint, frame: Frame, body: Heartbeat) -> None:
        stream = self._stream_of(source, frame)
        if stream is None or not self.settings.reliable:
            return
        stream.on_heartbeat(body.first, body.stop, body.message, self.effects)
        # A heartbeat asks for an answer: the sender must see that we are alive and how far we are.
        stream.unacknowledged += 1
        self._watch(stream)

    def _watch(self, stream: IncomingStream) -> None:
        """Set the timers that a stream needs now."""
        waiting = stream.unacknowledged
        if waiting >= self.settings.ack_every_frames:
            self._acks[stream.key] = None
        elif waiting == 1:
            self._timers.set_earlier(("ack", stream.key), self._now_ns + self.settings.ack_delay_ns)
        # Something that is known to exist is missing, or nothing is any more.
        window = stream.window
        if (window.prefix < window.stop) is not stream.asks:
            self._watch_gap(stream)

    def _watch_gap(self, stream: IncomingStream) -> None:
        key = stream.key
        stream.asks = not stream.asks
        if stream.asks:
            stream.nak_delay_ns = self.settings.nak_delay_ns_min
            self._set_nak_timer(key, stream)
            self._timers.set(("give_up", key), self._now_ns + self.settings.give_up_after_ns)
        else:
            self._timers.cancel(("nak", key))
            self._timers.cancel(("give_up", key))

    def _on_ack(self, source: Endpoint, stream: OutgoingStream, frame: Frame, body: Ack) -> None:
        self.counters.acks_received += 1
        peer = self._peer_reporting(source, stream, frame, body)
        if peer is None:
            return
        # Nobody can have what was never sent.
        if body.prefix > stream.next_frame:
            self._refuse(source, frame, "acknowledges what was never sent")
            return
        stream.on_report(peer, Incarnation(frame.incarnation), body.prefix, self._now_ns)
        if not peer.awaited:
            self._heartbeats[stream.group, NodeId(frame.sender)] = None
        self._release(stream)

    def _on_nak(self, source: Endpoint, stream: OutgoingStream, frame: Frame, body: Nak) -> None:
        self.counters.naks_received += 1
        peer = self._peer_reporting(source, stream, frame, body)
        if peer is None:
            return
        peer.heard_ns = self._now_ns
        endpoint = self._endpoints[NodeId(frame.sender)]
        if body.bounds[0] < stream.first:
            self._heartbeats[stream.group, NodeId(frame.sender)] = None
        for data in islice(stream.kept(body.bounds), self.settings.repairs_per_nak_max):
            self._repairs[endpoint, data] = None

    def _peer_reporting(self, source: Endpoint, stream: OutgoingStream, frame: Frame, body: Ack | Nak) -> Peer | None:
        """Find who speaks of our stream, unless it speaks of an earlier life of ours or is one of its own."""
        peer = stream.peers[NodeId(frame.sender)]
        if body.incarnation != self.member.incarnation or frame.incarnation < peer.incarnation:
            self._refuse(source, frame, "speaks of another life")
            return None
        return peer

    def _stream_of(self, source: Endpoint, frame: Frame) -> IncomingStream | None:
        """Find or open the stream that a frame belongs to; a new life of a sender replaces the old one."""
        key = (frame.sender, frame.region)
        stream = self._incoming.get(key)
        if stream is not None:
            if stream.sender.incarnation == frame.incarnation:
                stream.heard_ns = self._now_ns
                return stream
            if frame.incarnation < stream.sender.incarnation:
                self._refuse(source, frame, "of an earlier life of its sender")
                return None
            stream.give_up(self.effects)
            self._forget(key)
        if len(self._incoming) >= self.settings.streams_max:
            self._refuse(source, frame, f"streams_max={self.settings.streams_max} streams are open")
            return None
        sender = Member(NodeId(frame.sender), Incarnation(frame.incarnation))
        stream = IncomingStream(sender, GroupId(frame.region), self.settings, self._joiner, self.counters)
        stream.heard_ns = self._now_ns
        self._incoming[key] = stream
        return stream

    def _refuse(self, source: Endpoint, frame: Frame, cause: str) -> None:
        self._gate.refuse_state(self._now_ns, source, frame, cause)

    def _forget(self, key: StreamKey) -> None:
        stream = self._incoming.pop(key)
        self._joiner.forget(stream.sender, stream.group)
        self._acks.pop(key, None)
        self._naks.pop(key, None)
        for name in ("ack", "nak", "give_up"):
            self._timers.cancel((name, key))

    # Timers.

    def next_deadline_ns(self) -> int | None:
        """Return when something will be due."""
        return self._timers.next_ns()

    def on_timer(self, now_ns: int) -> None:
        """Note what has become due; the frames are made in `make_frames`."""
        self._now_ns = now_ns
        for name, key in self._timers.take_due(now_ns):
            self._on_timer_of[name](key)

    def _on_ack_due(self, key: StreamKey) -> None:
        self._acks[key] = None

    def _on_nak_due(self, key: StreamKey) -> None:
        stream = self._incoming[key]
        self._naks[key] = None
        # Repairs that come are a reason to ask for more; silence is a reason to ask less often.
        if stream.window.prefix > stream.nak_prefix:
            stream.nak_delay_ns = max(stream.nak_delay_ns // 2, self.settings.nak_delay_ns_min)
        else:
            stream.nak_delay_ns = min(2 * stream.nak_delay_ns, self.settings.nak_delay_ns_max)
        stream.nak_prefix = stream.window.prefix
        self._set_nak_timer(key, stream)

    def _set_nak_timer(self, key: StreamKey, stream: IncomingStream) -> None:
        # Random, so that receivers that lost the same frame do not ask in the same instant.
        delay_ns = stream.nak_delay_ns + int(stream.nak_delay_ns * self._rng.random())
        self._timers.set(("nak", key), self._now_ns + delay_ns)

    def _on_give_up_due(self, key: StreamKey) -> None:
        stream = self._incoming[key]
        silent_until_ns = stream.heard_ns + self.settings.give_up_after_ns
        if silent_until_ns > self._now_ns:
            self._timers.set(("give_up", key), silent_until_ns)
            return
        stream.give_up(self.effects)
        # Ask no more, even if the end of the stream is still missing, until the sender is heard again.
        stream.asks = False
        self._timers.cancel(("nak", key))

    def _on_heartbeat_due(self, group: GroupId) -> None:
        stream = self._outgoing.get(group)
        if stream is None or not stream.needs_heartbeat:
            return
        self._heartbeats[group, None] = None
        stream.heartbeat_ns = min(2 * stream.heartbeat_ns, self.settings.heartbeat_ns_max)
        self._timers.set(("heartbeat", group), self._now_ns + stream.heartbeat_ns)

    def _on_drop_due(self, group: GroupId) -> None:
        stream = self._outgoing.get(group)
        if stream is None or not stream.unstable:
            return
        for node in stream.drop_silent(self._now_ns):
            self.counters.members_dropped += 1
            expected = stream.message_of(stream.peers[node].prefix)
            sealed = stream.message_of(stream.next_frame)
            expected = stream.take_failed(node, expected, sealed)
            self._fail(stream, expected, sealed, node, f"node {node} was silent for too long")
        self._release(stream)
        if stream.unstable:
            self._timers.set(("drop", group), self._now_ns + self.settings.drop_after_ns // 4)

    def _fail(self, stream: OutgoingStream, first: int, stop: int, receiver: NodeId | None, cause: str) -> None:
        if first < stop:
            self.counters.messages_failed += stop - first
            self.effects.append(SendFailed(stream.group, first, stop, receiver, cause))

    def _release(self, stream: OutgoingStream) -> None:
        first, stop = stream.release()
        if first < stop:
            for node in stream.not_awaited:
                news = stream.take_failed(node, first, stop)
                self._fail(stream, news, stop, node, f"node {node} is not waited for")
            self.counters.messages_stable += stop - first
            self.effects.append(SendConfirmed(stream.group, first, stop))
        if stream.can_seal:
            self._ready[stream.group] = None

    # Output.

    @property
    def has_data(self) -> bool:
        """Whether a group has messages to seal and a window with room."""
        return bool(self._ready)

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        """Make the frames that are due, control first, then repairs, then new data as far as there is room."""
        datagrams: list[Datagram] = []
        if self._acks or self._naks or self._heartbeats:
            self._make_control(datagrams)
        if self._repairs:
            for endpoint, data in self._repairs:
                datagrams.append(Datagram(endpoint, resend(data), Priority.REPAIR))
            self.counters.repairs_sent += len(self._repairs)
            self.counters.repair_bytes_sent += sum(len(data) for _, data in self._repairs)
            self._repairs.clear()
        if self._ready:
            self._make_data(datagrams, room_bytes)
        return datagrams

    def _make_data(self, datagrams: list[Datagram], room_bytes: int) -> None:
        """Seal frames, one from each ready group in turn."""
        ready, builder = self._ready, self._builder
        frames_left = self.settings.frames_per_output_max
        while ready and room_bytes > 0 and frames_left:
            group = next(iter(ready))
            del ready[group]
            stream = self._outgoing[group]
            if not stream.can_seal:
                continue
            was_stable = not stream.unstable
            data = stream.seal(builder, (Kind.DATA, self._gate.domain, *self.member, group, NO_VIEW), self._now_ns)
            datagrams.append(Datagram(stream.channel, data))
            room_bytes -= len(data)
            frames_left -= 1
            if stream.can_seal:
                ready[group] = None
            if self.settings.reliable and stream.peers:
                if was_stable:
                    # Nobody owed an answer until now: silence counts from here.
                    for peer in stream.peers.values():
                        peer.heard_ns = self._now_ns
                    self._timers.set(("drop", group), self._now_ns + self.settings.drop_after_ns)
                self._timers.set(("heartbeat", group), self._now_ns + stream.heartbeat_ns)

    def _make_control(self, datagrams: list[Datagram]) -> None:
        for key in self._acks:
            stream = self._incoming[key]
            stream.unacknowledged = 0
            self._timers.cancel(("ack", key))
            body = Ack(stream.sender.incarnation, stream.window.prefix)
            datagrams.append(self._control(Kind.ACK, stream.group, body, self._endpoints[stream.sender.node]))
        self.counters.acks_sent += len(self._acks)
        self._acks.clear()
        for key in self._naks:
            stream = self._incoming[key]
            bounds = stream.window.missing(self.limits.ranges_max)
            if bounds:
                self.counters.naks_sent += 1
                nak = Nak(stream.sender.incarnation, tuple(bounds))
                datagrams.append(self._control(Kind.NAK, stream.group, nak, self._endpoints[stream.sender.node]))
        self._naks.clear()
        for group, node in self._heartbeats:
            out = self._outgoing.get(group)
            if out is None:
                continue
            self.counters.heartbeats_sent += 1
            beat = Heartbeat(out.first, out.next_frame, out.stable_message)
            where = out.channel if node is None else self._endpoints[node]
            datagrams.append(self._control(Kind.HEARTBEAT, group, beat, where))
        self._heartbeats.clear()

    def _control(
        self, kind: Kind, group: GroupId, body: Ack | Nak | Heartbeat, destination: Endpoint | Channel
    ) -> Datagram:
        data = encode_control(kind, self._gate.domain, *self.member, group, NO_VIEW, self._now_ns, body)
        return Datagram(destination, data, Priority.CONTROL)
