"""The node: opens datagrams at the gate, hands frames to protocols, gathers their output by priority.

Knows no protocol by name. Traces, in one place for all protocols, what reaches the application.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from zlib import crc32

from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint, Member
from vivum.core.machine import EMPTY_OUTPUT, ROOM_BYTES_UNLIMITED, Command, Datagram, Delivery, Event, Output
from vivum.observe.counters import Counters
from vivum.observe.trace import (
    MessageDelivered,
    MessagesFailed,
    MessagesLost,
    MessagesStable,
    QueueMeasured,
    Tracer,
)
from vivum.protocols.commands import GapReported, QueueGrew, SendConfirmed, SendFailed
from vivum.protocols.contract import AnswersAtOnce, KeepsMemory, ProtocolMachine, TakesRuns
from vivum.wire.codec import Frame
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind

_by_priority = attrgetter("priority")


def _never_heard(now_ns: int, source: Endpoint, data: bytes) -> None:  # noqa: ARG001
    return None


def _never_sealed(now_ns: int, command: Command) -> None:  # noqa: ARG001
    return None


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
        """Compose protocols. `identity` tells who the node is, where a membership service decides that."""
        self._member = member
        self._identity = identity
        self.counters = counters
        self.trace = trace
        self._gate = gate
        self._protocols = tuple(protocols)
        self._by_kind: dict[int, ProtocolMachine] = {}
        self._on_frames: dict[int, Callable[[int, Endpoint, list[Frame]], None]] = {}
        self._by_command: dict[type[Command], ProtocolMachine] = {}
        self._send_now: dict[type[Command], Callable[[int, Command], list[Datagram]]] = {}
        self._take_deliveries: list[Callable[[], list[Delivery]]] = []
        self.hear_now: Callable[[int, Endpoint, bytes], Delivery | None] = _never_heard
        self.seal_now: Callable[[int, Command], list[Datagram] | None] = _never_sealed
        for protocol in protocols:
            for kind in protocol.kinds:
                assert kind not in self._by_kind, f"two protocols want frames of kind {Kind(kind).name}"
                self._by_kind[kind] = protocol
                if isinstance(protocol, TakesRuns):
                    self._on_frames[kind] = protocol.on_frames
            for command in protocol.commands:
                assert command not in self._by_command, f"two protocols want {command.__name__}"
                self._by_command[command] = protocol
                if isinstance(protocol, AnswersAtOnce):
                    self._send_now[command] = protocol.send_now
            if isinstance(protocol, AnswersAtOnce):
                self._take_deliveries.append(protocol.take_deliveries)
                # Straight to the protocol: nobody is in between, for the sake of time.
                self.hear_now, self.seal_now = protocol.hear_now, protocol.seal_now
        self._now_ns = 0

    @property
    def member(self) -> Member:
        """This life of this node; incarnation 0 while it has none."""
        return self._member if self._identity is None else self._identity()

    @property
    def protocols(self) -> tuple[ProtocolMachine, ...]:
        """The machines that this node is made of, for those who measure them."""
        return self._protocols

    def on_datagrams(self, now_ns: int, arrived: Sequence[tuple[Endpoint, bytes]]) -> None:
        """Take what arrived together, in its order. Frames of one kind from one place go to their protocol at once."""
        self._now_ns = now_ns
        opened = self._gate.open
        if len(arrived) == 1:
            source, data = arrived[0]
            frames = opened(now_ns, source, data)
            if len(frames) == 1:
                self._hand_over(now_ns, source, frames)
            else:
                self._hand_over_runs(now_ns, [(source, frames)])
            return
        self._hand_over_runs(now_ns, ((source, opened(now_ns, source, data)) for source, data in arrived))

    def _hand_over_runs(self, now_ns: int, opened: Iterable[tuple[Endpoint, list[Frame]]]) -> None:
        run: list[Frame] = []
        run_source, run_kind = None, None
        for source, frames in opened:
            for frame in frames:
                if frame.kind is not run_kind or source is not run_source:
                    if run_source is not None:
                        self._hand_over(now_ns, run_source, run)
                    run, run_source, run_kind = [], source, frame.kind
                run.append(frame)
        if run_source is not None:
            self._hand_over(now_ns, run_source, run)

    def on_datagram(self, now_ns: int, source: Endpoint, data: bytes) -> None:
        """Take bytes that arrived."""
        self.on_datagrams(now_ns, ((source, data),))

    def _hand_over(self, now_ns: int, source: Endpoint, frames: list[Frame]) -> None:
        kind = frames[0].kind
        on_frames = self._on_frames.get(kind)
        if on_frames is not None:
            on_frames(now_ns, source, frames)
            return
        protocol = self._by_kind.get(kind)
        for frame in frames:
            if protocol is None:
                self._gate.refuse_kind(now_ns, source, frame)
            elif not frame.keep():
                self.counters.frames_gone += 1
            else:
                protocol.on_frame(now_ns, source, frame)

    def submit(self, now_ns: int, command: Command) -> None:
        """Hand a command to the protocol that takes it."""
        self._now_ns = now_ns
        protocol = self._by_command.get(type(command))
        if protocol is None:
            known = ", ".join(sorted(each.__name__ for each in self._by_command))
            raise UsageError(f"this node takes no {type(command).__name__}; it takes {known}")
        protocol.submit(now_ns, command)

    def send_now(self, now_ns: int, command: Command) -> list[Datagram]:
        """Hand a command over as `submit` does; return what it sends, if its protocol can seal that at once."""
        send_now = self._send_now.get(type(command))
        if send_now is None:
            self.submit(now_ns, command)
            return []
        self._now_ns = now_ns
        datagrams = send_now(now_ns, command)
        counters = self.counters
        for datagram in datagrams:
            counters.datagrams_sent += 1
            counters.bytes_sent += len(datagram.data)
        return datagrams

    def on_timer(self, now_ns: int) -> None:
        """Let every protocol do what is due."""
        self._now_ns = now_ns
        for protocol in self._protocols:
            protocol.on_timer(now_ns)

    def next_deadline_ns(self) -> int | None:
        """Tell the earliest deadline of all protocols."""
        earliest: int | None = None
        for protocol in self._protocols:
            deadline_ns = protocol.next_deadline_ns()
            if deadline_ns is not None and (earliest is None or deadline_ns < earliest):
                earliest = deadline_ns
        return earliest

    @property
    def has_data(self) -> bool:
        """Tell whether any protocol could seal new data now."""
        for protocol in self._protocols:  # noqa: SIM110 - asked after every arrival; any() costs three times as much
            if protocol.has_data:
                return True
        return False

    @property
    def held_bytes(self) -> int:
        """Bytes of messages and frames that the protocols keep. Adds them up: not for every datagram."""
        return sum(protocol.held_bytes for protocol in self._protocols if isinstance(protocol, KeepsMemory))

    def take_output(self, room_bytes: int = ROOM_BYTES_UNLIMITED) -> Output:
        """Gather the output of all protocols, most urgent datagrams first."""
        output = EMPTY_OUTPUT
        for protocol in self._protocols:
            part = protocol.take_output(room_bytes)
            if part is EMPTY_OUTPUT:
                continue
            if output is EMPTY_OUTPUT:
                output = part
            else:
                output.datagrams += part.datagrams
                output.deliveries += part.deliveries
                output.events += part.events
        if output is EMPTY_OUTPUT:
            return output
        if output.datagrams:
            self._count_sent(output)
        if output.deliveries:
            self._note_delivered(output.deliveries)
        if self.trace is not None and output.events:
            for event in output.events:
                self._trace_event(self.trace, event)
        return output

    def take_deliveries(self) -> list[Delivery]:
        """Gather what protocols have to deliver and can hand over before all else."""
        for take in self._take_deliveries:
            deliveries = take()
            if deliveries:
                # What others have comes by `take_output`.
                self._note_delivered(deliveries)
                return deliveries
        return []

    def _note_delivered(self, deliveries: list[Delivery]) -> None:
        counters, trace = self.counters, self.trace
        for delivery in deliveries:
            counters.messages_delivered += len(delivery.payloads)
            if trace is not None:
                self._trace_delivery(trace, delivery)

    def _count_sent(self, output: Output) -> None:
        # A stable sort: within one priority the order of the protocol stays.
        output.datagrams.sort(key=_by_priority)
        self.counters.datagrams_sent += len(output.datagrams)
        self.counters.bytes_sent += sum(len(datagram.data) for datagram in output.datagrams)

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

    def _trace_event(self, trace: Tracer, event: Event) -> None:
        now_ns, (node, incarnation) = self._now_ns, self.member
        match event:
            case SendConfirmed(group, first, stop):
                trace(MessagesStable(now_ns, node, incarnation, group, first, stop))
            case SendFailed(group, first, stop, receiver, cause):
                trace(MessagesFailed(now_ns, node, incarnation, group, first, stop, receiver or 0, cause))
            case GapReported(group, sender, first, stop):
                trace(MessagesLost(now_ns, node, incarnation, group, sender.node, sender.incarnation, first, stop))
            case QueueGrew(queue, depth, limit, unit):
                trace(QueueMeasured(now_ns, node, incarnation, queue, depth, limit, unit))
