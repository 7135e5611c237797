"""The node: opens datagrams at the gate, hands frames to protocols, and puts what they cause into one order.

Knows no protocol by name. Traces and counts, in one place for all protocols, what the application sends and what
reaches it: at the top of the stacks, above all layers.
"""

from collections.abc import Callable, Sequence
from zlib import crc32

from vivum.core.digests import digest_63
from vivum.core.errors import LimitError, UsageError
from vivum.core.ids import Endpoint, GroupId, Member
from vivum.core.machine import (
    NO_FRAMES,
    ROOM_BYTES_UNLIMITED,
    Command,
    Datagram,
    Delivery,
    Effect,
    InstallView,
    Priority,
)
from vivum.core.ranges import RangeSet
from vivum.node.stacks import Stacks
from vivum.observe.counters import Counters
from vivum.observe.trace import (
    GroupJoined,
    GroupLeft,
    KeyDelivered,
    MessageDelivered,
    MessageSent,
    MessagesFailed,
    MessagesLost,
    MessagesSkipped,
    MessagesStable,
    QueueMeasured,
    Tracer,
    ViewInstalled,
)
from vivum.protocols.commands import (
    GapReported,
    GroupsEntered,
    GroupsLeft,
    JoinGroup,
    LeaveGroup,
    MessagesLeftOut,
    QueueGrew,
    SendConfirmed,
    SendFailed,
    SendMessages,
)
from vivum.protocols.contract import (
    KeepsMemory,
    NumbersMessages,
    Persists,
    ProtocolMachine,
    SendsNow,
    TakesRuns,
    TellsRoom,
)
from vivum.wire.codec import Frame, single_frames
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind


class Node:
    """A machine made of protocol machines, each for its own kinds of frames and commands."""

    def __init__(
        self,
        member: Member,
        gate: Gate,
        protocols: Sequence[ProtocolMachine],
        counters: Counters,
        trace: Tracer | None = None,
        *,
        identity: Callable[[], Member] | None = None,
    ) -> None:
        """Compose protocols. `identity` returns the node's present life, where a membership service decides that."""
        self._member = member
        self._identity = identity
        self.counters = counters
        self.trace = trace
        self._gate = gate
        self._protocols = tuple(protocols)
        # For each kind of frame: its protocol, and that protocol's method for several frames at once, if any.
        self._takers: dict[int, tuple[ProtocolMachine, Callable[[int, Endpoint, list[Frame]], None] | None]] = {}
        self._by_command: dict[type[Command], ProtocolMachine] = {}
        for protocol in protocols:
            assert not (isinstance(protocol, Persists) and isinstance(protocol, SendsNow)), (
                f"{type(protocol).__name__} persists: its frames must not leave before what else it causes"
            )
            for kind in protocol.kinds:
                assert kind not in self._takers, f"two protocols want frames of kind {Kind(kind).name}"
                self._takers[kind] = (protocol, protocol.on_frames if isinstance(protocol, TakesRuns) else None)
            for command in protocol.commands:
                assert command not in self._by_command, f"two protocols want {command.__name__}"
                self._by_command[command] = protocol
        # Look these up once: they are needed with every datagram.
        self._send_now: dict[int, Callable[[int, Command], list[Datagram]]] = {
            id(each): each.send_now for each in protocols if isinstance(each, SendsNow)
        }
        self._room_bytes: dict[int, Callable[[GroupId], int]] = {
            id(each): each.room_bytes for each in protocols if isinstance(each, TellsRoom)
        }
        self._stacks = Stacks({each.transport: each for each in protocols if each.transport})
        self._effects: list[Effect] = []
        self._now_ns = 0

    @property
    def member(self) -> Member:
        """This life of this node; incarnation 0 while it has none."""
        return self._member if self._identity is None else self._identity()

    @property
    def protocols(self) -> tuple[ProtocolMachine, ...]:
        """The machines that this node is made of, for measuring."""
        return self._protocols

    # In.

    def on_datagrams(self, now_ns: int, arrived: Sequence[tuple[Endpoint, bytes]], waited_ns: int = 0) -> None:
        """Open what arrived together, in order; hand runs of frames of one kind and source to their protocol."""
        self._now_ns = now_ns
        self._gate.waited_ns = waited_ns
        run: list[Frame] = []
        run_source, run_kind = None, None
        for source, data in arrived:
            for frame in self._gate.open(now_ns, source, data):
                if frame.kind is not run_kind or source is not run_source:
                    if run_source is not None:
                        self._hand_over(now_ns, run_source, run)
                    run, run_source, run_kind = [], source, frame.kind
                run.append(frame)
        if run_source is not None:
            self._hand_over(now_ns, run_source, run)

    def _hand_over(self, now_ns: int, source: Endpoint, frames: list[Frame]) -> None:
        taker = self._takers.get(frames[0].kind)
        if taker is None:
            for frame in single_frames(frames):
                self._on_layer_frame(now_ns, source, frame)
            return
        protocol, on_frames = taker
        if on_frames is not None:
            on_frames(now_ns, source, frames)
        else:
            for frame in single_frames(frames):
                protocol.on_frame(now_ns, source, frame)
        if protocol.effects:
            self._collect(protocol)

    def _on_layer_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        lifted = self._stacks.on_frame(now_ns, source, frame)
        if lifted is None:
            self._gate.refuse_kind(now_ns, source, frame)
        else:
            self._take_up(lifted)

    def submit(self, now_ns: int, command: Command) -> None:
        """Hand messages to the stack of their group, any other command to the protocol that takes it.

        Joins and leaves thus go to the protocol that has the node's membership, whatever the group's transport: views,
        regions and channels are made for all groups of a node together. Other transports read them there.
        """
        self._now_ns = now_ns
        if type(command) is SendMessages:
            protocol = self._submit_messages(now_ns, command)
        else:
            protocol = self._protocol_for(command)
            if type(command) is JoinGroup:
                self._stacks.join(command)
            protocol.submit(now_ns, command)
            if type(command) is LeaveGroup:
                self._stacks.leave(command.group)
        if protocol.effects:
            self._collect(protocol)

    def _submit_messages(self, now_ns: int, command: SendMessages) -> ProtocolMachine:
        """Hand messages to the top of their stack; return the transport under it."""
        stack = self._stacks.get(command.group)
        transport = self._protocol_for(command) if stack is None else stack.transport
        try:
            if stack is None:
                transport.submit(now_ns, command)
            else:
                stack.submit(now_ns, command)
        except LimitError:
            self.counters.messages_rejected += len(command.payloads)
            raise
        self.counters.messages_accepted += len(command.payloads)
        if self.trace is not None:
            self._trace_sent(self.trace, transport, command)
        if stack is not None and stack.layers:
            self._stacks.after(command.group, stack)
        return transport

    def next_sequence(self, group: GroupId) -> int:
        """Return the number that the next own message of a group gets."""
        stack = self._stacks.get(group)
        transport = self._by_command[SendMessages] if stack is None else stack.transport
        assert isinstance(transport, NumbersMessages)
        return transport.next_sequence(group)

    def room_bytes(self, group: GroupId) -> int:
        """Return how many bytes of messages of a group are sure to be accepted, until the next input; 0 if unknown.

        In one message or in many. Layers may refuse or lengthen messages: with them it is unknown.
        """
        stack = self._stacks.get(group)
        transport = self._by_command[SendMessages] if stack is None else stack.transport
        tell = self._room_bytes.get(id(transport))
        return 0 if tell is None or (stack is not None and stack.layers) else tell(group)

    def _protocol_for(self, command: Command) -> ProtocolMachine:
        protocol = self._by_command.get(type(command))
        if protocol is None:
            known = ", ".join(sorted(each.__name__ for each in self._by_command))
            raise UsageError(f"this node takes no {type(command).__name__}; it takes {known}")
        return protocol

    def send_now(self, now_ns: int, command: Command) -> list[Datagram]:
        """Submit a command; return the frames of it that can leave before all else."""
        if type(command) is not SendMessages:
            self.submit(now_ns, command)
            return []
        stack = self._stacks.get(command.group)
        protocol = self._protocol_for(command) if stack is None else stack.transport
        send_now = self._send_now.get(id(protocol))
        if send_now is None or (stack is not None and stack.layers):
            self.submit(now_ns, command)
            return []
        self._now_ns = now_ns
        try:
            datagrams = send_now(now_ns, command)
        except LimitError:
            self.counters.messages_rejected += len(command.payloads)
            raise
        self.counters.messages_accepted += len(command.payloads)
        if self.trace is not None:
            self._trace_sent(self.trace, protocol, command)
        if protocol.effects:
            self._collect(protocol)
        self._count_sent(datagrams)
        return datagrams

    def on_timer(self, now_ns: int) -> None:
        """Let every protocol do what is due."""
        self._now_ns = now_ns
        for protocol in self._protocols:
            protocol.on_timer(now_ns)
            if protocol.effects:
                self._collect(protocol)
        if self._stacks.have_layers:
            self._take_up(self._stacks.on_timer(now_ns))

    def next_deadline_ns(self) -> int | None:
        """Return the earliest deadline of all protocols."""
        earliest = self._stacks.next_deadline_ns() if self._stacks.have_layers else None
        for protocol in self._protocols:
            deadline_ns = protocol.next_deadline_ns()
            if deadline_ns is not None and (earliest is None or deadline_ns < earliest):
                earliest = deadline_ns
        return earliest

    # Out.

    @property
    def has_data(self) -> bool:
        """Whether any protocol could seal new data now."""
        for protocol in self._protocols:  # noqa: SIM110 - asked after every arrival; any() costs three times as much
            if protocol.has_data:
                return True
        return False

    @property
    def held_bytes(self) -> int:
        """Bytes of messages and frames that the protocols keep. Adds them up, so do not ask for every datagram."""
        return sum(protocol.held_bytes for protocol in self._protocols if isinstance(protocol, KeepsMemory))

    def take_output(self, room_bytes: int = ROOM_BYTES_UNLIMITED) -> list[Effect]:
        """Return what inputs caused, in order, then frames, the most urgent first."""
        made: list[Datagram] = []
        if room_bytes != NO_FRAMES:
            for protocol in self._protocols:
                made += protocol.make_frames(room_bytes)
                if protocol.effects:
                    self._collect(protocol)
            if self._stacks.have_layers:
                made += self._stacks.make_frames(room_bytes)
        effects, self._effects = self._effects, []
        if made:
            self._count_sent(made)
            effects += _by_priority(made)
        return effects

    def _collect(self, protocol: ProtocolMachine) -> None:
        """Collect what a call to a protocol caused, before another one is called."""
        effects = protocol.effects
        self._take_up(self._stacks.lift(self._now_ns, effects) if self._stacks.have_layers else effects)
        effects.clear()

    def _take_up(self, effects: list[Effect]) -> None:
        """Count, trace and keep what comes out at the top of the stacks."""
        counters = self.counters
        for effect in effects:
            if type(effect) is Delivery:
                counters.messages_delivered += len(effect.payloads)
        if self.trace is not None:
            for effect in effects:
                self._trace_effect(self.trace, effect)
        self._effects += effects

    def _count_sent(self, datagrams: list[Datagram]) -> None:
        counters = self.counters
        for datagram in datagrams:
            counters.datagrams_sent += datagram.count if datagram.segment else 1
            counters.bytes_sent += len(datagram.data)

    # Traces.

    def _trace_sent(self, trace: Tracer, transport: ProtocolMachine, command: SendMessages) -> None:
        """Trace messages that were just taken: the transport has numbered them, as the last of their group."""
        assert isinstance(transport, NumbersMessages)
        group, payloads = command.group, command.payloads
        first, view = transport.next_sequence(group) - len(payloads), transport.view_of(group)
        for sequence, payload in enumerate(payloads, first):
            trace(MessageSent(self._now_ns, *self.member, group, sequence, view, crc32(payload)))

    def _trace_effect(self, trace: Tracer, effect: Effect) -> None:
        now_ns, (node, incarnation) = self._now_ns, self.member
        match effect:
            case Delivery():
                self._trace_delivery(trace, effect)
            case SendConfirmed(group, first, stop):
                trace(MessagesStable(now_ns, node, incarnation, group, first, stop))
            case SendFailed(group, first, stop, receiver, cause):
                trace(MessagesFailed(now_ns, node, incarnation, group, first, stop, receiver or 0, cause))
            case GapReported(group, sender, first, stop):
                trace(MessagesLost(now_ns, node, incarnation, group, sender.node, sender.incarnation, first, stop))
            case MessagesLeftOut(group, sender, first, stop, are_repeated):
                record = MessagesSkipped if are_repeated else MessagesLost
                trace(record(now_ns, node, incarnation, group, sender.node, sender.incarnation, first, stop))
            case QueueGrew(queue, depth, limit, unit):
                trace(QueueMeasured(now_ns, node, incarnation, queue, depth, limit, unit))
            case GroupsLeft(groups):
                for number in RangeSet.from_bounds(groups):
                    trace(GroupLeft(now_ns, node, incarnation, number))
            case GroupsEntered(groups):
                for number in RangeSet.from_bounds(groups):
                    trace(GroupJoined(now_ns, node, incarnation, number))
            case InstallView(groups, view, members):
                names = tuple(map(str, members))
                for number in RangeSet.from_bounds(groups):
                    trace(ViewInstalled(now_ns, node, incarnation, number, view, names))

    def _trace_delivery(self, trace: Tracer, delivery: Delivery) -> None:
        node, incarnation = self.member
        for index, payload in enumerate(delivery.payloads):
            trace(
                MessageDelivered(
                    self._now_ns,
                    node,
                    incarnation,
                    delivery.group,
                    delivery.sender.node,
                    delivery.sender.incarnation,
                    delivery.first_sequence + index,
                    delivery.view,
                    crc32(payload),
                    delivery.sent_ns,
                )
            )
        for sequence, head in enumerate(delivery.heads, delivery.first_sequence):
            if key := head[1:]:
                life = (*delivery.sender,)
                trace(KeyDelivered(self._now_ns, node, incarnation, delivery.group, *life, sequence, digest_63(key)))


def _by_priority(datagrams: list[Datagram]) -> list[Datagram]:
    """Order frames by urgency; within one priority the order of the protocols stays."""
    first = datagrams[0].priority
    if all(each.priority is first for each in datagrams):
        return datagrams
    return [each for priority in Priority for each in datagrams if each.priority is priority]
