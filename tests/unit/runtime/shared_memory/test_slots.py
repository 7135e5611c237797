"""Slots that one process writes while others read: a reader gets a frame as it was, or not at all."""

import mmap
import os
from random import Random

import pytest

from vivum.runtime.shared_memory import notes
from vivum.wire import codec

_slots = pytest.importorskip("vivum.runtime.shared_memory._slots", reason="the compiled part was not built")
pytestmark = pytest.mark.skipif(not codec.COMPILED, reason="the compiled part is turned off")

SLOTS = 8


@pytest.fixture
def memory() -> mmap.mmap:
    return mmap.mmap(-1, SLOTS * _slots.SLOT_BYTES)


def frames(count: int, size: int = 40_000, seed: int = 1) -> list[bytes]:
    random = Random(seed)
    return [random.randbytes(size) for _ in range(count)]


def test_what_was_written_is_read(memory: mmap.mmap) -> None:
    writer, reader = _slots.Slots(memory, SLOTS), _slots.SlotReader(memory)
    assert writer.slots == SLOTS
    for start in range(0, 20, 4):
        some = frames(20)[start : start + 4]
        assert reader.read(writer.write(some)) == some


def test_a_note_has_room_for_as_many_stamps_as_it_may_have() -> None:
    assert _slots.STAMP_BYTES == notes.STAMP_BYTES


def test_what_was_written_over_is_missed_and_never_mixed_up(memory: mmap.mmap) -> None:
    writer, reader = _slots.Slots(memory, SLOTS), _slots.SlotReader(memory)
    stamps = [writer.write([frame]) for frame in frames(SLOTS + 3)]
    assert [len(reader.read(each)) for each in stamps] == [0] * 3 + [1] * SLOTS
    assert reader.read(b"".join(stamps)) == frames(SLOTS + 3)[3:]


def test_a_slot_that_is_being_written_is_not_read(memory: mmap.mmap) -> None:
    writer, reader = _slots.Slots(memory, SLOTS), _slots.SlotReader(memory)
    stamps = writer.write(frames(1))
    # The stamp is gone while its owner writes.
    memory[:8] = bytes(8)
    assert reader.read(stamps) == []
    assert reader.read(bytes(8)) == [], "an empty slot must not match a stamp of zeros"


def test_a_length_beyond_the_slot_is_not_believed(memory: mmap.mmap) -> None:
    writer, reader = _slots.Slots(memory, SLOTS), _slots.SlotReader(memory)
    stamps = writer.write(frames(1))
    memory[8:12] = (_slots.FRAME_BYTES_MAX + 1).to_bytes(4, "little")
    assert reader.read(stamps) == []
    memory[8:12] = _slots.FRAME_BYTES_MAX.to_bytes(4, "little")
    assert len(reader.read(stamps)[0]) == _slots.FRAME_BYTES_MAX


@pytest.mark.parametrize("seed", range(3))
def test_damaged_stamps_give_frames_that_were_written_or_nothing(memory: mmap.mmap, seed: int) -> None:
    writer, reader = _slots.Slots(memory, SLOTS), _slots.SlotReader(memory)
    sent = frames(SLOTS)
    stamps, random = writer.write(sent), Random(seed)
    for _ in range(5_000):
        damaged = bytearray(stamps)
        for _ in range(random.randrange(1, 4)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        cut = random.choice((len(stamps), len(stamps), len(stamps) - 1, 7, 0))
        assert all(each in sent for each in reader.read(bytes(damaged[:cut])))


def test_what_does_not_fit_a_slot_is_left_out_with_all_behind_it(memory: mmap.mmap) -> None:
    writer = _slots.Slots(memory, SLOTS)
    large = bytes(_slots.FRAME_BYTES_MAX + 1)
    assert writer.write([large]) == b""
    assert len(writer.write([large[:-1], large, b"small"])) == _slots.STAMP_BYTES
    with pytest.raises(TypeError):
        writer.write(["text"])
    with pytest.raises(ValueError, match="a slot has"):
        _slots.Slots(mmap.mmap(-1, 4096), 1)


@pytest.mark.parametrize("reserved", [1, 3, SLOTS])
def test_copies_rest_in_their_share_of_the_memory(memory: mmap.mmap, reserved: int) -> None:
    writer, reader = _slots.Slots(memory, reserved), _slots.SlotReader(memory)
    stamps = [writer.write([frame]) for frame in frames(3 * SLOTS)]
    assert reader.read(b"".join(stamps)) == frames(3 * SLOTS)[-reserved:]
    assert sum(any(memory[at : at + 8]) for at in range(0, len(memory), _slots.SLOT_BYTES)) == reserved


def test_what_was_read_stays_when_its_slot_is_written_over(memory: mmap.mmap) -> None:
    writer, reader = _slots.Slots(memory, SLOTS), _slots.SlotReader(memory)
    taken = reader.read(writer.write(frames(SLOTS)))
    writer.write(frames(SLOTS, seed=2))
    assert taken == frames(SLOTS)


ROUNDS = 3_000


def test_a_reader_beside_a_busy_writer_gets_every_frame_right_or_not_at_all() -> None:
    """A ring of two slots, so that frames are written over while they are read."""
    memory = mmap.mmap(-1, 2 * _slots.SLOT_BYTES)
    said, told = os.pipe()
    child = os.fork()
    if child == 0:
        # Else it would be its own reader, and wait for ever when there is no other any more.
        os.close(said)
        try:
            writer = _slots.Slots(memory, 2)
            for number in range(ROUNDS):
                os.write(told, writer.write([number.to_bytes(4, "little") * 15_000]))
        finally:
            os._exit(0)
    os.close(told)
    reader, right, gone = _slots.SlotReader(memory), 0, 0
    try:
        for number in range(ROUNDS):
            stamps = b""
            while len(stamps) < 8:
                stamps += os.read(said, 8 - len(stamps))
            taken = reader.read(stamps)
            assert taken in ([], [number.to_bytes(4, "little") * 15_000])
            right, gone = right + len(taken), gone + (not taken)
    finally:
        os.close(said)
        os.waitpid(child, 0)
    assert right > 0
    assert right + gone == ROUNDS
