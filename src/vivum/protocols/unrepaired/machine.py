"""Best-effort multicast: frames of a kind of their own, over the same channels and endpoints as QSM's.

Nothing is kept, asked for or sent again. Frames of one sender and region are numbered, so that a late one is
dropped instead of delivered out of order: FIFO with gaps. `SendConfirmed` means that the messages were handed to the
network. Views and channels come from the client of membership that QSM owns; this machine only reads them.

Invariant: messages of one sender and group are delivered with rising sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vivum.core.errors import LimitError, NotNowError
from vivum.core.ids import Channel, Endpoint, GroupId, Incarnation, Member, NodeId, ViewNumber
from vivum.core.limits import Limits
from vivum.core.machine import Command, Datagram, Delivery, Effect
from vivum.core.settings import setting
from vivum.protocols.commands import GapReported, SendConfirmed, SendMessages
from vivum.protocols.dissemination.ways import choose_destinations
from vivum.protocols.framing import frame_bytes_setting
from vivum.protocols.membership.client.client import MembershipClient
from vivum.protocols.membership.region_config import RegionConfig
from vivum.wire.codec import Frame, FrameBuilder, measure
from vivum.wire.fragments import Joiner
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind
from vivum.wire.outboxes import Outboxes
from vivum.wire.trains import address


@dataclass(frozen=True, slots=True)
class UnrepairedSettings:
    """Settings of best effort."""

    frame_bytes_max: int = frame_bytes_setting()
    waiting_bytes_max: int = setting(
        4 * 1024 * 1024,
        unit="bytes",
        why="What waits while the network takes nothing; it takes most at once.",
        effect="At the limit a message is refused and the caller waits.",
    )
    senders_max: int = setting(
        65_536,
        unit="lives",
        why="Each node of a large domain may send.",
        effect="At the limit the life longest unheard is forgotten; a late frame of it may then be delivered again.",
    )


FRAMES_MAX = 256
"""Frames that are sealed by one call, at most."""


class _Stream:
    """What this node sends to one region."""

    __slots__ = ("destinations", "next_frame", "outboxes", "view", "waiting_bytes")

    def __init__(self, view: ViewNumber, destinations: Sequence[Endpoint | Channel]) -> None:
        self.view = view
        self.destinations = destinations
        self.next_frame = 0
        # Whole where possible: what is cut is lost with any of its frames.
        self.outboxes = Outboxes(cut_to_fill=False)
        self.waiting_bytes = 0


class UnrepairedMachine:
    """Best effort as a protocol that a node can compose beside QSM."""

    transport = "unrepaired"
    kinds = frozenset({Kind.UNREPAIRED})
    # Messages come by the stacks of groups that have this transport.
    commands: frozenset[type[Command]] = frozenset()

    def __init__(
        self,
        client: MembershipClient,
        gate: Gate,
        settings: UnrepairedSettings | None = None,
        limits: Limits | None = None,
        *,
        multicast: bool = True,
    ) -> None:
        self.settings = settings or UnrepairedSettings()
        self.limits = limits or Limits()
        self.counters = gate.counters
        self._client = client
        self._gate = gate
        self._multicast = multicast
        self._now_ns = 0
        self._me: Member | None = None
        self._builder = FrameBuilder(self.settings.frame_bytes_max)
        self._joiner = Joiner(self.limits, self.counters)
        self._streams: dict[int, _Stream] = {}
        self._ready: dict[int, None] = {}
        self._next_message: dict[GroupId, int] = {}
        self._confirmed: dict[GroupId, int] = {}
        self._unconfirmed: dict[GroupId, None] = {}
        # For each sender: the next frame of each region, and the next message of each group.
        self._heard: dict[Member, tuple[dict[int, int], dict[int, int]]] = {}
        self.effects: list[Effect] = []

    # Out.

    def submit(self, now_ns: int, command: Command) -> None:
        """Send."""
        assert isinstance(command, SendMessages)
        self._now_ns = now_ns
        group, payloads = command.group, command.payloads
        me = self._client.member
        payloads = payloads if isinstance(payloads, list | tuple) else list(payloads)
        size, largest = measure(payloads)
        if largest > self.limits.message_bytes_max:
            raise LimitError(f"a message of {largest} bytes is over message_bytes_max={self.limits.message_bytes_max}")
        if me is None or group not in self._client.groups:
            raise NotNowError(f"group {group} is not entered yet; wait for its first view, or join it")
        self._note_life(me)
        waiting = self._waiting_bytes()
        if waiting and waiting + size > self.settings.waiting_bytes_max:
            raise NotNowError(
                f"{waiting} bytes wait; with {size} more they would pass "
                f"waiting_bytes_max={self.settings.waiting_bytes_max}: wait until some are sent"
            )
        first = self._next_message.get(group, 0)
        self._next_message[group] = first + len(payloads)
        for config in self._client.regions_of(group):
            if any(member != me for member in config.members):
                self._feed(config, me, group, first, payloads, size)
        self._unconfirmed[group] = None
        view = self._client.group_view(group)
        self.effects.append(Delivery(group, me, first, payloads, view, now_ns))

    def room_bytes(self, group: GroupId) -> int:
        """Return how many bytes of messages of a group are sure to be accepted, until the next input."""
        if self._client.member is None or group not in self._client.groups:
            return 0
        # One message may have them all.
        return max(0, min(self.settings.waiting_bytes_max - self._waiting_bytes(), self.limits.message_bytes_max))

    def _waiting_bytes(self) -> int:
        return sum(stream.waiting_bytes for stream in self._streams.values())

    def next_sequence(self, group: GroupId) -> int:
        """Return the number that the next own message of a group gets."""
        return self._next_message.get(group, 0) if self._me == self._client.member else 0

    def view_of(self, group: GroupId) -> ViewNumber:
        """Return the view in which the next own message of a group is sent."""
        return self._client.group_view(group)

    def _note_life(self, me: Member) -> None:
        if me != self._me:
            self._me = me
            self._streams.clear()
            self._ready.clear()
            self._next_message.clear()
            self._confirmed.clear()
            self._unconfirmed.clear()

    def _feed(
        self, config: RegionConfig, me: Member, group: GroupId, first: int, payloads: Sequence[bytes], size: int
    ) -> None:
        stream = self._streams.get(config.region)
        if stream is None or stream.view != config.view:
            others = [member.node for member in config.members if member.node != me.node]
            endpoints = self._client.endpoints
            where = choose_destinations(others, config.channel, endpoints, self._multicast)
            if stream is None:
                stream = self._streams[config.region] = _Stream(config.view, where)
            stream.view, stream.destinations = config.view, where
        stream.outboxes.put(group, first, payloads, size)
        stream.waiting_bytes += size
        self._ready[config.region] = None

    @property
    def has_data(self) -> bool:
        """Whether something waits."""
        return bool(self._ready)

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        """Seal what waits, as far as there is room."""
        datagrams: list[Datagram] = []
        if not self._unconfirmed:
            return datagrams
        if self._client.member is not None:
            self._note_life(self._client.member)
        while self._ready and room_bytes > 0 and self._me is not None:
            region = next(iter(self._ready))
            stream = self._streams[region]
            header = (Kind.UNREPAIRED, self._gate.domain, *self._me, region, stream.view)
            bytes_max = -(-room_bytes // max(1, len(stream.destinations)))
            trains, _, taken = stream.outboxes.seal(
                self._builder, FRAMES_MAX, bytes_max, (*header, stream.next_frame, self._now_ns)
            )
            stream.waiting_bytes -= taken
            datagrams += address(trains, stream.destinations)
            for train in trains:
                stream.next_frame += train.frames
                room_bytes -= len(train.data) * len(stream.destinations)
            if not stream.outboxes:
                del self._ready[region]
        if not self._ready:
            for group in self._unconfirmed:
                before, stop = self._confirmed.get(group, 0), self._next_message[group]
                self._confirmed[group] = stop
                self.effects.append(SendConfirmed(group, before, stop))
            self._unconfirmed.clear()
        return datagrams

    # In.

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Deliver a frame of a region that concerns this node, unless a later one came before it."""
        self._now_ns = now_ns
        sender = Member(NodeId(frame.sender), Incarnation(frame.incarnation))
        if sender == self._client.member:
            return
        if self._client.endpoints.get(sender.node) != source:
            self._gate.refuse_state(now_ns, source, frame, "not from the endpoint of its sender")
            return
        heard = self._heard.get(sender)
        if heard is None:
            heard = self._heard[sender] = ({}, {})
            if len(self._heard) > self.settings.senders_max:
                del self._heard[next(iter(self._heard))]
        frames, messages = heard
        if frame.sequence < frames.get(frame.region, 0):
            self.counters.frames_late += 1
            return
        frames[frame.region] = frame.sequence + 1
        joined = self._client.groups
        for group, first, flags, payloads in frame.messages():
            if group not in joined:
                continue
            if flags:
                self._joiner.forget_below(sender, group, first)
                first, payloads = self._joiner.add(sender, group, first, flags, payloads)
            expected = messages.get(group)
            if expected is None and not payloads:
                continue
            if expected is not None and first < expected:
                self.counters.frames_late += 1
                continue
            if expected is not None and first > expected:
                self.counters.messages_lost += first - expected
                self.effects.append(GapReported(GroupId(group), sender, expected, first))
            messages[group] = first + len(payloads)
            if not payloads:
                # A piece of a message. What cannot be made whole was passed over with its last piece, and told above.
                continue
            self.effects.append(
                Delivery(GroupId(group), sender, first, payloads, ViewNumber(frame.view), frame.sent_ns)
            )

    # Time.

    def next_deadline_ns(self) -> int | None:
        """Nothing is ever due."""
        return None

    def on_timer(self, now_ns: int) -> None:
        """Do nothing."""
        self._now_ns = now_ns
