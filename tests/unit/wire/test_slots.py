"""Frames that are made in slots: the same bytes as without, one frame in a slot, small ones elsewhere."""

import mmap
import pickle
from random import Random

import pytest

from vivum.core.errors import UsageError
from vivum.wire import codec
from vivum.wire._codec_twin import FrameBuilder as TwinBuilder
from vivum.wire.kinds import Kind

_slots = pytest.importorskip("vivum.wire._slots", reason="the compiled part was not built")
pytestmark = pytest.mark.skipif(not codec.COMPILED, reason="the compiled part is turned off")

SLOTS = 12
KEPT = SLOTS // 2
CAPACITY = 60_000
HEADER = (Kind.DATA, 1, 2, 3, 4, 5)


@pytest.fixture
def pool() -> "_slots.SlotPool":
    return _slots.SlotPool(mmap.mmap(-1, SLOTS * _slots.SLOT_BYTES))


def payloads(count: int, size: int, seed: int = 1) -> list[bytes]:
    random = Random(seed)
    return [random.randbytes(size) for _ in range(count)]


@pytest.mark.parametrize("size", [10, 1000, 20_000])
def test_frames_are_the_same_bytes_as_without_slots(pool: "_slots.SlotPool", size: int) -> None:
    messages = payloads(4 * CAPACITY // size, size)
    made = codec.FrameBuilder(CAPACITY, pool).seal_runs([(7, 0, messages, 0)], 100, 1 << 30, *HEADER, 9, 11)
    twin = TwinBuilder(CAPACITY).seal_runs([(7, 0, messages, 0)], 100, 1 << 30, *HEADER, 9, 11)
    assert len(made[0]) >= 3
    assert all(type(each) is _slots.Slot for each in made[0])
    assert ([bytes(each) for each in made[0]], *made[1:]) == twin


def test_a_slot_acts_as_bytes_where_senders_need_it(pool: "_slots.SlotPool") -> None:
    builder, twin = codec.FrameBuilder(CAPACITY, pool), TwinBuilder(CAPACITY)
    for each in (builder, twin):
        each.extend(7, 0, payloads(40, 1000))
    slot, frame = (each.seal(*HEADER, 9, 11) for each in (builder, twin))
    assert type(slot) is _slots.Slot
    assert bytes(slot) == frame
    assert (len(slot), slot[1], slot[-1], slot[2:9]) == (len(frame), frame[1], frame[-1], frame[2:9])
    assert memoryview(slot).readonly
    assert codec.resend(slot) == codec.resend(frame)
    with pytest.raises(IndexError):
        slot[len(frame)]
    with pytest.raises(TypeError):
        _slots.Slot()
    with pytest.raises(TypeError):
        pickle.dumps(slot)


def test_small_frames_take_no_slot(pool: "_slots.SlotPool") -> None:
    builder, twin = codec.FrameBuilder(CAPACITY, pool), TwinBuilder(CAPACITY)
    for number in range(3 * SLOTS):
        for each in (builder, twin):
            each.append(7, number, b"%d" % number)
        frame = builder.seal(*HEADER, number, 11)
        assert type(frame) is bytes
        assert frame == twin.seal(*HEADER, number, 11)
    # But the one that the builder works in.
    assert pool.unused == SLOTS - 1


def test_without_a_free_slot_frames_are_bytes_until_one_is_free_again(pool: "_slots.SlotPool") -> None:
    builder = codec.FrameBuilder(CAPACITY, pool)

    def seal(number: int) -> bytes:
        assert builder.extend(7, 0, payloads(40, 1000, number)) == 40
        return builder.seal(*HEADER, number, 11)

    held = [seal(number) for number in range(SLOTS + 3)]
    # The builder has one too. The other half is for copies.
    assert [type(each) for each in held] == [_slots.Slot] * KEPT + [bytes] * (SLOTS + 3 - KEPT)
    assert pool.unused == SLOTS - KEPT
    # All of them are still what they were.
    for number, frame in enumerate(held):
        (seen,) = codec.split(bytes(frame))
        assert seen.sequence == number
        assert payloads(40, 1000, number)[3] in bytes(frame)
    del held[1], frame
    # One was begun without a slot; the next has it.
    assert type(seal(100)) is bytes
    assert type(seal(101)) is _slots.Slot


def test_memory_stays_while_somebody_has_a_frame_in_it() -> None:
    pool = _slots.SlotPool(mmap.mmap(-1, SLOTS * _slots.SLOT_BYTES))
    builder = codec.FrameBuilder(CAPACITY, pool)
    builder.extend(7, 0, payloads(40, 1000))
    frame = builder.seal(*HEADER, 1, 11)
    view = memoryview(frame)
    before = bytes(frame)
    del pool, builder, frame
    assert bytes(view) == before


def test_a_builder_of_frames_too_large_for_a_slot_is_refused(pool: "_slots.SlotPool") -> None:
    with pytest.raises(UsageError, match="capacity"):
        codec.FrameBuilder(_slots.SLOT_FRAME_BYTES_MAX + 1, pool)
