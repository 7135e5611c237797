"""Stacks: messages go down through the layers of their group, effects come up, all others keep their place."""

from zlib import crc32

import pytest
from msgspec.structs import replace

from effects import MemoryTrace
from vivum.core.errors import NotNowError, UsageError
from vivum.core.ids import Channel, Endpoint, GroupId, Incarnation, Member, NodeId, ViewNumber
from vivum.core.machine import NO_FRAMES, Command, Datagram, Delivery, Effect, InstallView
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.observe.trace import KeyDelivered, MessageDelivered, MessageSent, MessagesSkipped, MessagesStable
from vivum.protocols.commands import GroupsLeft, JoinGroup, LeaveGroup, LifeEnded, SendConfirmed, SendMessages
from vivum.protocols.keyed.keys import PLAIN_HEAD, heads_of
from vivum.protocols.keyed.layer import KeyedLayer
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
        self.taken: dict[GroupId, int] = {}

    def next_sequence(self, group: GroupId) -> int:
        return self.taken.get(group, 0)

    def view_of(self, group: GroupId) -> ViewNumber:
        return ViewNumber(1)

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        raise AssertionError

    def submit(self, now_ns: int, command: Command) -> None:
        if isinstance(command, SendMessages):
            if self.is_full:
                raise NotNowError("full")
            first = self.next_sequence(command.group)
            self.taken[command.group] = first + len(command.payloads)
            self.effects.append(Delivery(command.group, ME, first, list(command.payloads), ViewNumber(1), now_ns))

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
        self.held: list[bytes] = []

    def submit(self, now_ns: int, command: Command) -> None:
        assert isinstance(command, SendMessages)
        super().submit(now_ns, SendMessages(command.group, [self.letter + each for each in command.payloads]))
        self.accepted += len(command.payloads)

    def on_effect(self, now_ns: int, effect: Effect) -> None:
        if isinstance(effect, Delivery):
            payloads = [each + self.letter for each in effect.payloads]
            effect = replace(effect, payloads=payloads)
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
        if self.held:
            self.effects.append(Delivery(self.group, ME, 9, self.held, ViewNumber(1), 0))

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


class Blind(Layer):
    """Does not look at views."""

    looks_at_views = False

    def on_effect(self, now_ns: int, effect: Effect) -> None:
        assert not isinstance(effect, InstallView)
        super().on_effect(now_ns, effect)


def test_a_view_stays_whole_where_no_layer_looks_at_views() -> None:
    node, transport = make_node(Blind())
    install = InstallView((5, 20), ViewNumber(3), (ME,))
    transport.effects.append(install)
    node.on_timer(1)
    assert [effect for effect in node.take_output() if isinstance(effect, InstallView)] == [install]


def test_a_view_passes_all_layers_of_a_group_if_one_of_them_looks() -> None:
    blind, layer = Blind(), Stamp(b"l")
    blind.on_effect = Layer.on_effect.__get__(blind)  # type: ignore[method-assign]
    node, transport = make_node(blind, layer)
    transport.effects.append(InstallView((5, 20), ViewNumber(3), (ME,)))
    node.on_timer(1)
    assert layer.views == [3]
    node.submit(2, LeaveGroup(LAYERED))
    transport.effects.append(GroupsLeft((LAYERED, LAYERED + 1)))
    transport.effects.append(whole := InstallView((5, 20), ViewNumber(4), (ME,)))
    node.on_timer(3)
    assert whole in node.take_output()


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


def test_what_leaves_the_top_of_the_stack_is_traced_and_counted_and_nothing_below_it() -> None:
    lower, upper = Stamp(b"l"), Stamp(b"u")
    node, _ = make_node(lower, upper)
    node.trace = trace = MemoryTrace()
    node.submit(1, SendMessages(LAYERED, [b"-"]))
    node.send_now(2, SendMessages(LAYERED, [b"+"]))
    node.submit(3, SendMessages(PLAIN, [b"p"]))
    sent = [(each.group, each.sequence, each.digest) for each in trace.records if isinstance(each, MessageSent)]
    assert sent == [(LAYERED, 0, crc32(b"-")), (LAYERED, 1, crc32(b"+")), (PLAIN, 0, crc32(b"p"))]
    given = [(each.group, each.sequence, each.digest) for each in trace.records if isinstance(each, MessageDelivered)]
    assert given == [(LAYERED, 0, crc32(b"lu-lu")), (LAYERED, 1, crc32(b"lu+lu")), (PLAIN, 0, crc32(b"p"))]
    assert (node.counters.messages_accepted, node.counters.messages_delivered) == (3, 3)


def test_what_layers_cause_by_themselves_is_traced_and_counted() -> None:
    lower, upper = Stamp(b"l"), Stamp(b"u")
    node, _ = make_node(lower, upper)
    lower.held = [b"late"]
    lower.due_ns = 50
    node.submit(1, SendMessages(LAYERED, [b"x"]))
    node.trace = trace = MemoryTrace()
    node.on_timer(50)
    node.on_datagrams(60, ((PEER, seal_control(Kind.SURVEY, DOMAIN, 2, 1, LAYERED, 1, 0, 0, b"")),))
    assert [each for each in trace.records if isinstance(each, MessagesStable)] == [
        MessagesStable(50, *ME, LAYERED, 1, 2),  # The lower one's, then the upper one's.
        MessagesStable(50, *ME, LAYERED, 1, 2),
        MessagesStable(60, *ME, LAYERED, 0, 1),
    ]
    (given,) = [each for each in trace.records if isinstance(each, MessageDelivered)]
    assert (given.time_ns, given.digest) == (50, crc32(b"lateu"))
    assert node.counters.messages_delivered == 2


def test_a_refused_message_is_counted_once_and_not_traced_whichever_way_it_came() -> None:
    node, transport = make_node(Stamp(b"l"))
    node.trace = trace = MemoryTrace()
    transport.is_full = True
    for group in (PLAIN, LAYERED):
        with pytest.raises(NotNowError):
            node.submit(1, SendMessages(group, [b"x", b"y"]))
        with pytest.raises(NotNowError):
            node.send_now(1, SendMessages(group, [b"x"]))
    assert (node.counters.messages_rejected, node.counters.messages_accepted) == (6, 0)
    assert trace.records == []


def test_a_keyed_group_traces_keys_and_repetitions_above_its_layer() -> None:
    node, _ = make_node(KeyedLayer())
    node.trace = trace = MemoryTrace()
    heads = heads_of(bytes(16), 1, 0, 2)
    node.submit(1, SendMessages(LAYERED, [b"a", b"b"], heads=heads))
    node.submit(2, SendMessages(LAYERED, [b"b", b"c"], heads=[heads[1], PLAIN_HEAD]))
    sent = [each.digest for each in trace.records if isinstance(each, MessageSent)]
    given = {each.sequence: each.digest for each in trace.records if isinstance(each, MessageDelivered)}
    assert sent == [crc32(each) for each in (b"a", b"b", b"b", b"c")]
    assert given == {0: crc32(b"a"), 1: crc32(b"b"), 3: crc32(b"c")}
    keys = [each for each in trace.records if isinstance(each, KeyDelivered)]
    assert [each.sequence for each in keys] == [0, 1]
    assert len({each.key for each in keys}) == 2
    assert [each for each in trace.records if isinstance(each, MessagesSkipped)] == [
        MessagesSkipped(2, *ME, LAYERED, *ME, 2, 3)
    ]
    assert node.counters.messages_delivered == 3


def test_a_frame_for_a_group_without_such_a_layer_is_refused_and_counted() -> None:
    node, _ = make_node(Stamp(b"l"))
    node.on_datagrams(1, ((PEER, seal_control(Kind.SURVEY, DOMAIN, 2, 1, PLAIN, 1, 0, 0, b"")),))
    assert node.counters.frames_refused_kind == 1


def test_leaving_a_group_takes_its_stack_away_and_layers_may_come_again() -> None:
    layer = Stamp(b"l")
    node, transport = make_node(layer)
    node.submit(1, LeaveGroup(LAYERED))
    transport.effects.append(GroupsLeft((LAYERED, LAYERED + 1)))
    node.on_timer(1)
    node.submit(2, SendMessages(LAYERED, [b"x"]))
    node.submit(3, JoinGroup(GroupId(9), Channel(0), (), transport="plain", layers=(layer,)))
    node.submit(4, SendMessages(GroupId(9), [b"y"]))
    assert payloads(node.take_output()) == [[b"x"], [b"lyl"]]


@pytest.mark.parametrize("over", [GroupsLeft((5, 20)), LifeEnded(ME)])
def test_what_a_group_delivers_until_it_is_left_passes_its_layers(over: Effect) -> None:
    node, transport = make_node(Stamp(b"l"))
    node.submit(1, LeaveGroup(LAYERED))
    late = Delivery(LAYERED, ME, 0, [b"late"], ViewNumber(1), 0)
    transport.effects += [late, over, late]
    node.on_timer(2)
    assert payloads(node.take_output()) == [[b"latel"], [b"late"]]


def test_a_group_that_is_entered_again_before_it_was_left_keeps_its_layers() -> None:
    layer = Stamp(b"l")
    node, transport = make_node(layer)
    node.submit(1, LeaveGroup(LAYERED))
    node.submit(2, JoinGroup(LAYERED, Channel(0), (), transport="plain", layers=(layer,)))
    transport.effects += [GroupsLeft((LAYERED, LAYERED + 1)), Delivery(LAYERED, ME, 0, [b"new"], ViewNumber(1), 0)]
    node.on_timer(3)
    assert payloads(node.take_output()) == [[b"newl"]]


def test_an_unknown_transport_is_the_callers_fault() -> None:
    node, _ = make_node()
    with pytest.raises(UsageError, match="no transport 'lec'; it has plain"):
        node.submit(1, JoinGroup(GroupId(1), Channel(0), (), transport="lec"))
