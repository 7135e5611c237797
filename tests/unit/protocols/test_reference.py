"""The reference protocol, sentence by sentence of `docs/design/reference.md`."""

from itertools import pairwise
from typing import Any

import pytest

from duo import ALICE, ALICE_1, BOB, CAROL, GROUP, Duo, numbered, send_one_a_frame
from effects import datagrams, deliveries
from vivum.core.errors import LimitError
from vivum.core.ids import Channel
from vivum.core.limits import Limits
from vivum.core.machine import Priority
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.commands import (
    GapReported,
    QueueGrew,
    SendConfirmed,
    SendFailed,
    SendMessages,
)
from vivum.wire.kinds import kind_name

# On send.


def test_messages_arrive_in_order_and_at_home_at_once() -> None:
    duo = Duo()
    send_one_a_frame(duo, duo.a, numbered(100))
    assert duo.got(duo.a, ALICE) == numbered(100)
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == numbered(100)
    assert duo.told(duo.b, GapReported) == []


def test_messages_of_one_command_share_frames() -> None:
    duo = Duo()
    duo.send(duo.a, *numbered(100))
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == numbered(100)
    assert duo.counters(duo.b).frames_received == 1


def test_both_ways_are_independent_streams() -> None:
    duo = Duo()
    duo.send(duo.a, b"from alice")
    duo.send(duo.b, b"from bob")
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == [b"from alice"]
    assert duo.got(duo.a, BOB) == [b"from bob"]


def test_an_empty_message_is_a_message() -> None:
    duo = Duo()
    duo.send(duo.a, b"", b"x", b"")
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == [b"", b"x", b""]


def test_a_full_window_and_a_full_queue_refuse_and_change_nothing() -> None:
    duo = Duo(window_frames=4, pending_bytes_max=10_000)
    duo.drop_all()
    accepted = 4 + 9
    for _ in range(accepted):
        duo.send(duo.a, bytes(1000))
    with pytest.raises(LimitError, match="pending_bytes_max=10000: wait until some are sent"):
        duo.send(duo.a, bytes(1000))
    counters = duo.counters(duo.a)
    before = counters.as_dict()
    with pytest.raises(LimitError):
        duo.node(duo.a).submit(duo.pair.clock.now_ns, SendMessages(GROUP, [bytes(1000), b"small"]))
    assert duo.node(duo.a).take_output() == []
    assert counters.as_dict() == {**before, "messages_rejected": before["messages_rejected"] + 2}
    # Numbers go on as if nothing had been asked, and there is room again once Bob has answered.
    duo.drop_nothing()
    duo.pair.run_for(SECOND)
    duo.send(duo.a, b"next")
    duo.pair.run_for(SECOND)
    assert len(duo.got(duo.b, ALICE)) == accepted + 1
    assert duo.pair.deliveries[duo.a][-1].first_sequence == accepted


def test_a_queue_of_empty_messages_has_an_end_too() -> None:
    duo = Duo(window_frames=1, pending_bytes_max=10_000)
    duo.drop_all()
    duo.send(duo.a, b"in the window")
    duo.send(duo.a, *[b""] * 150)
    with pytest.raises(LimitError):
        duo.send(duo.a, *[b""] * 150)


def test_a_batch_over_the_limit_of_the_queue_is_refused_even_when_the_queue_is_empty() -> None:
    duo = Duo(pending_bytes_max=10_000)
    with pytest.raises(LimitError, match="send fewer at once"):
        duo.send(duo.a, *[bytes(1000)] * 20)
    assert duo.told(duo.a, QueueGrew) == []


def test_one_message_larger_than_the_queue_goes_alone() -> None:
    duo = Duo(pending_bytes_max=10_000)
    duo.send(duo.a, bytes(50_000))
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == [bytes(50_000)]


def test_a_message_over_the_limit_is_refused() -> None:
    duo = Duo(limits=Limits(message_bytes_max=5000))
    with pytest.raises(LimitError, match="message_bytes_max=5000"):
        duo.send(duo.a, b"fits", bytes(5001))
    duo.send(duo.a, bytes(5000))
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == [bytes(5000)]
    assert duo.counters(duo.a).messages_rejected == 2


def test_a_queue_tells_each_new_high() -> None:
    duo = Duo()
    for size in (10, 5, 20):
        duo.send(duo.a, bytes(size))
    depths = [event.depth for event in duo.told(duo.a, QueueGrew)]
    assert len(depths) == 2
    assert depths == sorted(depths)


# Loss.


@pytest.mark.parametrize("lost", [{0}, {3}, {3, 4}, {0, 2, 4, 6, 8}, set(range(9))])
def test_lost_frames_are_asked_for_and_delivered_in_order(lost: set[int]) -> None:
    duo = Duo()
    duo.drop_data(*lost)
    send_one_a_frame(duo, duo.a, numbered(10))
    duo.pair.run_for(50 * MILLISECOND)
    assert duo.got(duo.b, ALICE) == numbered(10)
    assert duo.counters(duo.b).naks_sent >= 1
    assert duo.counters(duo.b).repairs_received == len(lost)
    assert duo.told(duo.b, GapReported) == []


def test_a_frame_that_is_only_late_is_not_asked_for() -> None:
    duo = Duo()
    send_one_a_frame(duo, duo.a, numbered(2))
    first, second = (datagram.data for _, _, datagram in duo.pair._on_link)
    duo.pair._on_link.clear()
    bob, now_ns = duo.node(duo.b), duo.pair.clock.now_ns
    bob.on_datagrams(now_ns, [(duo.a, second)])
    bob.on_timer(now_ns + MILLISECOND // 2)
    bob.on_datagrams(now_ns + MILLISECOND // 2, [(duo.a, first)])
    payloads = [payload for delivery in deliveries(bob.take_output()) for payload in delivery.payloads]
    assert payloads == numbered(2)
    bob.on_timer(now_ns + 15 * MILLISECOND)
    assert bob.take_output() == []
    assert bob.counters.naks_sent == 0


def test_the_loss_of_the_last_frame_is_found_by_the_heartbeat() -> None:
    duo = Duo()
    duo.drop_data(9)
    send_one_a_frame(duo, duo.a, numbered(10))
    duo.pair.run_for(49 * MILLISECOND)
    assert duo.got(duo.b, ALICE) == numbered(9)
    duo.pair.run_for(10 * MILLISECOND)
    assert duo.got(duo.b, ALICE) == numbered(10)


def test_when_everything_is_lost_for_a_time_everything_comes_afterwards() -> None:
    duo = Duo()
    duo.drop_all()
    send_one_a_frame(duo, duo.a, numbered(200))
    duo.pair.run_for(2 * SECOND)
    assert duo.got(duo.b, ALICE) == []
    duo.drop_nothing()
    duo.pair.run_for(2 * SECOND)
    assert duo.got(duo.b, ALICE) == numbered(200)
    assert duo.told(duo.a, SendFailed) == []


@pytest.mark.parametrize("kind", ["ACK", "NAK", "HEARTBEAT", "RESENT"])
def test_the_loss_of_control_frames_for_a_time_does_no_harm(kind: str) -> None:
    duo = Duo()
    lossy = {"until": 1_500_000_000}
    duo.pair.drop = lambda _, datagram: (
        duo.pair.clock.now_ns < lossy["until"]
        and (kind_name(datagram.data) == kind or (kind_name(datagram.data) == "DATA" and datagram.data[24] % 3 == 0))
    )
    send_one_a_frame(duo, duo.a, numbered(30))
    duo.pair.run_for(3 * SECOND)
    assert duo.got(duo.b, ALICE) == numbered(30)
    assert sum(event.stop - event.first for event in duo.told(duo.a, SendConfirmed)) == 30


def test_a_frame_that_comes_twice_is_delivered_once() -> None:
    duo = Duo()
    duo.send(duo.a, b"once")
    (_, _, datagram) = duo.pair._on_link[0]
    for _ in range(3):
        duo.node(duo.b).on_datagrams(duo.pair.clock.now_ns, [(duo.a, datagram.data)])
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == [b"once"]
    assert duo.counters(duo.b).frames_duplicate == 3


def test_requests_double_their_distance_while_the_sender_is_silent() -> None:
    duo = Duo(give_up_after_ns=60 * SECOND)
    duo.drop_data(0)
    send_one_a_frame(duo, duo.a, numbered(2))
    duo.drop_kinds("RESENT", "HEARTBEAT", "ACK")
    duo.pair.run_for(10 * SECOND)
    naks = duo.counters(duo.b).naks_sent
    # 1 + 2 + 4 … 320 ms, then every 320 to 640 ms.
    assert 9 + 9.0 / 0.64 <= naks <= 9 + 10 / 0.32


def test_a_repair_goes_to_the_one_who_asked_alone() -> None:
    duo = Duo()
    seen = []
    duo.drop_data(0)
    lose = duo.pair.drop

    def watch(endpoint: Any, datagram: Any) -> bool:
        seen.append((kind_name(datagram.data), datagram.destination, datagram.priority))
        return lose(endpoint, datagram)

    duo.pair.drop = watch
    send_one_a_frame(duo, duo.a, numbered(2))
    duo.pair.run_for(20 * MILLISECOND)
    assert ("RESENT", duo.b, Priority.REPAIR) in seen
    assert ("DATA", Channel(GROUP), Priority.DATA) in seen
    assert ("NAK", duo.a, Priority.CONTROL) in seen


# Large messages.


def test_a_large_message_is_cut_and_joined() -> None:
    duo = Duo()
    large = bytes(range(256)) * 400
    duo.send(duo.a, b"before", large, b"after")
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == [b"before", large, b"after"]


@pytest.mark.parametrize("lost", [0, 1, 35, 71])
def test_a_large_message_survives_the_loss_of_any_fragment(lost: int) -> None:
    duo = Duo()
    duo.drop_data(lost)
    large = bytes(range(256)) * 400
    duo.send(duo.a, b"before", large, b"after")
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == [b"before", large, b"after"]
    assert duo.counters(duo.b).repairs_received == 1


def test_a_large_message_over_the_receivers_limit_is_reported_as_a_gap_even_if_it_is_the_last() -> None:
    duo = Duo()
    duo.limits = Limits(message_bytes_max=5000)
    duo.restart(duo.b, 2)
    duo.send(duo.a, b"before", bytes(6000))
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == [b"before"]
    assert duo.told(duo.b, GapReported) == [GapReported(GROUP, ALICE_1, 1, 2)]
    duo.send(duo.a, b"after")
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == [b"before", b"after"]
    assert len(duo.told(duo.b, GapReported)) == 1


# Stability and memory.


def test_frames_are_released_and_the_sender_told_when_everybody_has_them() -> None:
    duo = Duo()
    send_one_a_frame(duo, duo.a, numbered(100))
    stream = duo.node(duo.a)._protocols[0]._outgoing[GROUP]
    assert len(stream._frames) == 100
    duo.pair.run_for(SECOND)
    assert len(stream._frames) == 0
    confirmed = duo.told(duo.a, SendConfirmed)
    assert (confirmed[0].first, confirmed[-1].stop) == (0, 100)
    assert all(before.stop == after.first for before, after in pairwise(confirmed))
    assert duo.counters(duo.a).messages_stable == 100


def test_nothing_is_released_while_one_member_is_silent() -> None:
    duo = Duo(nodes=(ALICE, BOB, CAROL))
    duo.send(duo.a, b"x")
    duo.pair.run_for(2 * SECOND)
    assert duo.got(duo.b, ALICE) == [b"x"]
    assert duo.told(duo.a, SendConfirmed) == []


def test_an_idle_group_falls_silent() -> None:
    duo = Duo()
    duo.send(duo.a, b"x")
    duo.pair.run_for(10 * SECOND)
    for endpoint in (duo.a, duo.b):
        assert duo.node(endpoint).next_deadline_ns() is None
        assert duo.node(endpoint).take_output() == []


def test_frames_held_behind_a_gap_are_let_go_when_it_closes() -> None:
    duo = Duo()
    duo.drop_data(0)
    send_one_a_frame(duo, duo.a, numbered(50))
    duo.pair.run_for(MILLISECOND)
    (stream,) = duo.node(duo.b)._protocols[0]._incoming.values()
    assert len(stream._held) == 49
    duo.pair.run_for(SECOND)
    assert stream._held == {}


def test_frames_beyond_the_window_are_dropped_and_asked_for_later() -> None:
    duo = Duo()
    duo.settings = type(duo.settings)(window_frames=8)
    duo.restart(duo.b, 2)
    duo.drop_data(0)
    send_one_a_frame(duo, duo.a, numbered(40))
    duo.pair.run_for(SECOND)
    assert duo.counters(duo.b).frames_beyond_window > 0
    assert duo.got(duo.b, ALICE) == numbered(40)


# Pull.


def test_without_room_control_comes_and_data_stays() -> None:
    duo = Duo()
    send_one_a_frame(duo, duo.b, numbered(3))
    duo.pair.run_for(MILLISECOND)
    alice, now_ns = duo.node(duo.a), duo.pair.clock.now_ns
    alice.submit(now_ns, SendMessages(GROUP, numbered(5)))
    assert alice.has_data
    alice.on_timer(now_ns + SECOND)
    output = alice.take_output(room_bytes=0)
    assert [kind_name(datagram.data) for datagram in datagrams(output)] == ["ACK"]
    # The delivery at home and the events come all the same.
    assert deliveries(output)[0].payloads == numbered(5)
    assert alice.has_data
    output = alice.take_output(room_bytes=1)
    assert [kind_name(datagram.data) for datagram in datagrams(output)] == ["DATA"]
    assert not alice.has_data


def test_data_is_sealed_as_far_as_there_is_room() -> None:
    duo = Duo()
    alice = duo.node(duo.a)
    alice.submit(duo.pair.clock.now_ns, SendMessages(GROUP, [bytes(1000)] * 20))
    sizes = [len(datagram.data) for datagram in datagrams(alice.take_output(room_bytes=3000))]
    assert len(sizes) == 3
    assert sum(sizes[:-1]) < 3000 <= sum(sizes)


def test_control_goes_before_repairs_before_data() -> None:
    duo = Duo()
    duo.drop_data(0)
    send_one_a_frame(duo, duo.a, numbered(3))
    duo.drop_nothing()
    send_one_a_frame(duo, duo.b, numbered(3))
    duo.pair.run_for(MILLISECOND)
    bob, alice, now_ns = duo.node(duo.b), duo.node(duo.a), duo.pair.clock.now_ns
    bob.on_timer(now_ns + 3 * MILLISECOND)
    for datagram in datagrams(bob.take_output()):
        alice.on_datagrams(now_ns + 3 * MILLISECOND, [(duo.b, datagram.data)])
    alice.submit(now_ns + 3 * MILLISECOND, SendMessages(GROUP, [b"new"]))
    alice.on_timer(now_ns + 100 * MILLISECOND)
    kinds = [kind_name(datagram.data) for datagram in datagrams(alice.take_output())]
    assert kinds == ["ACK", "HEARTBEAT", "RESENT", "DATA"]
