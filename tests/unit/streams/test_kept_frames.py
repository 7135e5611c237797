"""What a sender keeps: whole trains, of which single frames are found again."""

import random
from collections import deque

import pytest

from vivum.protocols.streams.kept_frames import KeptFrames
from vivum.wire.trains import Train, couple


def test_every_frame_is_found_by_its_number_until_its_train_goes():
    kept = KeptFrames(5)
    made = [bytes([number]) * 100 for number in range(3)]
    kept.extend([*couple([*made, b"short"], 100), Train(b"alone")])
    assert [kept.get(5 + at) for at in range(5)] == [*made, b"short", b"alone"]
    assert (kept.size, kept.size_between(5, 10), kept.size_between(7, 9)) == (310, 310, 105)
    kept.forget_below(8)
    assert (kept.get(8), kept.size) == (b"short", 310), "a train stays while one of its frames is wanted"
    kept.forget_below(9)
    assert (kept.get(9), kept.size) == (b"alone", 5)
    kept.forget_below(10)
    assert (kept.size, kept.size_between(10, 10)) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_same_as_a_list_of_frames(seed):
    draw = random.Random(seed)
    kept, dumb, floor, stop = KeptFrames(7), deque(), 7, 7
    for _ in range(60):
        if draw.random() < 0.5:
            made = [bytes([stop % 251]) * (64 if at else draw.randint(1, 64)) for at in range(draw.randint(1, 80))]
            kept.extend(couple(made, 64))
            dumb.extend(made)
            stop += len(made)
        else:
            to = draw.randint(floor, stop)
            kept.forget_below(to)
            for _ in range(to - floor):
                dumb.popleft()
            floor = to
        if dumb:
            number = draw.randrange(floor, stop)
            assert kept.get(number) == dumb[number - floor]
        one, two = sorted(draw.randint(floor, stop) for _ in range(2))
        assert kept.size_between(one, two) == sum(map(len, list(dumb)[one - floor : two - floor]))
        assert kept.size >= sum(map(len, dumb))
