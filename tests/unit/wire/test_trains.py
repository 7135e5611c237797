"""Trains: frames that leave by one call of the kernel, and what is left of them when they are cut again."""

from vivum.core.ids import Channel, Endpoint
from vivum.core.machine import Datagram, Priority
from vivum.wire.codec import FrameBuilder, split
from vivum.wire.kinds import Kind
from vivum.wire.trains import TRAIN_BYTES_MAX, TRAIN_FRAMES_MAX, Train, address, couple, pad

FULL = 1472


def frames(*sizes):
    return [bytes([number + 1]) * size for number, size in enumerate(sizes)]


def cut(trains):
    return [one.data for each in address(trains, [Channel(1)]) for one in each.cut()]


def test_full_frames_and_the_one_behind_them_are_one_train():
    made = frames(FULL, FULL, 300)
    assert couple(made, FULL) == [Train(b"".join(made), 3, FULL)]
    assert cut(couple(made, FULL)) == made


def test_a_frame_that_is_not_full_ends_a_train():
    made = frames(FULL, 300, FULL, FULL, 40)
    assert [train.frames for train in couple(made, FULL)] == [2, 3]
    assert cut(couple(made, FULL)) == made


def test_a_frame_alone_is_no_train():
    (one,) = frames(300)
    assert couple([one], FULL) == [Train(one)]
    assert [train.segment for train in couple(frames(300, 200), FULL)] == [0, 0]
    assert couple([], FULL) == []


def test_a_train_is_no_longer_than_the_kernel_takes():
    made = frames(*[FULL] * 100)
    trains = couple(made, FULL)
    assert max(len(train.data) for train in trains) <= TRAIN_BYTES_MAX
    assert max(train.frames for train in couple(frames(*[100] * 200), 100)) == TRAIN_FRAMES_MAX
    assert cut(trains) == made


def test_frames_of_which_no_two_fit_a_call_go_alone():
    made = frames(60_000, 60_000)
    assert couple(made, 60_000) == [Train(made[0]), Train(made[1])]


def test_a_train_goes_to_every_destination():
    train = couple(frames(FULL, 7), FULL)
    where = [Channel(1), Endpoint("10.0.0.1", 5)]
    told = address(train, where, Priority.REPAIR)
    assert [(each.destination, each.priority, each.count) for each in told] == [
        (to, Priority.REPAIR, 2) for to in where
    ]
    alone = Datagram(Channel(1), b"alone")
    assert (alone.cut(), alone.count) == ((alone,), 1)


def test_a_frame_that_is_nearly_full_is_padded_so_that_another_can_follow():
    builder = FrameBuilder(FULL)
    builder.append(1, 0, bytes(1400))
    frame = builder.seal(Kind.DATA, 1, 2, 3, 4, 5, 6, 7)
    padded = pad(frame, FULL)
    assert len(padded) == FULL
    ((before,), (after,)) = split(frame), split(padded)
    assert after.messages() == before.messages()
    assert (after.sequence, after.kind) == (before.sequence, before.kind)
    builder.append(1, 0, bytes(1000))
    short = builder.seal(Kind.DATA, 1, 2, 3, 4, 5, 6, 7)
    assert pad(short, FULL) is short
    assert pad(padded, FULL) is padded
