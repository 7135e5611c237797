"""Best effort: in order, nothing twice, nothing asked for; gaps are told, and nobody is waited for."""

from collections.abc import Callable, Iterable
from random import Random

import pytest

from live_wire.wired import DOMAIN, NO_CHANNEL, Wire
from vivum.core.errors import LimitError, NotNowError
from vivum.core.ids import Endpoint, GroupId
from vivum.core.machine import Datagram
from vivum.core.time import SECOND
from vivum.protocols.commands import GapReported, JoinGroup, SendConfirmed, SendMessages
from vivum.wire.codec import FrameBuilder, split
from vivum.wire.kinds import Kind

GROUP = GroupId(5)
Sent = list[tuple[Endpoint, Datagram]]


def is_message(datagram: Datagram) -> bool:
    return split(datagram.data)[0].kind is Kind.UNREPAIRED


def only_messages(change: Callable[[Sent], Sent]) -> Callable[[Sent], Iterable[tuple[Endpoint, Datagram]]]:
    """Let something happen to frames of messages, and nothing to others."""

    def fate(sent: Sent) -> Sent:
        return [each for each in sent if not is_message(each[1])] + change([e for e in sent if is_message(e[1])])

    return fate


def begin() -> tuple[Wire, Endpoint, Endpoint]:
    wire = Wire(2, GROUP)
    for parts in wire.members.values():
        parts.node.submit(wire.now_ns, JoinGroup(GROUP, NO_CHANNEL, (), transport="unrepaired"))
    sender, receiver = wire.members
    return wire, sender, receiver


def send(wire: Wire, sender: Endpoint, payloads: list[bytes]) -> None:
    wire.members[sender].node.submit(wire.now_ns, SendMessages(GROUP, payloads))
    wire.settle()


def got(wire: Wire, receiver: Endpoint) -> list[tuple[int, bytes]]:
    return [
        (run.first_sequence + index, payload)
        for run in wire.delivered[receiver]
        for index, payload in enumerate(run.payloads)
    ]


def test_messages_arrive_in_order_and_are_confirmed_when_they_have_left() -> None:
    wire, sender, receiver = begin()
    send(wire, sender, [b"a", b"b"])
    send(wire, sender, [b"c"])
    assert got(wire, receiver) == [(0, b"a"), (1, b"b"), (2, b"c")] == got(wire, sender)
    confirmed = [each for each in wire.events[sender] if isinstance(each, SendConfirmed)]
    assert confirmed == [SendConfirmed(GROUP, 0, 2), SendConfirmed(GROUP, 2, 3)]


def test_a_lost_frame_is_not_asked_for_and_its_messages_are_told_as_a_gap() -> None:
    wire, sender, receiver = begin()
    send(wire, sender, [b"0"])
    wire.fate = only_messages(lambda _: [])
    send(wire, sender, [b"1", b"2"])
    wire.fate = lambda sent: sent
    before = wire.members[sender].counters.repairs_sent
    send(wire, sender, [b"3"])
    wire.advance(2 * SECOND)
    assert got(wire, receiver) == [(0, b"0"), (3, b"3")]
    gaps = [each for each in wire.events[receiver] if isinstance(each, GapReported)]
    assert [(each.first, each.stop) for each in gaps] == [(1, 3)]
    assert wire.members[sender].counters.repairs_sent == before


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_wire_does_nothing_comes_twice_late_or_changed(seed: int) -> None:
    rng = Random(seed)
    wire, sender, receiver = begin()
    held: Sent = []

    def rough(sent: Sent) -> Sent:
        """Lose some, repeat some, and hold some back until later."""
        held.extend(sent)
        out: Sent = []
        rng.shuffle(held)
        for each in held[: rng.randrange(len(held) + 1)]:
            held.remove(each)
            out += [each] * rng.choice([0, 1, 1, 1, 2])
        return out

    wire.fate = only_messages(rough)
    payloads = [rng.randbytes(rng.choice([3, 700, 4000])) for _ in range(60)]
    for start in range(0, 60, 5):
        send(wire, sender, payloads[start : start + 5])
    found = got(wire, receiver)
    numbers = [number for number, _ in found]
    assert numbers == sorted(set(numbers))
    assert all(payloads[number] == payload for number, payload in found)
    assert len(found) > 5


def test_a_group_with_much_to_send_does_not_starve_another() -> None:
    wire, sender, receiver = begin()
    other = GroupId(6)
    for parts in wire.members.values():
        parts.node.submit(wire.now_ns, JoinGroup(other, NO_CHANNEL, (), transport="unrepaired"))
    wire.advance(2 * SECOND)
    node = wire.members[sender].node
    node.submit(wire.now_ns, SendMessages(GROUP, [bytes(1000)] * 50))
    node.submit(wire.now_ns, SendMessages(other, [b"small"]))
    wire.settle()
    order = [run.group for run in wire.delivered[receiver] for _ in run.payloads]
    assert order.count(GROUP) == 50
    assert order.index(other) < 5


def test_a_large_message_of_which_a_part_is_lost_is_passed_over_and_told_with_its_last_part() -> None:
    wire, sender, receiver = begin()
    send(wire, sender, [b"0"])
    seen = 0

    def lose_second(sent: Sent) -> Sent:
        nonlocal seen
        kept = []
        for each in sent:
            seen += 1
            if seen != 2:
                kept.append(each)
        return kept

    wire.fate = only_messages(lose_second)
    send(wire, sender, [bytes(10_000)])
    gaps = [each for each in wire.events[receiver] if isinstance(each, GapReported)]
    assert [(each.first, each.stop) for each in gaps] == [(1, 2)]
    wire.fate = lambda sent: sent
    send(wire, sender, [b"next", bytes(10_000)])
    assert got(wire, receiver) == [(0, b"0"), (2, b"next"), (3, bytes(10_000))]
    assert wire.events[receiver].count(gaps[0]) == 1
    assert [each for each in wire.events[receiver] if isinstance(each, GapReported)] == gaps


def test_who_first_hears_the_middle_of_a_message_is_told_of_no_gap() -> None:
    wire, sender, receiver = begin()
    lost: Sent = []

    def lose_first(sent: Sent) -> Sent:
        if sent and not lost:
            lost.append(sent.pop(0))
        return sent

    wire.fate = only_messages(lose_first)
    send(wire, sender, [bytes(10_000)])
    send(wire, sender, [b"next"])
    assert got(wire, receiver) == [(1, b"next")]
    assert not [each for each in wire.events[receiver] if isinstance(each, GapReported)]


def test_a_stranger_is_refused_and_counted() -> None:
    wire, sender, receiver = begin()
    caught: Sent = []

    def catch(sent: Sent) -> Sent:
        caught.extend(sent)
        return []

    wire.fate = only_messages(catch)
    send(wire, sender, [b"forged"])
    parts = wire.members[receiver]
    parts.client.endpoints.pop(next(node for node, place in parts.client.endpoints.items() if place == sender))
    refused = parts.counters.frames_refused_state
    parts.node.on_datagrams(wire.now_ns, [(sender, caught[0][1].data)])
    assert parts.counters.frames_refused_state == refused + 1
    assert got(wire, receiver) == []


def test_limits_are_told_before_anything_is_accepted() -> None:
    wire, sender, _ = begin()
    parts = wire.members[sender]
    largest = parts.qsm.limits.message_bytes_max
    with pytest.raises(LimitError, match="message_bytes_max"):
        parts.node.submit(wire.now_ns, SendMessages(GROUP, [bytes(largest + 1)]))
    with pytest.raises(NotNowError, match="not entered"):
        parts.node.submit(wire.now_ns, SendMessages(GroupId(99), [b"x"]))
    parts.node.submit(wire.now_ns, SendMessages(GROUP, [bytes(1 << 20)] * 4))
    with pytest.raises(NotNowError, match="waiting_bytes_max"):
        parts.node.submit(wire.now_ns, SendMessages(GROUP, [b"one too many"]))


def test_a_frame_from_elsewhere_than_its_sender_mutes_nobody() -> None:
    """F7: one frame with a number near 2**64 made all later ones late."""
    wire, sender, receiver = begin()
    send(wire, sender, [b"a"])
    life = wire.members[sender].client.member
    assert life is not None
    ((region, config),) = wire.members[sender].client.regions.items()
    builder = FrameBuilder(1400)
    builder.append(GROUP, 1 << 62, b"forged")
    forged = builder.seal(Kind.UNREPAIRED, DOMAIN, *life, region, config.view, (1 << 64) - 2, wire.now_ns)
    wire.members[receiver].node.on_datagrams(wire.now_ns, ((Endpoint("6.6.6.6", 666), forged),))
    send(wire, sender, [b"b"])
    assert got(wire, receiver) == [(0, b"a"), (1, b"b")]
