"""The short way in and out of a node: the same messages, numbers and counts as by the way of all others."""

import pytest

from live_wire.wired import NO_CHANNEL, Wire
from vivum.core.errors import LimitError, NotNowError
from vivum.core.ids import GroupId
from vivum.observe.trace import MemoryTrace, MessageDelivered, MessageSent
from vivum.protocols.commands import GapReported, JoinGroup, SendMessages
from vivum.protocols.directory.client import AskAnew

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


def test_a_message_and_its_answer_take_the_short_way(wire: Wire) -> None:
    (here, first), (there, second) = wire.members.items()
    for source, sender, receiver in ((here, first, second), (there, second, first)) * 3:
        before, heard_before = sender.counters.as_dict(), receiver.counters.as_dict()
        (datagram,) = sender.node.send_now(wire.now_ns, SendMessages(GROUP, [b"x"]))
        counters = sender.counters
        assert counters.messages_accepted == before["messages_accepted"] + 1
        assert counters.datagrams_sent == before["datagrams_sent"] + 1
        assert counters.bytes_sent == before["bytes_sent"] + len(datagram.data)
        (own,) = sender.node.take_deliveries()
        assert (own.sender, own.payloads) == (sender.client.member, [b"x"])
        receiver.node.on_datagram(wire.now_ns, source, datagram.data)
        (heard,) = receiver.node.take_deliveries()
        assert (heard.sender, heard.first_sequence, heard.payloads) == (own.sender, own.first_sequence, [b"x"])
        assert receiver.counters.messages_delivered == heard_before["messages_delivered"] + 1
        assert not receiver.node.take_deliveries()
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
                second.node.on_datagram(wire.now_ns, here, datagram.data)
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
    assert not first.node.take_deliveries()


def test_a_command_of_another_protocol_or_kind_is_taken_as_by_submit(wire: Wire) -> None:
    (_, first), _ = wire.members.items()
    assert first.node.send_now(wire.now_ns, AskAnew()) == []
    assert first.node.send_now(wire.now_ns, JoinGroup(GroupId(6), NO_CHANNEL, ())) == []
    wire.advance(3_000_000_000)
    assert GroupId(6) in first.client.groups


def test_what_must_be_told_before_messages_is_told_before_them(wire: Wire) -> None:
    (here, first), (_, second) = wire.members.items()
    (datagram,) = first.node.send_now(wire.now_ns, SendMessages(GROUP, [b"x"]))
    second.node.on_datagram(wire.now_ns, here, datagram.data)
    assert first.client.member is not None
    second.qsm._output.events.append(GapReported(GROUP, first.client.member, 0, 1))
    assert not second.node.take_deliveries()
    output = second.node.take_output()
    assert len(output.deliveries) == len(output.events) == 1


def test_a_traced_node_tells_of_every_message(wire: Wire) -> None:
    (here, first), (_, second) = wire.members.items()
    trace = MemoryTrace()
    first.qsm.trace = second.node.trace = trace
    assert not first.node.send_now(wire.now_ns, SendMessages(GROUP, [b"x"]))
    (sent,) = [each for each in trace.records if isinstance(each, MessageSent)]
    (datagram,) = first.node.take_output().datagrams
    second.node.on_datagram(wire.now_ns, here, datagram.data)
    assert len(second.node.take_deliveries()) == 1
    (delivered,) = [each for each in trace.records if isinstance(each, MessageDelivered)]
    assert (delivered.sequence, delivered.digest) == (sent.sequence, sent.digest)
