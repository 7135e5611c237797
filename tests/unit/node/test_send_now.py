"""Sending and hearing before frames are made: the same messages, numbers and counts as otherwise."""

from collections.abc import Sequence
from functools import partial
from random import Random

import pytest

from effects import MemoryTrace, datagrams, deliveries
from live_wire.wired import NO_CHANNEL, Wire
from vivum.core.errors import LimitError, NotNowError
from vivum.core.ids import Endpoint, GroupId
from vivum.core.limits import Limits
from vivum.core.machine import NO_FRAMES, Datagram, Delivery, Priority
from vivum.observe.trace import MessageDelivered, MessageSent
from vivum.protocols.commands import JoinGroup, SendMessages
from vivum.protocols.directory.client import AskAnew
from vivum.protocols.qsm.send.sender import SEND_NOW_BYTES

GROUP = GroupId(5)


@pytest.fixture
def wire() -> Wire:
    """Two nodes that have exchanged a message each."""
    made = Wire(2, GROUP)
    for parts in made.members.values():
        # Not so small that what follows would be the most that ever waited, of which is told.
        parts.node.submit(made.now_ns, SendMessages(GROUP, [bytes(100)]))
    made.advance(1_000_000_000)
    return made


def test_a_message_and_its_answer_leave_and_are_heard_before_frames_are_made(wire: Wire) -> None:
    (here, first), (there, second) = wire.members.items()
    for source, sender, receiver in ((here, first, second), (there, second, first)) * 3:
        before, heard_before = sender.counters.as_dict(), receiver.counters.as_dict()
        (datagram,) = sender.node.send_now(wire.now_ns, SendMessages(GROUP, [b"x"]))
        counters = sender.counters
        assert counters.messages_accepted == before["messages_accepted"] + 1
        assert counters.datagrams_sent == before["datagrams_sent"] + 1
        assert counters.bytes_sent == before["bytes_sent"] + len(datagram.data)
        (own,) = deliveries(sender.node.take_output(NO_FRAMES))
        assert (own.sender, own.payloads) == (sender.client.member, [b"x"])
        receiver.node.on_datagrams(wire.now_ns, [(source, datagram.data)])
        (heard,) = receiver.node.take_output(NO_FRAMES)
        assert isinstance(heard, Delivery)
        assert (heard.sender, heard.first_sequence, heard.payloads) == (own.sender, own.first_sequence, [b"x"])
        assert receiver.counters.messages_delivered == heard_before["messages_delivered"] + 1
        assert receiver.node.take_output(NO_FRAMES) == []
        assert receiver.counters.datagrams_sent == heard_before["datagrams_sent"]
    wire.advance(1_000_000_000)
    for parts in (first, second):
        assert parts.counters.messages_stable == parts.counters.messages_accepted == 4


@pytest.mark.parametrize("seed", range(5))
def test_a_node_takes_as_much_as_it_says_that_it_has_room_for(wire: Wire, seed: int) -> None:
    random, node = Random(seed), next(iter(wire.members.values())).node
    assert node.room_bytes(GroupId(99)) == 0
    is_full = False
    for _ in range(200):
        room = node.room_bytes(GROUP)
        if room:
            node.submit(
                wire.now_ns, SendMessages(GROUP, [bytes(min(room, random.choice((1, 60_000, room // 2, room))))])
            )
        else:
            is_full = True
            with pytest.raises(NotNowError):
                node.submit(wire.now_ns, SendMessages(GROUP, [b"x"]))
            wire.advance(100_000_000)
    assert is_full


@pytest.mark.parametrize("transport", ["qsm", "unrepaired"])
def test_a_message_as_large_as_the_room_that_a_node_tells_is_not_over_its_limit(transport: str) -> None:
    wire = Wire(2, GROUP, limits=Limits(message_bytes_max=1000))
    node = next(iter(wire.members.values())).node
    node.submit(wire.now_ns, JoinGroup(GROUP, NO_CHANNEL, (), transport=transport))
    node.submit(wire.now_ns, SendMessages(GROUP, [b"first"]))
    wire.advance(1_000_000_000)
    room = node.room_bytes(GROUP)
    assert room > 0
    node.submit(wire.now_ns, SendMessages(GROUP, [bytes(room)]))


def test_messages_by_both_ways_are_numbered_and_delivered_in_their_order(wire: Wire) -> None:
    (here, first), (there, second) = wire.members.items()
    wire.delivered[there].clear()
    for number in range(20):
        command = SendMessages(GROUP, [b"%d" % number] * (2 if number % 5 == 4 else 1))
        if number % 3 == 2:
            first.node.submit(wire.now_ns, command)
        else:
            for datagram in first.node.send_now(wire.now_ns, command):
                second.node.on_datagrams(wire.now_ns, [(here, datagram.data)])
        if number % 4 == 3:
            wire.settle()
    wire.advance(1_000_000_000)
    heard = [
        (each.first_sequence + at, text) for each in wire.delivered[there] for at, text in enumerate(each.payloads)
    ]
    expected = [b"%d" % number for number in range(20) for _ in range(2 if number % 5 == 4 else 1)]
    assert heard == [(1 + number, text) for number, text in enumerate(expected)]


def test_what_cannot_be_sent_is_refused_as_by_submit_and_nothing_changed(wire: Wire) -> None:
    (_, first), _ = wire.members.items()
    before = first.counters.as_dict()
    with pytest.raises(NotNowError, match="is not entered yet"):
        first.node.send_now(wire.now_ns, SendMessages(GroupId(6), [b"x"]))
    with pytest.raises(LimitError, match="over message_bytes_max"):
        first.node.send_now(wire.now_ns, SendMessages(GROUP, [bytes(first.qsm.limits.message_bytes_max + 1)]))
    with pytest.raises(TypeError, match="must be bytes"):
        first.node.send_now(wire.now_ns, SendMessages(GROUP, ["text"]))  # type: ignore[list-item]
    after = first.counters.as_dict()
    assert after["messages_rejected"] == before["messages_rejected"] + 2
    assert first.node.take_output(NO_FRAMES) == []


def test_a_command_of_another_protocol_or_kind_is_taken_as_by_submit(wire: Wire) -> None:
    (_, first), _ = wire.members.items()
    assert first.node.send_now(wire.now_ns, AskAnew()) == []
    assert first.node.send_now(wire.now_ns, JoinGroup(GroupId(6), NO_CHANNEL, ())) == []
    wire.advance(3_000_000_000)
    assert GroupId(6) in first.client.groups


def test_what_is_sent_behind_messages_that_wait_goes_into_their_frame(wire: Wire) -> None:
    (here, first), (_, second) = wire.members.items()
    first.node.submit(wire.now_ns, SendMessages(GROUP, [b"a"]))
    assert first.node.send_now(wire.now_ns, SendMessages(GROUP, [b"b"])) == []
    own = deliveries(first.node.take_output(NO_FRAMES))
    assert [each.payloads for each in own] == [[b"a"], [b"b"]]
    frames = [each for each in datagrams(first.node.take_output()) if each.priority is Priority.DATA]
    assert len(frames) == 1
    second.node.on_datagrams(wire.now_ns, [(here, frames[0].data)])
    (heard,) = deliveries(second.node.take_output(NO_FRAMES))
    assert heard.payloads == [b"a", b"b"]


def test_frames_are_the_same_to_the_byte_as_those_of_waiting_messages() -> None:
    random = Random(7)
    at_once, waiting = wires = Wire(2, GROUP), Wire(2, GROUP)
    frames: dict[Wire, list[bytes]] = {wire: [] for wire in wires}
    left_at_once = 0

    def recorded(wire: Wire, sent: Sequence[tuple[Endpoint, Datagram]]) -> Sequence[tuple[Endpoint, Datagram]]:
        frames[wire] += [datagram.data for _, datagram in sent if datagram.priority is Priority.DATA]
        return sent

    for wire in wires:
        wire.fate = partial(recorded, wire)
    for _ in range(300):
        size, count = random.choice(((0, 1), (1, 1), (100, 1), (100, 3), (1400, 1), (1450, 1), (100, 40)))
        command = SendMessages(GROUP, [random.randbytes(size) for _ in range(count)])
        (here, sender), (_, receiver) = at_once.members.items()
        for datagram in sender.node.send_now(at_once.now_ns, command):
            left_at_once += 1
            frames[at_once].append(datagram.data)
            receiver.node.on_datagrams(at_once.now_ns, [(here, datagram.data)])
        next(iter(waiting.members.values())).node.submit(waiting.now_ns, command)
        pause_ns = random.choice((0, 100_000, 5_000_000))
        for wire in wires:
            wire.advance(pause_ns)
    for wire in wires:
        wire.advance(1_000_000_000)
    assert frames[at_once] == frames[waiting]
    assert left_at_once > 150
    kept = [[(each.qsm.memory(), each.counters.messages_stable) for each in wire.members.values()] for wire in wires]
    assert kept[0] == kept[1]


def test_many_messages_wait_for_control_frames(wire: Wire) -> None:
    (_, first), _ = wire.members.items()
    assert first.node.send_now(wire.now_ns, SendMessages(GROUP, [bytes(SEND_NOW_BYTES - 1)])) == []
    assert first.node.has_data


def test_a_traced_node_tells_of_every_message(wire: Wire) -> None:
    (here, first), (_, second) = wire.members.items()
    trace = MemoryTrace()
    first.node.trace = second.node.trace = trace
    (datagram,) = first.node.send_now(wire.now_ns, SendMessages(GROUP, [b"x"]))
    (sent,) = [each for each in trace.records if isinstance(each, MessageSent)]
    second.node.on_datagrams(wire.now_ns, [(here, datagram.data)])
    assert len(deliveries(second.node.take_output(NO_FRAMES))) == 1
    delivered = [each for each in trace.records if isinstance(each, MessageDelivered)]
    assert [each.node for each in delivered] == [first.client.member.node, second.client.member.node]
    assert {(each.sequence, each.view, each.digest) for each in delivered} == {(sent.sequence, sent.view, sent.digest)}
