from dataclasses import replace

import pytest

from vivum.core.ids import Incarnation, Member, NodeId
from vivum.core.limits import Limits
from vivum.observe.counters import Counters
from vivum.wire.codec import FLAG_CONTINUES, FLAG_MORE
from vivum.wire.fragments import Joiner

ALICE = Member(NodeId(1), Incarnation(1))
BOB = Member(NodeId(2), Incarnation(1))
LIMITS = Limits(message_bytes_max=1000, joins_open_max=2, join_bytes_max=1500)


def first_fragment(total, piece=b"x"):
    return total.to_bytes(4, "little") + piece


@pytest.fixture
def counters():
    return Counters()


@pytest.fixture
def joiner(counters):
    return Joiner(LIMITS, counters)


def test_senders_and_groups_join_independently(joiner):
    assert joiner.add(ALICE, 1, 5, FLAG_MORE, [first_fragment(4, b"ab")]) == (5, [])
    assert joiner.add(BOB, 1, 5, FLAG_MORE, [first_fragment(4, b"AB")]) == (5, [])
    assert (len(joiner.joins), joiner.bytes_reserved) == (2, 8)
    assert joiner.add(BOB, 1, 5, FLAG_CONTINUES, [b"CD"]) == (5, [b"ABCD"])
    assert joiner.add(ALICE, 1, 5, FLAG_CONTINUES, [b"cd"]) == (5, [b"abcd"])


def test_a_run_can_end_one_message_and_begin_another(joiner, counters):
    assert joiner.add(ALICE, 1, 5, FLAG_MORE, [b"whole", first_fragment(4, b"a")]) == (5, [b"whole"])
    assert joiner.add(ALICE, 1, 6, FLAG_CONTINUES | FLAG_MORE, [b"b"]) == (6, [])
    run = [b"cd", b"", first_fragment(3, b"x")]
    assert joiner.add(ALICE, 1, 6, FLAG_CONTINUES | FLAG_MORE, run) == (6, [b"abcd", b""])
    assert run == [b"cd", b"", first_fragment(3, b"x")], "the run of the frame is left as it was"
    assert (len(joiner.joins), joiner.bytes_reserved) == (1, 3)
    assert joiner.add(ALICE, 1, 8, FLAG_CONTINUES, [b"yz", b"last"]) == (8, [b"xyz", b"last"])
    assert (len(joiner.joins), joiner.bytes_reserved, counters.joins_refused) == (0, 0, 0)


def test_the_end_of_a_message_makes_room_for_the_beginning_of_the_next(counters):
    joiner = Joiner(Limits(message_bytes_max=10, joins_open_max=1, join_bytes_max=10), counters)
    joiner.add(ALICE, 1, 0, FLAG_MORE, [first_fragment(10, b"x" * 9)])
    run = [b"x", first_fragment(10, b"y" * 9)]
    assert joiner.add(ALICE, 1, 0, FLAG_CONTINUES | FLAG_MORE, run) == (0, [b"x" * 10])
    assert joiner.add(ALICE, 1, 1, FLAG_CONTINUES, [b"y"]) == (1, [b"y" * 10])
    assert counters.joins_refused == 0


def test_what_follows_a_message_that_cannot_be_joined_is_not_affected(joiner, counters):
    run = [b"rest", b"whole", first_fragment(2, b"a")]
    assert joiner.add(ALICE, 1, 5, FLAG_CONTINUES | FLAG_MORE, run) == (6, [b"whole"])
    assert joiner.add(ALICE, 1, 7, FLAG_CONTINUES, [b"b"]) == (7, [b"ab"])
    assert counters.joins_refused == 1


def test_a_message_over_the_limit_is_refused_before_any_of_it_is_held(joiner, counters):
    assert joiner.add(ALICE, 1, 4, FLAG_MORE, [b"whole", first_fragment(1001)]) == (4, [b"whole"])
    assert (len(joiner.joins), joiner.bytes_reserved, counters.joins_refused) == (0, 0, 1)
    assert joiner.add(ALICE, 1, 5, FLAG_MORE | FLAG_CONTINUES, [b"x"]) == (5, [])
    assert joiner.add(ALICE, 1, 5, FLAG_CONTINUES, [b"x"]) == (6, [])
    assert counters.joins_refused == 1, "one message counts once, however many fragments it has"


def test_too_many_open_joins_refuse_the_next(joiner, counters):
    for group in (1, 2, 3):
        joiner.add(ALICE, group, 5, FLAG_MORE, [first_fragment(10)])
    assert (len(joiner.joins), counters.joins_refused) == (2, 1)


def test_too_many_bytes_in_open_joins_refuse_the_next(joiner, counters):
    joiner.add(ALICE, 1, 5, FLAG_MORE, [first_fragment(1000)])
    joiner.add(ALICE, 2, 5, FLAG_MORE, [first_fragment(501)])
    assert (len(joiner.joins), joiner.bytes_reserved, counters.joins_refused) == (1, 1000, 1)
    joiner.add(ALICE, 2, 6, FLAG_MORE, [first_fragment(500)])
    assert (len(joiner.joins), joiner.bytes_reserved) == (2, 1500)


def test_a_fragment_without_its_beginning_is_refused(joiner, counters):
    assert joiner.add(ALICE, 1, 5, FLAG_CONTINUES, [b"x"]) == (6, [])
    assert counters.joins_refused == 1


def test_a_fragment_of_another_message_gives_up_both(joiner, counters):
    joiner.add(ALICE, 1, 5, FLAG_MORE, [first_fragment(10)])
    assert joiner.add(ALICE, 1, 6, FLAG_CONTINUES, [b"x" * 9]) == (7, [])
    assert (len(joiner.joins), joiner.bytes_reserved, counters.joins_refused) == (0, 0, 2)


def test_a_new_beginning_gives_up_what_was_under_way(joiner, counters):
    joiner.add(ALICE, 1, 5, FLAG_MORE, [first_fragment(10)])
    assert joiner.add(ALICE, 1, 6, FLAG_MORE, [b"whole", first_fragment(3, b"ab")]) == (6, [b"whole"])
    assert joiner.add(ALICE, 1, 7, FLAG_CONTINUES, [b"c"]) == (7, [b"abc"])
    assert counters.joins_refused == 1


@pytest.mark.parametrize("last", [b"x" * 8, b"x" * 10])
def test_a_whole_of_another_length_than_stated_is_refused(joiner, counters, last):
    joiner.add(ALICE, 1, 5, FLAG_MORE, [first_fragment(10)])
    assert joiner.add(ALICE, 1, 5, FLAG_CONTINUES, [last, b"next"]) == (6, [b"next"])
    assert (len(joiner.joins), joiner.bytes_reserved, counters.joins_refused) == (0, 0, 1)


def test_more_to_come_after_the_whole_length_is_refused(joiner, counters):
    joiner.add(ALICE, 1, 5, FLAG_MORE, [first_fragment(3, b"abc")])
    assert counters.joins_refused == 1
    joiner.add(ALICE, 1, 6, FLAG_MORE, [first_fragment(3, b"a")])
    joiner.add(ALICE, 1, 6, FLAG_MORE | FLAG_CONTINUES, [b"bc"])
    assert (len(joiner.joins), counters.joins_refused) == (0, 2)


def test_what_is_under_way_below_a_number_can_be_forgotten(joiner, counters):
    joiner.add(ALICE, 1, 5, FLAG_MORE, [first_fragment(3, b"a")])
    joiner.add(BOB, 1, 5, FLAG_MORE, [first_fragment(3, b"a")])
    joiner.forget_below(ALICE, 1, 5)
    assert len(joiner.joins) == 2
    joiner.forget_below(ALICE, 1, 6)
    joiner.forget_below(ALICE, 1, 6)
    assert (len(joiner.joins), joiner.bytes_reserved, counters.joins_refused) == (1, 3, 0)
    assert joiner.add(BOB, 1, 5, FLAG_CONTINUES, [b"bc"]) == (5, [b"abc"])


def test_a_refusal_at_or_above_a_number_is_remembered(joiner, counters):
    joiner.add(ALICE, 1, 5, FLAG_MORE, [first_fragment(1001)])
    joiner.forget_below(ALICE, 1, 5)
    joiner.add(ALICE, 1, 5, FLAG_CONTINUES | FLAG_MORE, [b"x"])
    assert counters.joins_refused == 1
    joiner.forget_below(ALICE, 1, 6)
    assert joiner._refused == {}


def test_a_sender_can_be_forgotten_in_a_group_or_wholly(counters):
    joiner = Joiner(replace(LIMITS, joins_open_max=10), counters)
    for sender in (ALICE, BOB):
        for group in (1, 2, 3):
            joiner.add(sender, group, 5, FLAG_MORE, [first_fragment(10)])
    joiner.forget(ALICE, 1)
    assert (len(joiner.joins), joiner.bytes_reserved) == (5, 50)
    joiner.forget(ALICE)
    assert (len(joiner.joins), joiner.bytes_reserved) == (3, 30)
    joiner.forget(ALICE)
    assert joiner.add(BOB, 3, 5, FLAG_CONTINUES, [b"y" * 9]) == (5, [b"x" + b"y" * 9])
    assert counters.joins_refused == 0


def test_memory_of_refusals_is_bounded(joiner, counters):
    for group in range(100):
        joiner.add(ALICE, group, 5, FLAG_CONTINUES, [b"x"])
    assert counters.joins_refused == 100
    assert len(joiner._refused) <= LIMITS.joins_open_max
