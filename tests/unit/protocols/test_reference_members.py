"""The reference protocol when members fall silent, die, come back, join and leave (`docs/design/reference.md`)."""

import pytest

from duo import ALICE, ALICE_1, BOB, CAROL, GROUP, Duo, numbered, send_one_a_frame
from effects import datagrams, deliveries
from vivum.core.errors import UsageError
from vivum.core.ids import Channel, GroupId, Member, NodeId
from vivum.core.machine import ChannelClosed, ChannelOpened
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.commands import (
    GapReported,
    JoinGroup,
    LeaveGroup,
    SendConfirmed,
    SendFailed,
    SendMessages,
)

# Silence.


def test_a_silent_member_is_dropped_and_the_sender_told_which_messages_it_may_lack() -> None:
    duo = Duo()
    send_one_a_frame(duo, duo.a, numbered(10))
    duo.pair.run_for(SECOND)
    duo.drop_all()
    send_one_a_frame(duo, duo.a, numbered(5, 10))
    duo.pair.run_for(2900 * MILLISECOND)
    assert duo.told(duo.a, SendFailed) == []
    duo.pair.run_for(SECOND)
    (failed,) = duo.told(duo.a, SendFailed)
    assert (failed.first, failed.stop, failed.receiver) == (10, 15, BOB)
    assert "node 2" in failed.cause
    assert duo.counters(duo.a).members_dropped == 1
    # Nobody is waited for, so nothing is kept and the sender goes on.
    assert len(duo.node(duo.a)._protocols[0]._outgoing[GROUP]._frames) == 0


def test_what_is_sent_while_a_member_is_not_waited_for_is_reported_as_failed_there_too() -> None:
    duo = Duo()
    duo.drop_all()
    duo.send(duo.a, b"0")
    duo.pair.run_for(4 * SECOND)
    send_one_a_frame(duo, duo.a, numbered(3, 1))
    duo.pair.run_for(4 * SECOND)
    failed = [(event.first, event.stop, event.receiver) for event in duo.told(duo.a, SendFailed)]
    # Each message once: the one that it was dropped for, and those after.
    assert failed == [(0, 1, BOB), (1, 4, BOB)]
    assert duo.counters(duo.a).messages_failed == 4
    assert duo.told(duo.a, SendConfirmed)[-1].stop == 4


def test_a_member_that_asks_is_not_silent_however_slow_it_is() -> None:
    duo = Duo()
    duo.drop_data(0)
    send_one_a_frame(duo, duo.a, numbered(2))
    duo.drop_kinds("RESENT")
    duo.pair.run_for(20 * SECOND)
    assert duo.told(duo.a, SendFailed) == []


def test_a_dropped_member_that_speaks_again_hears_of_its_gap_and_goes_on() -> None:
    duo = Duo()
    duo.send(duo.a, b"0")
    duo.pair.run_for(SECOND)
    duo.drop_all()
    send_one_a_frame(duo, duo.a, numbered(5, 1))
    duo.pair.run_for(5 * SECOND)
    duo.drop_nothing()
    duo.pair.run_for(2 * SECOND)
    assert duo.told(duo.b, GapReported) == [GapReported(GROUP, ALICE_1, 1, 6)]
    duo.send(duo.a, b"6")
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == [b"0", b"6"]
    assert duo.told(duo.a, SendConfirmed)[-1] == SendConfirmed(GROUP, 6, 7)
    # It is waited for again: its silence is noticed anew.
    duo.drop_all()
    duo.send(duo.a, b"7")
    duo.pair.run_for(5 * SECOND)
    assert len(duo.told(duo.a, SendFailed)) == 2


def test_the_stream_can_be_taken_up_in_the_middle_of_a_large_message() -> None:
    # Seed 2424 of the swarm: the frame from which the stream can be had begins inside the last message.
    duo = Duo(nodes=(ALICE, BOB, CAROL), window_frames=2)
    duo.drop_all()
    duo.send(duo.a, b"small")
    duo.send(duo.a, bytes(range(256)) * 20)
    duo.pair.run_for(4 * SECOND)
    assert duo.told(duo.a, SendFailed)
    duo.drop_nothing()
    duo.pair.run_for(5 * SECOND)
    reported = {number for gap in duo.told(duo.b, GapReported) for number in range(gap.first, gap.stop)}
    delivered = {delivery.first_sequence for delivery in duo.pair.deliveries[duo.b]}
    assert reported | delivered == {0, 1}
    assert not reported & delivered


def test_when_a_sender_dies_with_a_gap_open_the_gap_is_reported_and_the_rest_delivered() -> None:
    duo = Duo()
    duo.drop_data(2, 3)
    send_one_a_frame(duo, duo.a, numbered(6))
    duo.pair.run_for(200_000)
    duo.drop_all()
    duo.pair.run_for(9 * SECOND)
    assert duo.got(duo.b, ALICE) == numbered(2)
    duo.pair.run_for(2 * SECOND)
    assert duo.got(duo.b, ALICE) == [b"0", b"1", b"4", b"5"]
    assert duo.told(duo.b, GapReported) == [GapReported(GROUP, ALICE_1, 2, 4)]
    assert duo.node(duo.b).next_deadline_ns() is None


def test_a_sender_that_was_only_silent_can_still_send_the_end_that_was_missing() -> None:
    duo = Duo(drop_after_ns=60 * SECOND)
    duo.drop_data(3, 4)
    send_one_a_frame(duo, duo.a, numbered(5))
    duo.pair.run_for(51 * MILLISECOND)
    duo.drop_all()
    duo.pair.run_for(12 * SECOND)
    # Given up, and nothing was held behind: no gap is claimed, nothing acknowledged that was not received.
    assert duo.node(duo.b).next_deadline_ns() is None
    assert duo.told(duo.b, GapReported) == []
    duo.drop_nothing()
    duo.pair.run_for(2 * SECOND)
    assert duo.got(duo.b, ALICE) == numbered(5)
    assert duo.told(duo.a, SendConfirmed)[-1].stop == 5


# Lives.


def test_a_new_life_of_a_sender_begins_a_new_stream() -> None:
    duo = Duo()
    send_one_a_frame(duo, duo.a, numbered(3))
    duo.pair.run_for(SECOND)
    duo.restart(duo.a, 2)
    duo.send(duo.a, b"again")
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == [*numbered(3), b"again"]
    last = duo.pair.deliveries[duo.b][-1]
    assert (last.sender, last.first_sequence) == (Member(ALICE, 2), 0)
    assert duo.told(duo.b, GapReported) == []


def test_what_was_held_of_a_former_life_is_delivered_with_its_gap_reported_before_the_new_life() -> None:
    duo = Duo()
    duo.drop_data(1)
    send_one_a_frame(duo, duo.a, numbered(3))
    duo.pair.run_for(200_000)
    duo.restart(duo.a, 2)
    duo.drop_nothing()
    duo.send(duo.a, b"again")
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == [b"0", b"2", b"again"]
    assert duo.told(duo.b, GapReported) == [GapReported(GROUP, ALICE_1, 1, 2)]


def test_a_late_frame_of_a_former_life_is_refused() -> None:
    duo = Duo()
    duo.send(duo.a, b"old")
    old = duo.pair._on_link.popleft()[2].data
    duo.restart(duo.a, 2)
    duo.send(duo.a, b"new")
    duo.pair.run_for(MILLISECOND)
    duo.node(duo.b).on_datagrams(duo.pair.clock.now_ns, [(duo.a, old)])
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == [b"new"]
    assert duo.counters(duo.b).frames_refused_state == 1


def test_a_new_life_of_a_receiver_is_told_what_it_missed_and_gets_the_rest() -> None:
    duo = Duo()
    send_one_a_frame(duo, duo.a, numbered(3))
    duo.pair.run_for(SECOND)
    duo.restart(duo.b, 2)
    duo.send(duo.a, b"3")
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == numbered(4)
    assert duo.told(duo.b, GapReported) == [GapReported(GROUP, ALICE_1, 0, 3)]
    assert duo.told(duo.a, SendConfirmed)[-1] == SendConfirmed(GROUP, 3, 4)


def test_an_acknowledgement_to_a_former_life_of_the_sender_does_not_count() -> None:
    duo = Duo()
    send_one_a_frame(duo, duo.a, numbered(3))
    duo.pair.run_for(10 * MILLISECOND)
    bob, now_ns = duo.node(duo.b), duo.pair.clock.now_ns
    bob.on_timer(now_ns + 20 * MILLISECOND)
    (ack,) = datagrams(bob.take_output())
    duo.restart(duo.a, 2)
    duo.drop_all()
    send_one_a_frame(duo, duo.a, numbered(3))
    alice = duo.node(duo.a)
    alice.on_datagrams(duo.pair.clock.now_ns, [(duo.b, ack.data)])
    assert alice.counters.frames_refused_state == 1
    assert alice.counters.messages_stable == 0


# Joining and leaving.


def test_joining_opens_the_channel_and_leaving_closes_it() -> None:
    duo = Duo()
    duo.leave(duo.a)
    events = duo.pair.events[duo.a]
    assert ChannelOpened(Channel(GROUP)) in events
    assert ChannelClosed(Channel(GROUP)) in events


def test_who_is_not_in_a_group_cannot_send_leave_or_hear() -> None:
    duo = Duo()
    duo.leave(duo.b)
    for command in (SendMessages(GROUP, [b"x"]), LeaveGroup(GROUP)):
        with pytest.raises(UsageError, match="not in group 7"):
            duo.pair.submit(duo.b, command)
    duo.send(duo.a, b"x")
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == []
    assert duo.counters(duo.b).frames_refused_state > 0


def test_joining_twice_or_with_strangers_is_refused() -> None:
    duo = Duo()
    with pytest.raises(UsageError, match="already in group 7"):
        duo.join(duo.a)
    with pytest.raises(UsageError, match=r"without an endpoint: \[99\]"):
        duo.pair.submit(duo.a, JoinGroup(GroupId(8), Channel(8), [ALICE, NodeId(99)]))


def test_who_leaves_hears_that_what_was_not_stable_may_not_arrive() -> None:
    duo = Duo()
    duo.drop_all()
    duo.send(duo.a, b"0", b"1")
    duo.leave(duo.a)
    (failed,) = duo.told(duo.a, SendFailed)
    assert (failed.first, failed.stop, failed.receiver) == (0, 2, None)
    duo.pair.run_for(10 * SECOND)
    assert duo.node(duo.a).next_deadline_ns() is None


def test_a_sender_that_leaves_and_joins_again_goes_on_with_its_numbers() -> None:
    duo = Duo()
    send_one_a_frame(duo, duo.a, numbered(3))
    duo.pair.run_for(SECOND)
    duo.leave(duo.a)
    duo.join(duo.a)
    send_one_a_frame(duo, duo.a, numbered(3, 3))
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == numbered(6)
    assert duo.told(duo.a, SendConfirmed)[-1].stop == 6


def test_a_sender_that_left_with_a_gap_open_and_joins_again_tells_of_the_gap() -> None:
    duo = Duo()
    send_one_a_frame(duo, duo.a, numbered(1))
    duo.drop_data(1)
    send_one_a_frame(duo, duo.a, numbered(2, 1))
    duo.leave(duo.a)
    duo.join(duo.a)
    duo.drop_nothing()
    duo.send(duo.a, b"3")
    duo.pair.run_for(2 * SECOND)
    assert duo.got(duo.b, ALICE) == [b"0", b"2", b"3"]
    assert duo.told(duo.b, GapReported) == [GapReported(GROUP, ALICE_1, 1, 2)]


def test_a_receiver_that_leaves_and_joins_again_hears_what_is_sent_from_then_on() -> None:
    duo = Duo()
    send_one_a_frame(duo, duo.a, numbered(3))
    duo.pair.run_for(SECOND)
    duo.leave(duo.b)
    duo.join(duo.b)
    duo.send(duo.a, b"3")
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == numbered(4)


def test_a_group_of_one_costs_nothing_after_sending() -> None:
    duo = Duo(nodes=(ALICE,))
    duo.drop_all()
    send_one_a_frame(duo, duo.a, numbered(10))
    assert duo.got(duo.a, ALICE) == numbered(10)
    assert duo.node(duo.a).next_deadline_ns() is None
    assert len(duo.node(duo.a)._protocols[0]._outgoing[GROUP]._frames) == 0


# Best effort.


def test_best_effort_goes_ahead_and_reports_the_gap() -> None:
    duo = Duo(reliable=False)
    duo.drop_data(2, 3, 7)
    send_one_a_frame(duo, duo.a, numbered(10))
    duo.pair.run_for(10 * SECOND)
    assert duo.got(duo.b, ALICE) == [b"0", b"1", b"4", b"5", b"6", b"8", b"9"]
    gaps = [(gap.first, gap.stop) for gap in duo.told(duo.b, GapReported)]
    assert gaps == [(2, 4), (7, 8)]
    counters = duo.counters(duo.b)
    assert counters.messages_lost == 3
    assert counters.datagrams_sent == 0
    assert len(duo.node(duo.a)._protocols[0]._outgoing[GROUP]._frames) == 0


def test_best_effort_drops_what_comes_late_to_keep_the_order() -> None:
    duo = Duo(reliable=False)
    send_one_a_frame(duo, duo.a, numbered(3))
    bob, now_ns = duo.node(duo.b), duo.pair.clock.now_ns
    first, second, third = (datagram.data for _, _, datagram in duo.pair._on_link)
    duo.pair._on_link.clear()
    for data in (first, third, second, third):
        bob.on_datagrams(now_ns, [(duo.a, data)])
    payloads = [payload for delivery in deliveries(bob.take_output()) for payload in delivery.payloads]
    assert payloads == [b"0", b"2"]
    assert bob.counters.frames_late == 2


def test_best_effort_reports_a_large_message_that_lost_a_fragment() -> None:
    duo = Duo(reliable=False)
    duo.drop_data(1)
    duo.send(duo.a, bytes(5000), b"after", bytes(5000))
    duo.pair.run_for(SECOND)
    assert duo.got(duo.b, ALICE) == [b"after", bytes(5000)]
    assert [(gap.first, gap.stop) for gap in duo.told(duo.b, GapReported)] == [(0, 1)]
