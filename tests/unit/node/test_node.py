"""The node: kinds and commands to the right protocol, output by priority, one trace of what an application sees."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from effects import MemoryTrace, deliveries
from vivum.core.errors import UsageError
from vivum.core.ids import Channel, Endpoint, GroupId, Incarnation, Member, NodeId, ViewNumber
from vivum.core.machine import NO_FRAMES, Command, Datagram, Delivery, Effect, Persist, Priority
from vivum.node.build import PROTOCOLS
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.observe.trace import (
    MessageDelivered,
    MessagesFailed,
    MessagesLost,
    MessagesStable,
    QueueMeasured,
)
from vivum.protocols.commands import (
    GapReported,
    JoinGroup,
    LeaveGroup,
    QueueGrew,
    SendConfirmed,
    SendFailed,
    SendMessages,
)
from vivum.wire.codec import Frame
from vivum.wire.control import Heartbeat, encode_control
from vivum.wire.gate import Gate, domain_tag
from vivum.wire.kinds import Kind

ME = Member(NodeId(1), Incarnation(1))
PEER = Endpoint("peer", 1)
DOMAIN = domain_tag("test")


class Echo:
    """A protocol for one kind of frame and one command.

    Every call causes what a test put into `caused`; frames are those in `datagrams`.
    """

    def __init__(self, kind: Kind, command: type[Command]) -> None:
        self.transport = ""
        self.kinds = frozenset({kind})
        self.commands: frozenset[type[Command]] = frozenset({command})
        self.frames: list[Frame] = []
        self.submitted: list[Command] = []
        self.timers: list[int] = []
        self.deadline_ns: int | None = None
        self.effects: list[Effect] = []
        self.caused: list[Effect] = []
        self.datagrams: list[Datagram] = []
        self.rooms: list[int] = []
        self.has_data = False

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        self.frames.append(frame)
        self.effects += self.caused

    def submit(self, now_ns: int, command: Command) -> None:
        self.submitted.append(command)
        self.effects += self.caused

    def on_timer(self, now_ns: int) -> None:
        self.timers.append(now_ns)
        self.effects += self.caused

    def next_deadline_ns(self) -> int | None:
        return self.deadline_ns

    def next_sequence(self, group: GroupId) -> int:
        return len(self.submitted)

    def view_of(self, group: GroupId) -> ViewNumber:
        return ViewNumber(0)

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        self.rooms.append(room_bytes)
        made, self.datagrams = self.datagrams, []
        return made


MakeNode = Callable[[], tuple[Any, ...]]


@pytest.fixture
def make_node() -> MakeNode:
    def make() -> tuple[Any, ...]:
        beats, sends, trace = Echo(Kind.HEARTBEAT, JoinGroup), Echo(Kind.DATA, SendMessages), MemoryTrace()
        counters = Counters()
        node = Node(ME, Gate(DOMAIN, counters, ME), [beats, sends], counters, trace)
        return node, beats, sends, trace

    return make


def heartbeat() -> bytes:
    return encode_control(Kind.HEARTBEAT, DOMAIN, 2, 1, 7, 1, 0, Heartbeat(0, 0, 0))


def test_a_frame_goes_to_the_protocol_of_its_kind(make_node: MakeNode) -> None:
    node, beats, sends, _ = make_node()
    node.on_datagrams(5, [(PEER, heartbeat() * 3)])
    assert len(beats.frames) == 3
    assert sends.frames == []


def test_a_frame_of_a_kind_that_nobody_takes_is_counted(make_node: MakeNode) -> None:
    node, *_ = make_node()
    frame = bytearray(heartbeat())
    frame[1] = Kind.SURVEY
    node.on_datagrams(5, [(PEER, bytes(frame))])
    assert node.counters.frames_refused_kind == 1


def test_a_command_goes_to_its_protocol_and_an_unknown_one_is_the_callers_fault(make_node: MakeNode) -> None:
    node, beats, sends, _ = make_node()
    command = SendMessages(GroupId(7), [b"x"])
    node.submit(5, command)
    assert sends.submitted == [command]
    with pytest.raises(UsageError, match="takes no LeaveGroup; it takes JoinGroup, SendMessages"):
        node.submit(5, LeaveGroup(GroupId(7)))
    assert beats.submitted == []


def test_two_protocols_cannot_want_the_same_kind_or_command() -> None:
    counters = Counters()
    gate = Gate(DOMAIN, counters, ME)
    with pytest.raises(AssertionError, match="frames of kind DATA"):
        Node(ME, gate, [Echo(Kind.DATA, JoinGroup), Echo(Kind.DATA, SendMessages)], counters)
    with pytest.raises(AssertionError, match="want JoinGroup"):
        Node(ME, gate, [Echo(Kind.DATA, JoinGroup), Echo(Kind.ACK, JoinGroup)], counters)


class Hasty(Echo):
    """Has the fast call."""

    def send_now(self, now_ns: int, command: Command) -> list[Datagram]:
        self.submit(now_ns, command)
        return [Datagram(PEER, b"at once")]


class HastyRecorder(Hasty):
    """Has the fast call, and appends records to stable storage."""

    persists = True


def test_a_protocol_that_persists_has_no_fast_call() -> None:
    """Its frame would leave before the record on which it rests: that comes with the next output."""
    counters = Counters()
    gate = Gate(DOMAIN, counters, ME)
    node = Node(ME, gate, [hasty := Hasty(Kind.DATA, SendMessages)], counters)
    hasty.caused = [Persist(b"record")]
    command = SendMessages(GroupId(7), [b"x"])
    assert (node.send_now(0, command), node.take_output()) == ([Datagram(PEER, b"at once")], hasty.caused)
    with pytest.raises(AssertionError, match="HastyRecorder persists"):
        Node(ME, gate, [HastyRecorder(Kind.DATA, SendMessages)], counters)


def test_the_deadline_is_the_earliest_of_all_and_a_timer_reaches_all(make_node: MakeNode) -> None:
    node, beats, sends, _ = make_node()
    assert node.next_deadline_ns() is None
    sends.deadline_ns = 30
    assert node.next_deadline_ns() == 30
    beats.deadline_ns = 20
    assert node.next_deadline_ns() == 20
    node.on_timer(25)
    assert beats.timers == sends.timers == [25]


def test_a_node_has_data_when_any_protocol_has(make_node: MakeNode) -> None:
    node, _, sends, _ = make_node()
    assert not node.has_data
    sends.has_data = True
    assert node.has_data


def test_frames_of_all_protocols_are_gathered_most_urgent_first_and_otherwise_in_order(make_node: MakeNode) -> None:
    node, beats, sends, _ = make_node()
    assert node.take_output() == []
    for protocol, name in ((beats, b"b"), (sends, b"s")):
        for priority in (Priority.DATA, Priority.REPAIR, Priority.CONTROL):
            for number in b"12":
                protocol.datagrams.append(Datagram(PEER, name + bytes([number]), priority))
    order = [datagram.data for datagram in node.take_output()]
    assert order == [b"b1", b"b2", b"s1", b"s2"] * 3
    assert node.counters.datagrams_sent == 12
    assert node.counters.bytes_sent == 24
    assert node.take_output() == []


def delivery(number: int) -> Delivery:
    return Delivery(GroupId(7), ME, number, [b"x"], ViewNumber(1), 42)


def test_effects_of_two_protocols_keep_the_order_of_their_causes(make_node: MakeNode) -> None:
    node, beats, sends, _ = make_node()
    causes = [
        (beats, lambda: node.on_datagrams(1, [(PEER, heartbeat())])),
        (sends, lambda: node.submit(2, SendMessages(GroupId(7), [b"x"]))),
        (beats, lambda: node.submit(3, JoinGroup(GroupId(7), Channel(7), []))),
        (sends, lambda: node.send_now(4, SendMessages(GroupId(7), [b"x"]))),
        (beats, lambda: node.on_datagrams(5, [(PEER, heartbeat()), (PEER, heartbeat())])),
    ]
    expected: list[Effect] = []
    for number, (protocol, cause) in enumerate(causes):
        caused = [Persist(b"%d" % number), delivery(number), SendConfirmed(GroupId(7), number, number + 1)]
        protocol.caused = caused
        cause()
        # One for each frame where several come together.
        expected += caused * (2 if number == 4 else 1)
    assert node.take_output() == expected
    assert node.take_output() == []


def test_what_a_protocol_caused_is_taken_before_another_is_called(make_node: MakeNode) -> None:
    node, beats, sends, _ = make_node()
    left: list[int] = []
    call = sends.on_timer

    def on_timer(now_ns: int) -> None:
        left.append(len(beats.effects))
        call(now_ns)

    sends.on_timer = on_timer
    beats.caused, sends.caused = [delivery(1)], [delivery(2)]
    node.on_timer(5)
    assert left == [0]
    assert beats.effects == sends.effects == []
    assert node.take_output() == [delivery(1), delivery(2)]


def test_frames_come_after_all_effects(make_node: MakeNode) -> None:
    node, beats, sends, _ = make_node()
    data, control = Datagram(PEER, b"data"), Datagram(PEER, b"control", Priority.CONTROL)
    beats.datagrams, sends.datagrams = [data], [control]
    sends.caused = [Persist(b"record"), delivery(1)]
    node.submit(5, SendMessages(GroupId(7), [b"x"]))
    assert node.take_output() == [Persist(b"record"), delivery(1), control, data]


def test_effects_of_making_frames_come_before_the_frames_in_the_order_of_the_protocols(make_node: MakeNode) -> None:
    node, beats, sends, _ = make_node()
    frames = {name: Datagram(PEER, name) for name in (b"b", b"s")}

    def making(protocol: Echo, number: int, frame: Datagram) -> Callable[[int], list[Datagram]]:
        def make_frames(room_bytes: int) -> list[Datagram]:
            protocol.effects.append(delivery(number))
            return [frame]

        return make_frames

    beats.make_frames, sends.make_frames = making(beats, 1, frames[b"b"]), making(sends, 2, frames[b"s"])
    assert node.take_output() == [delivery(1), delivery(2), frames[b"b"], frames[b"s"]]


def test_without_frames_only_what_inputs_caused_comes_and_the_frames_come_later(make_node: MakeNode) -> None:
    node, beats, sends, _ = make_node()
    beats.datagrams = [Datagram(PEER, b"frame")]
    sends.caused = [delivery(1)]
    node.submit(5, SendMessages(GroupId(7), [b"x"]))
    assert node.take_output(NO_FRAMES) == [delivery(1)]
    assert node.take_output(NO_FRAMES) == []
    assert beats.rooms == sends.rooms == []
    assert node.counters.datagrams_sent == 0
    assert node.take_output(17) == [Datagram(PEER, b"frame")]
    assert beats.rooms == sends.rooms == [17]
    assert node.counters.datagrams_sent == 1


def test_what_an_application_gets_and_hears_is_traced_and_counted(make_node: MakeNode) -> None:
    node, beats, _, trace = make_node()
    sender = Member(NodeId(2), Incarnation(3))
    beats.caused = [
        Delivery(GroupId(7), sender, 5, [b"x", b"y"], ViewNumber(1), 42),
        SendConfirmed(GroupId(7), 0, 1),
        SendFailed(GroupId(7), 1, 2, None, "why"),
        GapReported(GroupId(7), sender, 2, 3),
        QueueGrew("pending", 3, 4, "bytes"),
    ]
    node.on_timer(99)
    assert node.take_output() == beats.caused
    kinds = [type(record) for record in trace.records]
    assert kinds == [MessageDelivered] * 2 + [MessagesStable, MessagesFailed, MessagesLost, QueueMeasured]
    assert [record.sequence for record in trace.records[:2]] == [5, 6]
    assert all((record.time_ns, record.node, record.incarnation) == (99, 1, 1) for record in trace.records)
    assert node.counters.messages_delivered == 2


def test_the_registry_builds_a_node_that_takes_the_common_commands() -> None:
    entry = PROTOCOLS["reference"]
    trace = MemoryTrace()
    node = entry.make_node(ME, {ME.node: PEER}, entry.make_settings({"window_frames": 5}), Random(1), trace)
    node.submit(0, JoinGroup(GroupId(7), Channel(7), [ME.node]))
    node.submit(0, SendMessages(GroupId(7), [b"x"]))
    assert deliveries(node.take_output())[0].payloads == [b"x"]
    assert entry.make_settings({"window_frames": 5}).window_frames == 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"windows": 5}, "windows: unknown setting; allowed: reliable, "),
        ({"window_frames": "x"}, "window_frames: Expected `int`"),
        ({"window_frames": 0}, "window_frames: 0; must be at least 1"),
    ],
)
def test_a_wrong_setting_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        PROTOCOLS["reference"].make_settings(values)
    assert str(caught.value).startswith(message)
