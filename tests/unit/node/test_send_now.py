"""Sending and hearing before frames are made: the same messages, numbers and counts as otherwise."""

import pytest

from effects import MemoryTrace, datagrams, deliveries
from live_wire.wired import NO_CHANNEL, Wire
from vivum.core.errors import LimitError, NotNowError
from vivum.core.ids import GroupId
from vivum.core.machine import NO_FRAMES, Delivery, Priority
from vivum.observe.trace import MessageDelivered, MessageSent
from vivum.protocols.commands import JoinGroup, SendMessages
from vivum.protocols.directory.client import AskAnew
from vivum.protocols.qsm.machine import SEND_NOW_BYTES

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


def test_of_many_messages_only_so_much_leaves_before_control_frames(wire: Wire) -> None:
    (_, first), _ = wire.members.items()
    sent = first.node.send_now(wire.now_ns, SendMessages(GROUP, [bytes(1000)] * 100))
    frame_bytes_max = first.qsm.settings.frame_bytes_max
    assert SEND_NOW_BYTES <= sum(len(each.data) for each in sent) <= SEND_NOW_BYTES + frame_bytes_max
    assert first.node.has_data


def test_a_traced_node_tells_of_every_message(wire: Wire) -> None:
    (here, first), (_, second) = wire.members.items()
    trace = MemoryTrace()
    first.qsm.trace = second.node.trace = trace
    (datagram,) = first.node.send_now(wire.now_ns, SendMessages(GROUP, [b"x"]))
    (sent,) = [each for each in trace.records if isinstance(each, MessageSent)]
    second.node.on_datagrams(wire.now_ns, [(here, datagram.data)])
    assert len(deliveries(second.node.take_output(NO_FRAMES))) == 1
    (delivered,) = [each for each in trace.records if isinstance(each, MessageDelivered)]
    assert (delivered.sequence, delivered.digest) == (sent.sequence, sent.digest)
