from dataclasses import replace

import pytest

from vivum.core.errors import UsageError
from vivum.core.ids import Incarnation, Member, NodeId
from vivum.core.limits import Limits
from vivum.observe.counters import Counters
from vivum.wire.codec import FLAG_CONTINUES, FLAG_MORE, FrameBuilder, split
from vivum.wire.fragments import Joiner, Outbox
from vivum.wire.kinds import Kind

ALICE = Member(NodeId(1), Incarnation(1))
BOB = Member(NodeId(2), Incarnation(1))
LIMITS = Limits(message_bytes_max=1000, joins_open_max=2, join_bytes_max=1500)


def frames_of(outbox, capacity):
    """Send all that waits; return runs by frame, and what `fill` told."""
    builder, frames, told = FrameBuilder(capacity), [], []
    while outbox:
        told.append(outbox.fill(builder))
        assert not builder.empty, "an outbox that waits must make progress"
        frames.append(split(builder.seal(Kind.DATA, 0, 1, 1, 0, 0, len(frames), 0))[0].messages())
    return frames, told


def join_all(frames, joiner, sender=ALICE):
    whole = []
    for runs in frames:
        for group, first, flags, payloads in runs:
            if flags:
                message = joiner.add(sender, group, first, flags, payloads[0])
                payloads = [] if message is None else [message]
            whole += [(first + index, payload) for index, payload in enumerate(payloads)]
    return whole


def first_fragment(total, piece=b"x"):
    return total.to_bytes(4, "little") + piece


@pytest.fixture
def counters():
    return Counters()


@pytest.fixture
def joiner(counters):
    return Joiner(LIMITS, counters)


@pytest.mark.parametrize("capacity", [64, 65, 100, 1472, 60_000])
@pytest.mark.parametrize(
    "sizes", [[0], [500], [10, 5000, 10], [5000, 5000], [1, 30, 44, 45, 46, 100, 0, 3000], [10] * 3000]
)
def test_what_goes_out_in_frames_comes_in_whole_and_in_order(capacity, sizes):
    payloads = [bytes([index % 251]) * size for index, size in enumerate(sizes)]
    outbox = Outbox(7)
    outbox.put(40, payloads)
    assert outbox.size == sum(sizes)
    frames, told = frames_of(outbox, capacity)
    counters = Counters()
    joiner = Joiner(Limits(), counters)
    assert join_all(frames, joiner) == [(40 + index, payload) for index, payload in enumerate(payloads)]
    assert told == sorted(told)
    assert told[-1] == 40 + len(sizes)
    assert (outbox.size, joiner.open_count, joiner.bytes_reserved, counters.joins_refused) == (0, 0, 0, 0)


def test_fill_tells_which_messages_are_wholly_in_frames():
    outbox = Outbox(1)
    outbox.put(10, [b"a" * 30, b"b" * 190, b"c"])
    _, told = frames_of(outbox, 100)
    assert told == [11, 11, 11, 11, 11, 13]


def test_a_message_that_fits_an_empty_frame_is_not_cut():
    outbox = Outbox(1)
    outbox.put(0, [b"a" * 20, b"b" * 44])
    frames, _ = frames_of(outbox, 100)
    assert frames == [[(1, 0, 0, [b"a" * 20])], [(1, 1, 0, [b"b" * 44])]]


def test_a_large_message_fills_what_is_left_of_a_frame_only_if_that_is_worth_it():
    outbox = Outbox(1)
    outbox.put(0, [b"a" * 100, b"b" * 2000])
    frames, _ = frames_of(outbox, 1000)
    assert [flags for _, _, flags, _ in frames[0]] == [0, FLAG_MORE]
    outbox.put(2, [b"a" * 830, b"b" * 2000])
    frames, _ = frames_of(outbox, 1000)
    assert [flags for _, _, flags, _ in frames[0]] == [0]


def test_messages_follow_the_last_fragment_in_its_frame():
    outbox = Outbox(1)
    outbox.put(0, [b"a" * 110, b"b"])
    frames, _ = frames_of(outbox, 128)
    assert [(first, flags) for _, first, flags, _ in frames[-1]] == [(0, FLAG_CONTINUES), (1, 0)]


def test_size_counts_down_piece_by_piece():
    outbox, builder = Outbox(1), FrameBuilder(100)
    outbox.put(0, [b"a" * 100])
    outbox.fill(builder)
    assert outbox.size == 100 - (100 - 40 - 16 - 4)
    assert outbox.fill(builder) == 0, "a full frame takes nothing more"
    assert outbox.size == 60


def test_many_small_puts_are_one_run():
    outbox = Outbox(1)
    for sequence in range(100):
        outbox.put(sequence, [b"x"])
    outbox.put(100, [])
    frames, _ = frames_of(outbox, 1472)
    assert frames == [[(1, 0, 0, [b"x"] * 100)]]


def test_numbers_must_go_on_while_others_wait():
    outbox = Outbox(1)
    outbox.put(5, [b"a"])
    with pytest.raises(UsageError, match="message 7 cannot follow; the next of group 1 is 6"):
        outbox.put(7, [b"b"])
    frames_of(outbox, 100)
    outbox.put(7, [b"b"])
    assert frames_of(outbox, 100)[1] == [8]


def test_senders_and_groups_join_independently(joiner):
    assert joiner.add(ALICE, 1, 5, FLAG_MORE, first_fragment(4, b"ab")) is None
    assert joiner.add(BOB, 1, 5, FLAG_MORE, first_fragment(4, b"AB")) is None
    assert (joiner.open_count, joiner.bytes_reserved) == (2, 8)
    assert joiner.add(BOB, 1, 5, FLAG_CONTINUES, b"CD") == b"ABCD"
    assert joiner.add(ALICE, 1, 5, FLAG_CONTINUES, b"cd") == b"abcd"


def test_a_message_over_the_limit_is_refused_before_any_of_it_is_held(joiner, counters):
    assert joiner.add(ALICE, 1, 5, FLAG_MORE, first_fragment(1001)) is None
    assert (joiner.open_count, joiner.bytes_reserved, counters.joins_refused) == (0, 0, 1)
    assert joiner.add(ALICE, 1, 5, FLAG_MORE | FLAG_CONTINUES, b"x") is None
    assert joiner.add(ALICE, 1, 5, FLAG_CONTINUES, b"x") is None
    assert counters.joins_refused == 1, "one message counts once, however many fragments it has"


def test_too_many_open_joins_refuse_the_next(joiner, counters):
    for group in (1, 2, 3):
        joiner.add(ALICE, group, 5, FLAG_MORE, first_fragment(10))
    assert (joiner.open_count, counters.joins_refused) == (2, 1)


def test_too_many_bytes_in_open_joins_refuse_the_next(joiner, counters):
    joiner.add(ALICE, 1, 5, FLAG_MORE, first_fragment(1000))
    joiner.add(ALICE, 2, 5, FLAG_MORE, first_fragment(501))
    assert (joiner.open_count, joiner.bytes_reserved, counters.joins_refused) == (1, 1000, 1)
    joiner.add(ALICE, 2, 6, FLAG_MORE, first_fragment(500))
    assert (joiner.open_count, joiner.bytes_reserved) == (2, 1500)


def test_a_fragment_without_its_beginning_is_refused(joiner, counters):
    assert joiner.add(ALICE, 1, 5, FLAG_CONTINUES, b"x") is None
    assert counters.joins_refused == 1


def test_a_fragment_of_another_message_gives_up_both(joiner, counters):
    joiner.add(ALICE, 1, 5, FLAG_MORE, first_fragment(10))
    assert joiner.add(ALICE, 1, 6, FLAG_CONTINUES, b"x" * 9) is None
    assert (joiner.open_count, joiner.bytes_reserved, counters.joins_refused) == (0, 0, 2)


def test_a_new_beginning_gives_up_what_was_under_way(joiner, counters):
    joiner.add(ALICE, 1, 5, FLAG_MORE, first_fragment(10))
    joiner.add(ALICE, 1, 6, FLAG_MORE, first_fragment(3, b"ab"))
    assert joiner.add(ALICE, 1, 6, FLAG_CONTINUES, b"c") == b"abc"
    assert counters.joins_refused == 1


@pytest.mark.parametrize("last", [b"x" * 8, b"x" * 10])
def test_a_whole_of_another_length_than_stated_is_refused(joiner, counters, last):
    joiner.add(ALICE, 1, 5, FLAG_MORE, first_fragment(10))
    assert joiner.add(ALICE, 1, 5, FLAG_CONTINUES, last) is None
    assert (joiner.open_count, joiner.bytes_reserved, counters.joins_refused) == (0, 0, 1)


def test_more_to_come_after_the_whole_length_is_refused(joiner, counters):
    joiner.add(ALICE, 1, 5, FLAG_MORE, first_fragment(3, b"abc"))
    assert counters.joins_refused == 1
    joiner.add(ALICE, 1, 6, FLAG_MORE, first_fragment(3, b"a"))
    joiner.add(ALICE, 1, 6, FLAG_MORE | FLAG_CONTINUES, b"bc")
    assert (joiner.open_count, counters.joins_refused) == (0, 2)


def test_a_sender_can_be_forgotten_in_a_group_or_wholly(counters):
    joiner = Joiner(replace(LIMITS, joins_open_max=10), counters)
    for sender in (ALICE, BOB):
        for group in (1, 2, 3):
            joiner.add(sender, group, 5, FLAG_MORE, first_fragment(10))
    joiner.forget(ALICE, 1)
    assert (joiner.open_count, joiner.bytes_reserved) == (5, 50)
    joiner.forget(ALICE)
    assert (joiner.open_count, joiner.bytes_reserved) == (3, 30)
    joiner.forget(ALICE)
    assert joiner.add(BOB, 3, 5, FLAG_CONTINUES, b"y" * 9) == b"x" + b"y" * 9
    assert counters.joins_refused == 0


def test_memory_of_refusals_is_bounded(joiner, counters):
    for group in range(100):
        joiner.add(ALICE, group, 5, FLAG_CONTINUES, b"x")
    assert counters.joins_refused == 100
    assert len(joiner._refused) <= LIMITS.joins_open_max
