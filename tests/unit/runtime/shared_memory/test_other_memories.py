"""Memories of other nodes: when they are asked for, what waits for them, and whose notes count."""

import mmap

import pytest

from vivum.core.ids import Endpoint
from vivum.runtime.port import Arrived
from vivum.runtime.shared_memory import memory, other_memories
from vivum.runtime.shared_memory.notes import local_address, pack_complaint, pack_note
from vivum.runtime.shared_memory.other_memories import (
    ASK_S,
    ASKED_MAX,
    HELD_NOTES_MAX,
    MEMORIES_MAX,
    SILENT_S,
    OtherMemories,
)

_slots = pytest.importorskip("vivum.runtime.shared_memory._slots", reason="the compiled part was not built")
pytestmark = pytest.mark.skipif(not memory.IS_AVAILABLE, reason="the compiled part is turned off")

OWNER, STRANGER = Endpoint("127.0.0.1", 7), Endpoint("127.0.0.1", 8)
KEY = 5


class Reader:
    """Memories of others, with a clock and a network that a test moves by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.asked: list[bytes] = []
        self.complaints: list[tuple[Endpoint, bytes]] = []
        self.is_anybody_there = True
        self.others = OtherMemories(self._ask, lambda *complaint: self.complaints.append(complaint))
        monkeypatch.setattr(other_memories.time, "monotonic", lambda: self.now_s)

    def _ask(self, address: bytes) -> bool:
        self.asked.append(address)
        return self.is_anybody_there

    def read(self, note: bytes, source: Endpoint = OWNER) -> list[bytes]:
        taken: Arrived = []
        self.others.read(source, note, taken)
        assert all(place == source for place, _ in taken)
        return [data for _, data in taken]

    def answer(self, key: int, owner: Endpoint | None, reader: "_slots.SlotReader | None") -> Arrived:
        taken: Arrived = []
        self.others.on_answer(local_address(key), owner, reader, taken)
        return taken


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(monkeypatch)


class Owner:
    """Writes frames, and has a note for each."""

    def __init__(self, key: int = KEY) -> None:
        shared = mmap.mmap(-1, 128 * _slots.SLOT_BYTES)
        self.reader = _slots.SlotReader(shared)
        self._key = key
        self._slots = _slots.Slots(shared, 128)

    def note(self, number: int) -> bytes:
        return pack_note(self._key, self._slots.write([b"%d" % number]))


def test_notes_wait_for_the_owner_s_word_and_only_the_owner_s_count(reader: Reader) -> None:
    owner = Owner()
    notes = [owner.note(number) for number in range(3)]
    for source, note in ((STRANGER, notes[0]), (OWNER, notes[0]), (STRANGER, notes[1]), (OWNER, notes[1])):
        assert reader.read(note, source) == []
    assert reader.asked == [local_address(KEY)], "once, however many wait"
    assert reader.answer(KEY, OWNER, owner.reader) == [(OWNER, b"0"), (OWNER, b"1")]
    assert reader.others.refused == 2
    assert reader.read(notes[2], STRANGER) == []
    assert reader.read(notes[2]) == [b"2"]
    assert (reader.others.refused, reader.others.frames_missed, reader.complaints) == (3, 0, [])


def test_a_question_is_asked_again_but_not_at_once(reader: Reader) -> None:
    owner = Owner()
    for elapsed_s, questions in ((0.0, 1), (ASK_S / 2, 1), (2 * ASK_S, 2), (2 * ASK_S, 3)):
        reader.now_s += elapsed_s
        assert reader.read(owner.note(1)) == []
        assert len(reader.asked) == questions
    assert len(reader.answer(KEY, OWNER, owner.reader)) == 4


def test_only_so_many_notes_wait_and_the_oldest_are_lost(reader: Reader) -> None:
    owner = Owner()
    for number in range(HELD_NOTES_MAX + 3):
        reader.read(owner.note(number))
    assert reader.others.frames_missed == 3
    taken = reader.answer(KEY, OWNER, owner.reader)
    assert [data for _, data in taken] == [b"%d" % number for number in range(3, HELD_NOTES_MAX + 3)]


def test_made_up_keys_are_asked_for_only_so_many_at_a_time(reader: Reader) -> None:
    for key in range(100, 100 + 2 * ASKED_MAX):
        reader.read(pack_note(key, bytes(8)), STRANGER)
    assert len(reader.asked) == ASKED_MAX
    owner = Owner()
    reader.read(owner.note(1))
    assert len(reader.asked) == ASKED_MAX
    reader.now_s += 2 * ASK_S
    reader.read(owner.note(2))
    assert reader.asked[-1] == local_address(KEY)
    assert reader.answer(KEY, OWNER, owner.reader) == [(OWNER, b"2")]


@pytest.mark.parametrize("is_refused", [True, False])
def test_who_cannot_have_the_memory_complains_once_in_a_while(reader: Reader, is_refused: bool) -> None:
    owner = Owner()
    reader.is_anybody_there = is_refused
    for turn in range(1, 4):
        assert reader.read(owner.note(1)) == []
        if is_refused:
            assert reader.answer(KEY, None, None) == []
        for _ in range(10):
            assert reader.read(owner.note(1)) == []
        assert reader.complaints == [(OWNER, pack_complaint(KEY))] * turn
        assert reader.others.frames_missed == 11 * turn
        reader.now_s += 2 * ASK_S
    reader.is_anybody_there = True
    reader.read(owner.note(7))
    assert reader.answer(KEY, OWNER, owner.reader) == [(OWNER, b"7")]


def test_an_answer_to_no_question_is_refused(reader: Reader) -> None:
    owner = Owner()
    assert reader.answer(KEY, OWNER, owner.reader) == []
    reader.read(owner.note(1))
    assert reader.answer(KEY + 1, OWNER, owner.reader) == []
    assert reader.others.refused == 2
    assert reader.answer(KEY, OWNER, owner.reader) == [(OWNER, b"1")]


def test_memory_that_was_silent_is_let_go_when_another_comes(reader: Reader) -> None:
    owners = [Owner(key) for key in range(MEMORIES_MAX + 2)]

    def meet(key: int) -> None:
        reader.read(owners[key].note(1))
        assert reader.answer(key, OWNER, owners[key].reader) == [(OWNER, b"1")]

    meet(0)
    reader.now_s += SILENT_S + 1
    assert reader.read(owners[0].note(2)) == [b"2"], "silence alone changes nothing"
    reader.now_s += SILENT_S + 1
    meet(1)
    assert reader.read(owners[0].note(3)) == [], "it must be asked for again"
    for key in range(2, MEMORIES_MAX + 2):
        reader.now_s += SILENT_S / 1000
        meet(key)
    assert reader.read(owners[1].note(2)) == [], "nor are more kept than the limit"
    assert reader.read(owners[2].note(2)) == [b"2"]
