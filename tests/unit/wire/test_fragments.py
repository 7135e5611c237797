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
                first, payloads = joiner.add(sender, group, first, flags, payloads)
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


@pytest.mark.parametrize("cut_to_fill", [False, True])
@pytest.mark.parametrize("capacity", [64, 65, 100, 1472, 60_000])
@pytest.mark.parametrize(
    "sizes", [[0], [500], [10, 5000, 10], [5000, 5000], [1, 30, 44, 45, 46, 100, 0, 3000], [10] * 3000]
)
def test_what_goes_out_in_frames_comes_in_whole_and_in_order(capacity, sizes, cut_to_fill):
    payloads = [bytes([index % 251]) * size for index, size in enumerate(sizes)]
    outbox = Outbox(7, cut_to_fill)
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
    # 30 bytes leave no worthwhile part of the first frame; then 40 bytes with the total, and 44 at a time.
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
    assert [(first, flags, len(payloads)) for _, first, flags, payloads in frames[0]] == [(0, FLAG_MORE, 2)]
    outbox.put(2, [b"a" * 830, b"b" * 2000])
    frames, _ = frames_of(outbox, 1000)
    assert [flags for _, _, flags, _ in frames[0]] == [0]


def test_messages_follow_the_last_fragment_in_its_frame():
    outbox = Outbox(1)
    outbox.put(0, [b"a" * 110, b"b"])
    frames, _ = frames_of(outbox, 128)
    assert frames[-1] == [(1, 0, FLAG_CONTINUES, [b"a" * 42, b"b"])]


def test_with_cut_to_fill_every_frame_of_a_busy_group_is_one_full_run():
    outbox = Outbox(1, cut_to_fill=True)
    outbox.put(0, [b"x" * 1000] * 7)
    frames, told = frames_of(outbox, 1472)
    assert [[(first, flags, len(payloads)) for _, first, flags, payloads in runs] for runs in frames] == [
        [(0, FLAG_MORE, 2)],
        [(1, FLAG_CONTINUES | FLAG_MORE, 2)],
        [(2, FLAG_CONTINUES | FLAG_MORE, 3)],
        [(4, FLAG_CONTINUES | FLAG_MORE, 2)],
        [(5, FLAG_CONTINUES, 2)],
    ]
    assert told == [1, 2, 4, 5, 7]


def test_with_cut_to_fill_a_message_is_cut_only_if_its_beginning_is_an_eighth_of_the_frame():
    for size, flags in [(813, FLAG_MORE), (814, 0)]:
        outbox = Outbox(1, cut_to_fill=True)
        outbox.put(0, [b"a" * size, b"b" * 300])
        frames, _ = frames_of(outbox, 1000)
        assert frames[0][0][2] == flags
        assert frames[1][0][2] == (FLAG_CONTINUES if flags else 0)


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
    assert joiner.add(ALICE, 1, 5, FLAG_MORE, [first_fragment(4, b"ab")]) == (5, [])
    assert joiner.add(BOB, 1, 5, FLAG_MORE, [first_fragment(4, b"AB")]) == (5, [])
    assert (joiner.open_count, joiner.bytes_reserved) == (2, 8)
    assert joiner.add(BOB, 1, 5, FLAG_CONTINUES, [b"CD"]) == (5, [b"ABCD"])
    assert joiner.add(ALICE, 1, 5, FLAG_CONTINUES, [b"cd"]) == (5, [b"abcd"])


def test_a_run_can_end_one_message_and_begin_another(joiner, counters):
    assert joiner.add(ALICE, 1, 5, FLAG_MORE, [b"whole", first_fragment(4, b"a")]) == (5, [b"whole"])
    assert joiner.add(ALICE, 1, 6, FLAG_CONTINUES | FLAG_MORE, [b"b"]) == (6, [])
    run = [b"cd", b"", first_fragment(3, b"x")]
    assert joiner.add(ALICE, 1, 6, FLAG_CONTINUES | FLAG_MORE, run) == (6, [b"abcd", b""])
    assert run == [b"cd", b"", first_fragment(3, b"x")], "the run of the frame is left as it was"
    assert (joiner.open_count, joiner.bytes_reserved) == (1, 3)
    assert joiner.add(ALICE, 1, 8, FLAG_CONTINUES, [b"yz", b"last"]) == (8, [b"xyz", b"last"])
    assert (joiner.open_count, joiner.bytes_reserved, counters.joins_refused) == (0, 0, 0)


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
    assert (joiner.open_count, joiner.bytes_reserved, counters.joins_refused) == (0, 0, 1)
    assert joiner.add(ALICE, 1, 5, FLAG_MORE | FLAG_CONTINUES, [b"x"]) == (5, [])
    assert joiner.add(ALICE, 1, 5, FLAG_CONTINUES, [b"x"]) == (6, [])
    assert counters.joins_refused == 1, "one message counts once, however many fragments it has"


def test_too_many_open_joins_refuse_the_next(joiner, counters):
    for group in (1, 2, 3):
        joiner.add(ALICE, group, 5, FLAG_MORE, [first_fragment(10)])
    assert (joiner.open_count, counters.joins_refused) == (2, 1)


def test_too_many_bytes_in_open_joins_refuse_the_next(joiner, counters):
    joiner.add(ALICE, 1, 5, FLAG_MORE, [first_fragment(1000)])
    joiner.add(ALICE, 2, 5, FLAG_MORE, [first_fragment(501)])
    assert (joiner.open_count, joiner.bytes_reserved, counters.joins_refused) == (1, 1000, 1)
    joiner.add(ALICE, 2, 6, FLAG_MORE, [first_fragment(500)])
    assert (joiner.open_count, joiner.bytes_reserved) == (2, 1500)


def test_a_fragment_without_its_beginning_is_refused(joiner, counters):
    assert joiner.add(ALICE, 1, 5, FLAG_CONTINUES, [b"x"]) == (6, [])
    assert counters.joins_refused == 1


def test_a_fragment_of_another_message_gives_up_both(joiner, counters):
    joiner.add(ALICE, 1, 5, FLAG_MORE, [first_fragment(10)])
    assert joiner.add(ALICE, 1, 6, FLAG_CONTINUES, [b"x" * 9]) == (7, [])
    assert (joiner.open_count, joiner.bytes_reserved, counters.joins_refused) == (0, 0, 2)


def test_a_new_beginning_gives_up_what_was_under_way(joiner, counters):
    joiner.add(ALICE, 1, 5, FLAG_MORE, [first_fragment(10)])
    assert joiner.add(ALICE, 1, 6, FLAG_MORE, [b"whole", first_fragment(3, b"ab")]) == (6, [b"whole"])
    assert joiner.add(ALICE, 1, 7, FLAG_CONTINUES, [b"c"]) == (7, [b"abc"])
    assert counters.joins_refused == 1


@pytest.mark.parametrize("last", [b"x" * 8, b"x" * 10])
def test_a_whole_of_another_length_than_stated_is_refused(joiner, counters, last):
    joiner.add(ALICE, 1, 5, FLAG_MORE, [first_fragment(10)])
    assert joiner.add(ALICE, 1, 5, FLAG_CONTINUES, [last, b"next"]) == (6, [b"next"])
    assert (joiner.open_count, joiner.bytes_reserved, counters.joins_refused) == (0, 0, 1)


def test_more_to_come_after_the_whole_length_is_refused(joiner, counters):
    joiner.add(ALICE, 1, 5, FLAG_MORE, [first_fragment(3, b"abc")])
    assert counters.joins_refused == 1
    joiner.add(ALICE, 1, 6, FLAG_MORE, [first_fragment(3, b"a")])
    joiner.add(ALICE, 1, 6, FLAG_MORE | FLAG_CONTINUES, [b"bc"])
    assert (joiner.open_count, counters.joins_refused) == (0, 2)


def test_what_is_under_way_below_a_number_can_be_forgotten(joiner, counters):
    joiner.add(ALICE, 1, 5, FLAG_MORE, [first_fragment(3, b"a")])
    joiner.add(BOB, 1, 5, FLAG_MORE, [first_fragment(3, b"a")])
    joiner.forget_below(ALICE, 1, 5)
    assert joiner.open_count == 2
    joiner.forget_below(ALICE, 1, 6)
    joiner.forget_below(ALICE, 1, 6)
    assert (joiner.open_count, joiner.bytes_reserved, counters.joins_refused) == (1, 3, 0)
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
    assert (joiner.open_count, joiner.bytes_reserved) == (5, 50)
    joiner.forget(ALICE)
    assert (joiner.open_count, joiner.bytes_reserved) == (3, 30)
    joiner.forget(ALICE)
    assert joiner.add(BOB, 3, 5, FLAG_CONTINUES, [b"y" * 9]) == (5, [b"x" + b"y" * 9])
    assert counters.joins_refused == 0


def test_memory_of_refusals_is_bounded(joiner, counters):
    for group in range(100):
        joiner.add(ALICE, group, 5, FLAG_CONTINUES, [b"x"])
    assert counters.joins_refused == 100
    assert len(joiner._refused) <= LIMITS.joins_open_max


@pytest.mark.parametrize("before", [0, 1, 3, 40])
@pytest.mark.parametrize("here", [0, 1500])
def test_an_outbox_takes_over_what_waits_in_another_wherever_that_was_cut(before, here):
    payloads = [bytes([index % 251]) * size for index, size in enumerate([10, 3000, 0, 700, 5000] * 300)]
    other = Outbox(7, cut_to_fill=True)
    other.put(here, payloads[here:])
    frames = []
    if not here:
        for _ in range(before):
            builder = FrameBuilder(500)
            other.fill(builder)
            (frame,) = split(builder.seal(1, 2, 3, 4, 5, 6, 7, 8))
            frames.append(frame.messages())
    mine = Outbox(7, cut_to_fill=True)
    mine.put(0, payloads[:here])
    size = other.size
    mine.put_all_of(other)
    assert other.size == size, "the other keeps it, for the next one who takes over"
    frames += frames_of(mine, 500)[0]
    assert join_all(frames, Joiner(Limits(), Counters())) == list(enumerate(payloads))


def test_nothing_may_wait_before_the_rest_of_a_message():
    mine, other = Outbox(7), Outbox(7)
    mine.put(0, [b"x"])
    other.put(1, [bytes(5000)])
    other.fill(FrameBuilder(500))
    with pytest.raises(UsageError, match="partly sent"):
        mine.put_all_of(other)
