"""Stacks: messages go down through the layers of their group, effects come up, all others keep their place."""

import pytest

from vivum.core.errors import NotNowError, UsageError
from vivum.core.ids import Channel, Endpoint, GroupId, Incarnation, Member, NodeId, ViewNumber
from vivum.core.machine import NO_FRAMES, Command, Datagram, Delivery, Effect, InstallView
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.protocols.commands import JoinGroup, LeaveGroup, SendConfirmed, SendMessages
from vivum.protocols.layer import Layer
from vivum.wire.codec import Frame, seal_control
from vivum.wire.gate import Gate, domain_tag
from vivum.wire.kinds import Kind

ME = Member(NodeId(1), Incarnation(1))
PLAIN, LAYERED = GroupId(7), GroupId(8)
PEER = Endpoint("peer", 1)
DOMAIN = domain_tag("test")


class Transport:
    """Delivers at once what it is given."""

    kinds = frozenset({Kind.DATA})
    commands: frozenset[type[Command]] = frozenset({JoinGroup, LeaveGroup, SendMessages})
    has_data = False

    def __init__(self, name: str = "plain") -> None:
        self.transport = name
        self.effects: list[Effect] = []
        self.is_full = False

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        raise AssertionError

    def submit(self, now_ns: int, command: Command) -> None:
        if isinstance(command, SendMessages):
            if self.is_full:
                raise NotNowError("full")
            self.effects.append(Delivery(command.group, ME, 0, list(command.payloads), ViewNumber(1), now_ns))

    def on_timer(self, now_ns: int) -> None:
        pass

    def next_deadline_ns(self) -> int | None:
        return None

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        return []


class Stamp(Layer):
    """Puts a letter before each message on the way down, and behind it on the way up; counts what was accepted."""

    kinds = frozenset({Kind.SURVEY})

    def __init__(self, letter: bytes) -> None:
        super().__init__()
        self.letter = letter
        self.accepted = 0
        self.due_ns: int | None = None
        self.frames: list[bytes] = []
        self.views: list[int] = []

    def submit(self, now_ns: int, command: Command) -> None:
        assert isinstance(command, SendMessages)
        super().submit(now_ns, SendMessages(command.group, [self.letter + each for each in command.payloads]))
        self.accepted += len(command.payloads)

    def on_effect(self, now_ns: int, effect: Effect) -> None:
        if isinstance(effect, Delivery):
            payloads = [each + self.letter for each in effect.payloads]
            effect = Delivery(effect.group, effect.sender, 0, payloads, effect.view, effect.sent_ns)
        elif isinstance(effect, InstallView):
            self.views.append(effect.number)
        super().on_effect(now_ns, effect)

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        self.effects.append(SendConfirmed(self.group, 0, 1))

    def next_deadline_ns(self) -> int | None:
        return self.due_ns

    def on_timer(self, now_ns: int) -> None:
        self.due_ns = None
        self.effects.append(SendConfirmed(self.group, 1, 2))

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        made = [Datagram(PEER, each) for each in self.frames]
        self.frames.clear()
        return made


def make_node(*layers: Layer) -> tuple[Node, Transport]:
    counters, transport = Counters(), Transport()
    node = Node(ME, Gate(DOMAIN, counters, ME), [transport], counters)
    node.submit(0, JoinGroup(PLAIN, Channel(0), (), transport="plain"))
    node.submit(0, JoinGroup(LAYERED, Channel(0), (), transport="plain", layers=layers))
    return node, transport


def payloads(effects: list[Effect]) -> list[list[bytes]]:
    return [list(effect.payloads) for effect in effects if isinstance(effect, Delivery)]


def test_messages_pass_layers_from_the_top_down_and_from_the_bottom_up() -> None:
    node, _ = make_node(Stamp(b"l"), Stamp(b"u"))
    node.submit(1, SendMessages(LAYERED, [b"-"]))
    assert payloads(node.take_output()) == [[b"lu-lu"]]


def test_a_group_without_layers_is_not_touched_and_the_order_of_causes_holds() -> None:
    node, _ = make_node(Stamp(b"l"))
    node.submit(1, SendMessages(PLAIN, [b"1"]))
    node.submit(2, SendMessages(LAYERED, [b"2"]))
    node.submit(3, SendMessages(PLAIN, [b"3"]))
    assert payloads(node.take_output()) == [[b"1"], [b"l2l"], [b"3"]]


def test_what_the_transport_refuses_leaves_layers_as_they_were() -> None:
    layer = Stamp(b"l")
    node, transport = make_node(layer)
    transport.is_full = True
    with pytest.raises(NotNowError):
        node.submit(1, SendMessages(LAYERED, [b"x"]))
    assert layer.accepted == 0
    transport.is_full = False
    node.submit(2, SendMessages(LAYERED, [b"x"]))
    assert layer.accepted == 1


def test_a_view_of_many_groups_passes_the_layers_of_those_that_have_them() -> None:
    layer = Stamp(b"l")
    node, transport = make_node(layer)
    transport.effects.append(InstallView((5, 20), ViewNumber(3), (ME,)))
    node.on_timer(1)
    views = [effect for effect in node.take_output() if isinstance(effect, InstallView)]
    assert [view.groups for view in views] == [(5, 8, 9, 20), (8, 9)]
    assert layer.views == [3]


def test_layers_have_timers_frames_and_answers_of_their_own() -> None:
    lower, upper = Stamp(b"l"), Stamp(b"u")
    node, _ = make_node(lower, upper)
    lower.due_ns = 50
    lower.frames.append(b"order")
    node.submit(1, SendMessages(LAYERED, [b"x"]))
    assert node.next_deadline_ns() == 50
    assert Datagram(PEER, b"order") in node.take_output()
    node.on_timer(50)
    assert SendConfirmed(LAYERED, 1, 2) in node.take_output()
    assert node.next_deadline_ns() is None
    frame = seal_control(Kind.SURVEY, DOMAIN, 2, 1, LAYERED, 1, 0, 0, b"")
    node.on_datagrams(60, ((PEER, frame),))
    assert node.take_output(NO_FRAMES) == [SendConfirmed(LAYERED, 0, 1)]


def test_a_frame_for_a_group_without_such_a_layer_is_refused_and_counted() -> None:
    node, _ = make_node(Stamp(b"l"))
    node.on_datagrams(1, ((PEER, seal_control(Kind.SURVEY, DOMAIN, 2, 1, PLAIN, 1, 0, 0, b"")),))
    assert node.counters.frames_refused_kind == 1


def test_leaving_a_group_takes_its_stack_away_and_layers_may_come_again() -> None:
    layer = Stamp(b"l")
    node, _ = make_node(layer)
    node.submit(1, LeaveGroup(LAYERED))
    node.submit(2, SendMessages(LAYERED, [b"x"]))
    node.submit(3, JoinGroup(GroupId(9), Channel(0), (), transport="plain", layers=(layer,)))
    node.submit(4, SendMessages(GroupId(9), [b"y"]))
    assert payloads(node.take_output()) == [[b"x"], [b"lyl"]]


def test_an_unknown_transport_is_the_callers_fault() -> None:
    node, _ = make_node()
    with pytest.raises(UsageError, match="no transport 'lec'; it has plain"):
        node.submit(1, JoinGroup(GroupId(1), Channel(0), (), transport="lec"))
