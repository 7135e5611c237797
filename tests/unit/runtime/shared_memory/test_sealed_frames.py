"""Frames that are sealed in slots: the same bytes as without, one frame in a slot, small ones elsewhere."""

import mmap
import pickle
from random import Random

import pytest

from vivum.core.errors import UsageError
from vivum.wire import codec
from vivum.wire._codec_twin import FrameBuilder as TwinBuilder
from vivum.wire.kinds import Kind

_slots = pytest.importorskip("vivum.runtime.shared_memory._slots", reason="the compiled part was not built")
pytestmark = pytest.mark.skipif(not codec.COMPILED, reason="the compiled part is turned off")

SLOTS = 12
KEPT = SLOTS // 2
CAPACITY = 60_000
HEADER = (Kind.DATA, 1, 2, 3, 4, 5)


@pytest.fixture
def slots() -> "_slots.Slots":
    return _slots.Slots(mmap.mmap(-1, SLOTS * _slots.SLOT_BYTES), SLOTS // 2)


def payloads(count: int, size: int, seed: int = 1) -> list[bytes]:
    random = Random(seed)
    return [random.randbytes(size) for _ in range(count)]


@pytest.mark.parametrize("size", [10, 1000, 20_000])
def test_frames_are_the_same_bytes_as_without_slots(slots: "_slots.Slots", size: int) -> None:
    messages = payloads(4 * CAPACITY // size, size)
    arguments = ([(7, 0, messages, 0, 0)], 1, False, 100, 1 << 30, *HEADER, 9, 11)
    made = codec.FrameBuilder(CAPACITY, slots).seal_parts(*arguments)
    twin = TwinBuilder(CAPACITY).seal_parts(*arguments)
    assert len(made[0]) >= 3
    assert all(type(each.data) is not bytes for each in made[0][:-1]), "only the last may be small enough to copy"
    assert [bytes(each.data) for each in made[0]] == [each.data for each in twin[0]]
    assert made[2:] == twin[2:]


def test_a_frame_in_a_slot_acts_as_bytes_where_senders_need_it(slots: "_slots.Slots") -> None:
    builder, twin = codec.FrameBuilder(CAPACITY, slots), TwinBuilder(CAPACITY)
    for each in (builder, twin):
        each.extend(7, 0, payloads(40, 1000))
    sealed, frame = (each.seal(*HEADER, 9, 11) for each in (builder, twin))
    assert type(sealed) is not bytes
    assert bytes(sealed) == frame
    assert (len(sealed), sealed[1], sealed[-1], sealed[2:9]) == (len(frame), frame[1], frame[-1], frame[2:9])
    assert memoryview(sealed).readonly
    assert codec.resend(sealed) == codec.resend(frame)
    with pytest.raises(IndexError):
        sealed[len(frame)]
    with pytest.raises(TypeError):
        type(sealed)()
    with pytest.raises(TypeError):
        pickle.dumps(sealed)


def test_small_frames_take_no_slot(slots: "_slots.Slots") -> None:
    builder, twin = codec.FrameBuilder(CAPACITY, slots), TwinBuilder(CAPACITY)
    for number in range(3 * SLOTS):
        for each in (builder, twin):
            each.append(7, number, b"%d" % number)
        frame = builder.seal(*HEADER, number, 11)
        assert type(frame) is bytes
        assert frame == twin.seal(*HEADER, number, 11)
    # But the one that the builder works in.
    assert slots.unused == SLOTS - 1


def test_without_a_free_slot_frames_are_bytes_until_one_is_free_again(slots: "_slots.Slots") -> None:
    builder = codec.FrameBuilder(CAPACITY, slots)

    def seal(number: int) -> bytes:
        assert builder.extend(7, 0, payloads(40, 1000, number)) == 40
        return builder.seal(*HEADER, number, 11)

    held = [seal(number) for number in range(SLOTS + 3)]
    # The builder has one too. The other half is for copies.
    assert [type(each) is bytes for each in held] == [False] * KEPT + [True] * (SLOTS + 3 - KEPT)
    assert slots.unused == SLOTS - KEPT
    # All of them are still what they were.
    for number, frame in enumerate(held):
        (seen,) = codec.split(bytes(frame))
        assert seen.sequence == number
        assert payloads(40, 1000, number)[3] in bytes(frame)
    del held[1], frame
    # One was begun without a slot; the next has it.
    assert type(seal(100)) is bytes
    assert type(seal(101)) is not bytes


def test_memory_stays_while_somebody_has_a_frame_in_it() -> None:
    slots = _slots.Slots(mmap.mmap(-1, SLOTS * _slots.SLOT_BYTES), SLOTS // 2)
    builder = codec.FrameBuilder(CAPACITY, slots)
    builder.extend(7, 0, payloads(40, 1000))
    frame = builder.seal(*HEADER, 1, 11)
    view = memoryview(frame)
    before = bytes(frame)
    del slots, builder, frame
    assert bytes(view) == before


def test_a_builder_of_frames_too_large_for_a_slot_is_refused(slots: "_slots.Slots") -> None:
    with pytest.raises(UsageError, match="capacity"):
        codec.FrameBuilder(_slots.FRAME_BYTES_MAX + 1, slots)


def test_sealed_frames_are_read_while_somebody_holds_them_and_then_written_over(slots: "_slots.Slots") -> None:
    memory = mmap.mmap(-1, SLOTS * _slots.SLOT_BYTES)
    slots, reader = _slots.Slots(memory, SLOTS // 2), _slots.SlotReader(memory)
    builder = codec.FrameBuilder(CAPACITY, slots)

    def seal(number: int) -> bytes:
        builder.extend(7, 0, payloads(40, 1000, number))
        return builder.seal(*HEADER, number, 11)

    held = [seal(number) for number in range(4)]
    stamps = [slots.write([frame]) for frame in held]
    assert stamps == [slots.write([frame]) for frame in held], "one frame, one stamp"
    before = [bytes(frame) for frame in held]
    held[1] = b""
    more = [seal(number) for number in range(4, 6)]
    assert len(more) == 2
    assert reader.read(b"".join(stamps)) == [before[0], before[2], before[3]]


def test_sealed_frames_and_copies_go_side_by_side(slots: "_slots.Slots") -> None:
    memory = mmap.mmap(-1, SLOTS * _slots.SLOT_BYTES)
    slots, reader = _slots.Slots(memory, KEPT), _slots.SlotReader(memory)
    builder, held = codec.FrameBuilder(CAPACITY, slots), []
    for number in range(2 * SLOTS):
        builder.extend(7, 0, payloads(40, 1000, number))
        held.append(builder.seal(*HEADER, number, 11))
        # Once the slots for sealed frames are taken, the rest are copied.
        assert reader.read(slots.write(held[-1:])) == [bytes(held[-1])]
    assert sum(type(each) is not bytes for each in held) == SLOTS - KEPT
    assert slots.unused == KEPT, "what is reserved is for copies"
