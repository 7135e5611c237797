"""Whose messages go into which frame when many groups wait."""

from random import Random

import pytest

from vivum.core.ids import GroupId
from vivum.wire.outboxes import Outboxes
from vivum.wire.codec import FrameBuilder
from vivum.wire.kinds import Kind

CAPACITY = 10_000
SIZE = 1000
HEADER = (Kind.DATA, 1, 2, 3, 4, 5)
A, B, C = map(GroupId, (1, 2, 3))


def outboxes(counts: dict[GroupId, int]) -> Outboxes:
    made = Outboxes(cut_to_fill=False)
    for group, count in counts.items():
        made.put(group, 0, [bytes(SIZE)] * count)
    return made


def frames_of(waiting: Outboxes, together: bool) -> list[list[tuple[GroupId, int]]]:
    """Seal all that waits, full frames at once or each alone; tell what is in each frame."""
    builder, found, taken = FrameBuilder(CAPACITY), [], 0
    while waiting:
        frames, packed, size = waiting.seal_run(builder, 100, 1 << 20, (*HEADER, 0, 0)) if together else ([], [], 0)
        if not frames:
            one, size = waiting.fill(builder)
            builder.seal(*HEADER, 0, 0)
            packed = [one]
        found += packed
        taken += size
    assert taken == SIZE * sum(stop for _, stop in {group: stop for each in found for group, stop in each}.items())
    return found


@pytest.mark.parametrize("together", [True, False])
def test_what_was_sent_together_is_in_frames_that_follow_each_other(together: bool) -> None:
    # Nine fit a frame.
    assert frames_of(outboxes({A: 7, B: 7, C: 7}), together) == [
        [(A, 7), (B, 2)],
        [(B, 7), (C, 4)],
        [(C, 7)],
    ]


@pytest.mark.parametrize("together", [True, False])
def test_who_has_more_than_a_frame_gives_way_to_the_others(together: bool) -> None:
    found = frames_of(outboxes({A: 40, B: 3, C: 3}), together)
    assert found[:4] == [[(A, 9)], [(A, 18)], [(B, 3), (C, 3), (A, 21)], [(A, 30)]]
    assert found[-1] == [(A, 40)]


def test_a_turn_that_was_begun_is_forgotten_when_its_group_goes() -> None:
    waiting, builder = outboxes({A: 12, B: 40}), FrameBuilder(CAPACITY)
    assert waiting.fill(builder)[0] == [(A, 9)]
    builder.seal(*HEADER, 0, 0)
    waiting.take(A)
    # B has its whole turn: two frames, since one does not hold all of it.
    waiting.put(C, 0, [bytes(SIZE)])
    assert frames_of(waiting, together=False)[:3] == [[(B, 9)], [(B, 18)], [(C, 1), (B, 26)]]


@pytest.mark.parametrize("seed", range(20))
def test_what_waits_is_known_to_the_byte_whatever_was_sealed(seed: int) -> None:
    random = Random(seed)
    waiting, builder, number = Outboxes(cut_to_fill=False), FrameBuilder(CAPACITY), 0
    left: list[int] = []
    for _ in range(60):
        sizes = [random.randrange(0, random.choice((1, 50, 3000))) for _ in range(random.randrange(1, 80))]
        waiting.put(A, number, [bytes(size) for size in sizes])
        number += len(sizes)
        left += sizes
        frames, packed, taken = waiting.seal_run(builder, random.randrange(1, 9), 1 << 20, (*HEADER, 0, 0))
        if frames:
            stop = packed[-1][-1][1] - (number - len(left))
            assert taken == sum(left[:stop])
            del left[:stop]
        assert waiting.pending_bytes(A) == sum(left)
