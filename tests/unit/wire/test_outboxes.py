"""Whose messages go into which frame, and how they are cut."""

from random import Random

import pytest

from vivum.core.errors import UsageError
from vivum.core.ids import GroupId, Incarnation, Member, NodeId
from vivum.core.limits import Limits
from vivum.observe.counters import Counters
from vivum.wire.codec import FLAG_CONTINUES, FLAG_MORE, FrameBuilder, Stops, split
from vivum.wire.fragments import Joiner
from vivum.wire.kinds import Kind
from vivum.wire.outboxes import Outboxes

ALICE = Member(NodeId(1), Incarnation(1))
CAPACITY = 10_000
SIZE = 1000
HEADER = (Kind.DATA, 1, 2, 3, 4, 5, 0, 0)
A, B, C = map(GroupId, (1, 2, 3))

Runs = list[tuple[int, int, int, list[bytes]]]
Packed = list[tuple[int, int]]


def by_frame(stops: list[Stops]) -> list[Packed]:
    """List what ends in each frame."""
    return [list(each.between(number, number + 1).items()) for each in stops for number in range(each.frames)]


def outboxes(counts: dict[GroupId, int]) -> Outboxes:
    made = Outboxes(cut_to_fill=False)
    for group, count in counts.items():
        made.put(group, 0, [bytes(SIZE)] * count)
    return made


def packed_of(waiting: Outboxes, frames_max: int) -> list[Packed]:
    """Seal all that waits, so many frames at once; return what is in each frame."""
    builder, found, taken = FrameBuilder(CAPACITY), [], 0
    while waiting:
        trains, stops, size = waiting.seal(builder, frames_max, 1 << 20, HEADER)
        packed = by_frame(stops)
        assert 1 <= sum(train.frames for train in trains) == len(packed) <= frames_max
        found += packed
        taken += size
    assert taken == SIZE * sum({group: stop for each in found for group, stop in each}.values())
    return found


def runs_of(waiting: Outboxes, capacity: int) -> tuple[list[Runs], list[int]]:
    """Seal all that waits of one group, frame by frame; return the runs of each, and up to where it is whole."""
    builder, frames, stops = FrameBuilder(capacity), [], []
    while waiting:
        (train,), stops_of_one, _ = waiting.seal(builder, 1, 1, HEADER)
        ((((_, stop),)),) = by_frame(stops_of_one)
        frames.append(split(train.data)[0].messages())
        stops.append(stop)
    return frames, stops


def join_all(frames: list[Runs], joiner: Joiner) -> list[tuple[int, bytes]]:
    whole: list[tuple[int, bytes]] = []
    for runs in frames:
        for group, first, flags, payloads in runs:
            if flags:
                first, payloads = joiner.add(ALICE, group, first, flags, payloads)
            whole += [(first + index, payload) for index, payload in enumerate(payloads)]
    return whole


# Turns.


@pytest.mark.parametrize("frames_max", [1, 100])
def test_what_was_sent_together_is_in_frames_that_follow_each_other(frames_max: int) -> None:
    # Nine fit a frame.
    assert packed_of(outboxes({A: 7, B: 7, C: 7}), frames_max) == [
        [(A, 7), (B, 2)],
        [(B, 7), (C, 4)],
        [(C, 7)],
    ]


@pytest.mark.parametrize("frames_max", [1, 100])
def test_who_has_more_than_a_frame_gives_way_to_the_others(frames_max: int) -> None:
    found = packed_of(outboxes({A: 40, B: 3, C: 3}), frames_max)
    assert found[:4] == [[(A, 9)], [(A, 18)], [(B, 3), (C, 3), (A, 21)], [(A, 30)]]
    assert found[-1] == [(A, 40)]


def test_small_groups_that_fill_many_frames_are_sealed_by_one_call() -> None:
    waiting = outboxes({GroupId(number): 5 for number in range(100)})
    trains, _, _ = waiting.seal(FrameBuilder(CAPACITY), 1000, 1 << 20, HEADER)
    assert [frame.sequence for train in trains for frame in split(train.data)] == list(range(56))
    assert not waiting


def test_a_turn_that_was_begun_is_forgotten_when_its_group_goes() -> None:
    waiting, builder = outboxes({A: 12, B: 40}), FrameBuilder(CAPACITY)
    assert by_frame(waiting.seal(builder, 1, 1, HEADER)[1]) == [[(A, 9)]]
    waiting.take(A)
    # B has its whole turn: two frames, since one does not hold all of it.
    waiting.put(C, 0, [bytes(SIZE)])
    assert packed_of(waiting, 1)[:3] == [[(B, 9)], [(B, 18)], [(C, 1), (B, 26)]]


def test_the_rest_of_a_message_goes_first_and_ends_the_turn_of_its_group() -> None:
    waiting, builder = Outboxes(), FrameBuilder(1000)
    waiting.put(A, 0, [bytes(1500), bytes(20)])
    waiting.put(B, 0, [bytes(10)])
    found = [by_frame(waiting.seal(builder, 1, 1, HEADER)[1])[0] for _ in range(2)]
    assert found == [[(A, 0)], [(A, 2), (B, 1)]]
    assert not waiting


def test_a_message_of_many_frames_shares_them_with_other_groups() -> None:
    waiting, builder = Outboxes(), FrameBuilder(1000)
    waiting.put(A, 0, [bytes(5000)])
    waiting.put(B, 0, [bytes(5000)])
    order = []
    while waiting:
        _, stops, _ = waiting.seal(builder, 1, 1 << 20, HEADER)
        order += [group for packed in by_frame(stops) for group, _ in packed]
    # The first frame of a message and the next follow each other. The last one of A has room for the rest of B.
    assert order == [A, A, B, B, A, B, A, B, A, B, A, B]


@pytest.mark.parametrize("groups", [2, 3, 64])
@pytest.mark.parametrize("size", [10, SIZE, 20_000])
def test_busy_groups_take_turns_of_a_train(groups: int, size: int) -> None:
    waiting, builder = Outboxes(), FrameBuilder(1472)
    for number in range(groups):
        waiting.put(GroupId(number), 0, [bytes(size)] * (400_000 // size))
    trains_of: dict[int, int] = dict.fromkeys(range(groups), 0)
    total = frames = 0
    while max(trains_of.values()) < 4 * builder.train_bytes:
        trains, stops, _ = waiting.seal(builder, 132, 1 << 20, HEADER)
        total += len(trains)
        frames += sum(each.frames for each in stops)
        for number in range(groups):
            trains_of[number] = 400_000 - waiting.pending_bytes(GroupId(number))
    # Nobody is more than a turn and the rest of a message ahead, and nearly all trains are whole.
    assert max(trains_of.values()) - min(trains_of.values()) < 1.1 * builder.train_bytes + size
    assert frames / total > 30


def test_thousands_of_groups_with_one_message_each_share_trains() -> None:
    waiting = Outboxes()
    for number in range(4000):
        waiting.put(GroupId(number), 0, [bytes(100)])
    trains, _, _ = waiting.seal(FrameBuilder(1472), 132, 1 << 20, HEADER)
    assert [train.frames for train in trains] == [44, 44, 44]


def test_marks_begin_the_first_frame_and_the_tail_follows_the_last_message() -> None:
    waiting, builder = outboxes({A: 2}), FrameBuilder(1100)
    builder.append(9, 0, b"mark")
    trains, stops, _ = waiting.seal(builder, 100, 1 << 20, HEADER, [(9, 2, [b"end"], 0, 0)])
    assert by_frame(stops) == [[(A, 1)], [(A, 2), (9, 3)]]
    frames = [frame for train in trains for frame in split(train.data)]
    assert [[run[:2] for run in frame.messages()] for frame in frames] == [[(9, 0), (A, 0)], [(A, 1), (9, 2)]]


def test_the_tail_alone_is_a_frame_and_nothing_at_all_is_none() -> None:
    waiting, builder = Outboxes(), FrameBuilder(1100)
    trains, stops, size = waiting.seal(builder, 9, 1 << 20, HEADER)
    assert (trains, by_frame(stops), size) == ([], [], 0)
    assert by_frame(waiting.seal(builder, 9, 1 << 20, HEADER, [(9, 2, [b"end"], 0, 0)])[1]) == [[(9, 3)]]


# Sizes.


@pytest.mark.parametrize("cut_to_fill", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_what_waits_is_known_to_the_byte_whatever_was_sealed(seed: int, cut_to_fill: bool) -> None:
    random = Random(seed)
    waiting, builder, number, put = Outboxes(cut_to_fill), FrameBuilder(CAPACITY), 0, 0
    for _ in range(60):
        sizes = [random.randrange(0, random.choice((1, 50, 3000, 12_000))) for _ in range(random.randrange(1, 80))]
        waiting.put(A, number, [bytes(size) for size in sizes])
        number += len(sizes)
        put += sum(sizes)
        put -= waiting.seal(builder, random.randrange(1, 99), 1 << 20, HEADER)[2]
        assert waiting.pending_bytes(A) == put
        assert waiting.has(A) or not put


def test_size_counts_down_piece_by_piece() -> None:
    waiting, builder = Outboxes(), FrameBuilder(100)
    waiting.put(A, 0, [b"a" * 100])
    assert waiting.seal(builder, 1, 1, HEADER)[2] == 100 - 40 - 16 - 4
    assert waiting.pending_bytes(A) == 60


# Cuts.


@pytest.mark.parametrize("cut_to_fill", [False, True])
@pytest.mark.parametrize("capacity", [64, 65, 100, 1472, 60_000])
@pytest.mark.parametrize(
    "sizes", [[0], [500], [10, 5000, 10], [5000, 5000], [1, 30, 44, 45, 46, 100, 0, 3000], [10] * 3000]
)
def test_what_goes_out_in_frames_comes_in_whole_and_in_order(
    capacity: int, sizes: list[int], cut_to_fill: bool
) -> None:
    payloads = [bytes([index % 251]) * size for index, size in enumerate(sizes)]
    waiting = Outboxes(cut_to_fill)
    waiting.put(A, 40, payloads)
    assert waiting.pending_bytes(A) == sum(sizes)
    frames, stops = runs_of(waiting, capacity)
    counters = Counters()
    joiner = Joiner(Limits(), counters)
    assert join_all(frames, joiner) == [(40 + index, payload) for index, payload in enumerate(payloads)]
    assert stops == sorted(stops)
    assert stops[-1] == 40 + len(sizes)
    assert (waiting.pending_bytes(A), len(joiner.joins), joiner.bytes_reserved, counters.joins_refused) == (0, 0, 0, 0)


def test_sealing_tells_which_messages_are_wholly_in_frames() -> None:
    waiting = Outboxes(cut_to_fill=False)
    waiting.put(A, 10, [b"a" * 30, b"b" * 190, b"c"])
    # 30 bytes leave no worthwhile part of the first frame; then 40 bytes with the total, and 44 at a time.
    assert runs_of(waiting, 100)[1] == [11, 11, 11, 11, 11, 13]


def test_a_message_that_fits_an_empty_frame_is_not_cut() -> None:
    waiting = Outboxes(cut_to_fill=False)
    waiting.put(A, 0, [b"a" * 20, b"b" * 44])
    assert runs_of(waiting, 100)[0] == [[(1, 0, 0, [b"a" * 20])], [(1, 1, 0, [b"b" * 44])]]


def test_a_large_message_fills_what_is_left_of_a_frame_only_if_that_is_worth_it() -> None:
    waiting = Outboxes(cut_to_fill=False)
    waiting.put(A, 0, [b"a" * 100, b"b" * 2000])
    frames, _ = runs_of(waiting, 1000)
    assert [(first, flags, len(payloads)) for _, first, flags, payloads in frames[0]] == [(0, FLAG_MORE, 2)]
    waiting.put(A, 2, [b"a" * 830, b"b" * 2000])
    frames, _ = runs_of(waiting, 1000)
    assert [flags for _, _, flags, _ in frames[0]] == [0]


def test_messages_follow_the_last_fragment_in_its_frame() -> None:
    waiting = Outboxes(cut_to_fill=False)
    waiting.put(A, 0, [b"a" * 110, b"b"])
    assert runs_of(waiting, 128)[0][-1] == [(1, 0, FLAG_CONTINUES, [b"a" * 42, b"b"])]


def test_with_cut_to_fill_every_frame_of_a_busy_group_is_one_full_run() -> None:
    waiting = Outboxes()
    waiting.put(A, 0, [b"x" * 1000] * 7)
    frames, stops = runs_of(waiting, 1472)
    assert [[(first, flags, len(payloads)) for _, first, flags, payloads in runs] for runs in frames] == [
        [(0, FLAG_MORE, 2)],
        [(1, FLAG_CONTINUES | FLAG_MORE, 2)],
        [(2, FLAG_CONTINUES | FLAG_MORE, 3)],
        [(4, FLAG_CONTINUES | FLAG_MORE, 2)],
        [(5, FLAG_CONTINUES, 2)],
    ]
    assert stops == [1, 2, 4, 5, 7]


def test_with_cut_to_fill_a_message_is_cut_only_if_its_beginning_is_an_eighth_of_the_frame() -> None:
    for size, flags in [(813, FLAG_MORE), (814, 0)]:
        waiting = Outboxes()
        waiting.put(A, 0, [b"a" * size, b"b" * 300])
        frames, _ = runs_of(waiting, 1000)
        assert frames[0][0][2] == flags
        assert frames[1][0][2] == (FLAG_CONTINUES if flags else 0)


# Numbers.


def test_many_small_puts_are_one_run() -> None:
    waiting = Outboxes()
    for sequence in range(100):
        waiting.put(A, sequence, [b"x"])
    waiting.put(A, 100, [])
    assert runs_of(waiting, 1472)[0] == [[(1, 0, 0, [b"x"] * 100)]]


def test_numbers_must_go_on_while_others_wait() -> None:
    waiting = Outboxes()
    waiting.put(A, 5, [b"a"])
    with pytest.raises(UsageError, match="message 7 cannot follow; the next of group 1 is 6"):
        waiting.put(A, 7, [b"b"])
    runs_of(waiting, 100)
    waiting.put(A, 7, [b"b"])
    assert runs_of(waiting, 100)[1] == [8]


# From one to another.


@pytest.mark.parametrize("before", [0, 1, 3, 40])
@pytest.mark.parametrize("here", [0, 700])
def test_an_outbox_takes_over_what_waits_in_another_wherever_that_was_cut(before: int, here: int) -> None:
    payloads = [bytes([index % 251]) * size for index, size in enumerate([10, 3000, 0, 700, 5000] * 300)]
    others, frames = Outboxes(), []
    others.put(A, here, payloads[here:])
    if not here:
        for _ in range(before):
            (train,), _, _ = others.seal(FrameBuilder(500), 1, 1, HEADER)
            frames.append(split(train.data)[0].messages())
    mine = Outboxes()
    mine.put(A, 0, payloads[:here])
    other = others.take(A)
    size = other.size
    mine.adopt(A, other)
    assert other.size == size, "the other keeps it, for the next one who takes over"
    frames += runs_of(mine, 500)[0]
    assert join_all(frames, Joiner(Limits(), Counters())) == list(enumerate(payloads))


def test_nothing_may_wait_before_the_rest_of_a_message() -> None:
    mine, others = Outboxes(), Outboxes()
    mine.put(A, 0, [b"x"])
    others.put(A, 1, [bytes(5000)])
    others.seal(FrameBuilder(500), 1, 1, HEADER)
    with pytest.raises(UsageError, match="partly sent"):
        mine.adopt(A, others.take(A))
