"""Slots that one node writes and others read: nothing wrong is ever read, whatever is written over."""

import mmap
from random import Random

import pytest

from vivum.core.ids import Endpoint
from vivum.runtime import boards
from vivum.wire import codec
from vivum.wire.kinds import Kind

_board = pytest.importorskip("vivum.runtime._board", reason="the compiled part was not built")
_slots = pytest.importorskip("vivum.wire._slots", reason="the compiled part was not built")
pytestmark = pytest.mark.skipif(not codec.COMPILED, reason="the compiled part is turned off")

NAME = 5
PLACE = Endpoint("127.0.0.1", 7)
SLOTS = 8


@pytest.fixture
def memory() -> mmap.mmap:
    return mmap.mmap(-1, SLOTS * _slots.SLOT_BYTES)


def frames(count: int, size: int = 40_000, seed: int = 1) -> list[bytes]:
    random = Random(seed)
    return [random.randbytes(size) for _ in range(count)]


def test_what_was_written_is_read(memory: mmap.mmap) -> None:
    pool, other = _slots.SlotPool(memory, SLOTS), _board.Board(memory, NAME)
    sent, taken = frames(20), []
    for start in range(0, 20, 4):
        note, count = _board.write(pool, NAME, sent[start : start + 4])
        assert count == 4
        assert note.startswith(_board.NOTE_MARK)
        assert other.read(note, PLACE, taken) == 0
    assert taken == [(PLACE, frame) for frame in sent]


def test_a_note_is_what_those_expect_who_cannot_read_boards(memory: mmap.mmap) -> None:
    note, count = _board.write(_slots.SlotPool(memory, SLOTS), NAME, frames(3))
    assert boards.NOTE.unpack_from(note) == (boards.NOTE_MARK, count, NAME)
    assert len(note) == boards.NOTE.size + count * boards.STAMP_BYTES
    assert _board.FRAMES_MAX == boards.NOTE_FRAMES_MAX
    assert _slots.SLOT_FRAME_BYTES_MIN == boards.BOARD_FRAME_BYTES_MIN


def test_a_note_is_of_no_more_frames_than_it_may(memory: mmap.mmap) -> None:
    sent, taken = frames(_board.FRAMES_MAX + 2, 100), []
    note, count = _board.write(_slots.SlotPool(memory, SLOTS), NAME, sent)
    assert count == _board.FRAMES_MAX
    assert _board.Board(memory, NAME).read(note, PLACE, taken) == 0
    assert [data for _, data in taken] == sent[:count]


def test_what_was_written_over_is_missed_and_never_mixed_up(memory: mmap.mmap) -> None:
    pool, other = _slots.SlotPool(memory, SLOTS), _board.Board(memory, NAME)
    notes = [_board.write(pool, NAME, [frame])[0] for frame in frames(SLOTS + 3)]
    taken: list[tuple[Endpoint, bytes]] = []
    assert [other.read(note, PLACE, taken) for note in notes] == [1, 1, 1] + [0] * SLOTS
    assert [data for _, data in taken] == frames(SLOTS + 3)[3:]


def test_a_slot_that_is_being_written_is_not_read(memory: mmap.mmap) -> None:
    pool, other = _slots.SlotPool(memory, SLOTS), _board.Board(memory, NAME)
    note, _ = _board.write(pool, NAME, frames(1))
    # The stamp is gone while its owner writes.
    memory[:8] = bytes(8)
    taken: list[tuple[Endpoint, bytes]] = []
    assert other.read(note, PLACE, taken) == 1
    # Nor by a note that asks for just that.
    assert other.read(note[: boards.NOTE.size] + bytes(8), PLACE, taken) == 1
    assert not taken


def test_a_length_beyond_the_slot_is_not_believed(memory: mmap.mmap) -> None:
    pool, other = _slots.SlotPool(memory, SLOTS), _board.Board(memory, NAME)
    note, _ = _board.write(pool, NAME, frames(1))
    memory[8:12] = (_slots.SLOT_FRAME_BYTES_MAX + 1).to_bytes(4, "little")
    taken: list[tuple[Endpoint, bytes]] = []
    assert other.read(note, PLACE, taken) == 1
    assert not taken


@pytest.mark.parametrize("seed", range(3))
def test_damaged_notes_give_frames_of_the_board_or_nothing(memory: mmap.mmap, seed: int) -> None:
    pool, other = _slots.SlotPool(memory, SLOTS), _board.Board(memory, NAME)
    sent = frames(SLOTS)
    (note, _), random = _board.write(pool, NAME, sent), Random(seed)
    for _ in range(20_000):
        damaged = bytearray(note)
        for _ in range(random.randrange(1, 4)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        taken: list[tuple[Endpoint, bytes]] = []
        cut = random.choice((len(note), len(note), len(note), len(note) - 1, 16, 0))
        other.read(bytes(damaged[:cut] + random.choice((b"", b"", b"12345678"))), PLACE, taken)
        assert all(data in sent for _, data in taken)


@pytest.mark.parametrize("reserved", [1, 3, SLOTS])
def test_copies_rest_in_their_share_of_the_memory(memory: mmap.mmap, reserved: int) -> None:
    pool, other = _slots.SlotPool(memory, reserved), _board.Board(memory, NAME)
    notes = [_board.write(pool, NAME, [frame])[0] for frame in frames(3 * SLOTS)]
    taken: list[tuple[Endpoint, bytes]] = []
    for note in notes:
        other.read(note, PLACE, taken)
    assert [data for _, data in taken] == frames(3 * SLOTS)[-reserved:]
    assert sum(any(memory[at : at + 8]) for at in range(0, len(memory), _slots.SLOT_BYTES)) == reserved


@pytest.mark.parametrize("reserved", [1, 3, SLOTS])
def test_frames_that_are_kept_never_have_what_is_reserved(memory: mmap.mmap, reserved: int) -> None:
    pool = _slots.SlotPool(memory, reserved)
    builder, kept = codec.FrameBuilder(60_000, pool), []
    for number in range(2 * SLOTS):
        builder.extend(7, 0, frames(1, 50_000, number))
        kept.append(builder.seal(Kind.DATA, 1, 2, 3, 4, 5, number, 11))
    assert sum(type(each) is _slots.Slot for each in kept) == SLOTS - reserved
    assert pool.unused == reserved


def test_frames_that_are_kept_leave_room_for_copies(memory: mmap.mmap) -> None:
    pool, other = _slots.SlotPool(memory, SLOTS // 2), _board.Board(memory, NAME)
    builder, kept, taken = codec.FrameBuilder(60_000, pool), [], []
    for number in range(2 * SLOTS):
        builder.extend(7, 0, frames(1, 50_000, number))
        kept.append(builder.seal(Kind.DATA, 1, 2, 3, 4, 5, number, 11))
        note, count = _board.write(pool, NAME, kept[-1:])
        assert count == 1
        assert other.read(note, PLACE, taken) == 0
    assert {type(each) for each in kept} == {bytes, _slots.Slot}
    is_lent = [type(data) is _slots.Lent for _, data in taken]
    assert is_lent == [type(each) is _slots.Slot for each in kept], "what is not kept is copied"
    assert [data.copy() if lent else data for (_, data), lent in zip(taken, is_lent, strict=True)] == list(
        map(bytes, kept)
    )


def test_what_cannot_be_written_is_left_to_datagrams(memory: mmap.mmap) -> None:
    pool = _slots.SlotPool(memory, SLOTS)
    assert _board.write(pool, NAME, [bytes(_slots.SLOT_FRAME_BYTES_MAX + 1)])[1] == 0
    with pytest.raises(TypeError):
        _board.write(pool, NAME, ["text"])
    with pytest.raises(ValueError, match="slots have"):
        _slots.SlotPool(mmap.mmap(-1, 4096))
