"""Slots that one node writes and others read: nothing wrong is ever read, whatever is written over."""

import mmap
from random import Random

import pytest

from vivum.core.ids import Endpoint

_board = pytest.importorskip("vivum.runtime._board", reason="the compiled part was not built")

PLACE = Endpoint("127.0.0.1", 7)
SLOTS = 8


@pytest.fixture
def memory() -> mmap.mmap:
    return mmap.mmap(-1, SLOTS * _board.SLOT_BYTES)


def frames(count: int, size: int = 40_000, seed: int = 1) -> list[bytes]:
    random = Random(seed)
    return [random.randbytes(size) for _ in range(count)]


def test_what_was_written_is_read(memory: mmap.mmap) -> None:
    own, other = _board.Board(memory, 5, True), _board.Board(memory, 5, False)
    sent, taken = frames(20), []
    for start in range(0, 20, 4):
        note = own.write(sent[start : start + 4])
        assert len(note) == _board.NOTE_BYTES
        assert note.startswith(_board.NOTE_MARK)
        assert other.read(note, PLACE, taken) == 0
    assert taken == [(PLACE, frame) for frame in sent]


def test_what_was_written_over_is_missed_and_never_mixed_up(memory: mmap.mmap) -> None:
    own, other = _board.Board(memory, 5, True), _board.Board(memory, 5, False)
    notes = [own.write([frame]) for frame in frames(SLOTS + 3)]
    taken: list[tuple[Endpoint, bytes]] = []
    assert [other.read(note, PLACE, taken) for note in notes] == [1, 1, 1] + [0] * SLOTS
    assert [data for _, data in taken] == frames(SLOTS + 3)[3:]


def test_a_slot_that_is_being_written_is_not_read(memory: mmap.mmap) -> None:
    own, other = _board.Board(memory, 5, True), _board.Board(memory, 5, False)
    note = own.write(frames(1))
    # The stamp is gone while its owner writes.
    memory[:8] = bytes(8)
    taken: list[tuple[Endpoint, bytes]] = []
    assert other.read(note, PLACE, taken) == 1
    assert not taken


def test_a_length_beyond_the_slot_is_not_believed(memory: mmap.mmap) -> None:
    own, other = _board.Board(memory, 5, True), _board.Board(memory, 5, False)
    note = own.write(frames(1))
    memory[8:12] = (_board.FRAME_BYTES_MAX + 1).to_bytes(4, "little")
    taken: list[tuple[Endpoint, bytes]] = []
    assert other.read(note, PLACE, taken) == 1
    assert not taken


@pytest.mark.parametrize("seed", range(3))
def test_damaged_notes_give_frames_of_the_board_or_nothing(memory: mmap.mmap, seed: int) -> None:
    own, other = _board.Board(memory, 5, True), _board.Board(memory, 5, False)
    sent = frames(SLOTS)
    note, random = own.write(sent), Random(seed)
    for _ in range(20_000):
        damaged = bytearray(note)
        for _ in range(random.randrange(1, 4)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        taken: list[tuple[Endpoint, bytes]] = []
        other.read(bytes(damaged[: random.choice((24, 24, 24, 23, 0))]), PLACE, taken)
        assert all(data in sent for _, data in taken)


def test_misuse_is_refused(memory: mmap.mmap) -> None:
    own, other = _board.Board(memory, 5, True), _board.Board(memory, 5, False)
    with pytest.raises(ValueError, match="of another node"):
        other.write(frames(1))
    with pytest.raises(ValueError, match="too large for a slot"):
        own.write([bytes(_board.FRAME_BYTES_MAX + 1)])
    with pytest.raises(ValueError, match="at once"):
        own.write(frames(SLOTS + 1, 10))
    with pytest.raises(TypeError):
        own.write(["text"])
    with pytest.raises(ValueError, match="slots of"):
        _board.Board(mmap.mmap(-1, 4096), 5, True)
