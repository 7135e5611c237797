"""Frames that are read where their sender made them: what is used is the frame as it was, or it is gone."""

import mmap
import os
from random import Random

import pytest

from vivum.core.errors import DecodeError
from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.observe.counters import Counters
from vivum.wire import codec
from vivum.wire.codec import FLAG_MORE, Frame
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind

_board = pytest.importorskip("vivum.runtime._board", reason="the compiled part was not built")
_slots = pytest.importorskip("vivum.wire._slots", reason="the compiled part was not built")
pytestmark = pytest.mark.skipif(not codec.COMPILED, reason="the compiled part is turned off")

PLACE = Endpoint("127.0.0.1", 7)
SLOTS = 16
PER_FRAME = 40
SIZE = 1_000


class Sender:
    """Seals frames on a board, and keeps them for as long as it is told to."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, SLOTS * _slots.SLOT_BYTES)
        self.board = _board.Board(self.memory, 5)
        self._pool = _slots.SlotPool(self.memory)
        self._builder = codec.FrameBuilder(60_000, self._pool)
        self.kept: list[bytes] = []
        self.next = 0

    def send(self, count: int, groups: tuple[int, ...] = (1,)) -> list[bytes]:
        """Return what a reader gets for some more frames."""
        start = len(self.kept)
        for _ in range(count):
            for group in groups:
                self._builder.extend(group, self.next, messages(self.next, PER_FRAME // len(groups)))
            self.next += PER_FRAME // len(groups)
            self.kept.append(self._builder.seal(Kind.DATA, 1, 2, 3, 4, 5, len(self.kept), 11))
        return self.read(self.kept[start:])

    def send_piece(self) -> list[bytes]:
        self._builder.append_fragment(1, 0, FLAG_MORE, bytes(50_000), 70_000)
        self.kept.append(self._builder.seal(Kind.DATA, 1, 2, 3, 4, 5, 0, 11))
        return self.read(self.kept[-1:])

    def read(self, frames: list[bytes]) -> list[bytes]:
        note, count = _board.write(self._pool, 5, frames)
        taken: list[tuple[Endpoint, bytes]] = []
        assert count == len(frames)
        assert self.board.read(note, PLACE, taken) == 0
        return [data for _, data in taken]

    def withdraw(self, index: int) -> None:
        """Give a slot up: the next frame is made there, the last one freed first."""
        self.kept[index] = b""
        self._builder.extend(9, 0, [b"something else" * 3_000])
        # The builder has begun its next frame in a slot before this: two frames on it is written over.
        for _ in range(2):
            self._builder.seal(Kind.DATA, 1, 2, 3, 4, 5, 99, 11, pad_to=50_000)


def messages(first: int, count: int) -> list[bytes]:
    return [(b"%d:" % number) * (SIZE // len(b"%d:" % number)) for number in range(first, first + count)]


def opened(lent: list[bytes]) -> list[Frame]:
    return [frame for data in lent for frame in codec.split(data)]


def test_messages_are_cut_where_they_are() -> None:
    lent = Sender().send(3)
    assert {type(data) for data in lent} == {_slots.Lent}
    taken, runs = codec.take_runs(opened(lent), 1_000)
    assert (taken, runs) == (3, [(0, 1, 0, 0, messages(0, 3 * PER_FRAME))])


def test_frames_of_several_groups_and_pieces_of_messages_are_cut_as_others_are() -> None:
    sender = Sender()
    for lent in (sender.send(2, (1, 2)), Sender().send_piece()):
        there = codec.take_runs(opened(lent), 1_000)
        copies = [frame for data in lent for frame in codec.split(data.copy())]  # type: ignore[attr-defined]
        assert there == codec.take_runs(copies, 1_000)
        assert there[0] == len(lent)


def test_a_frame_that_is_kept_stays_and_one_that_is_not_is_gone() -> None:
    sender = Sender()
    frames = opened(sender.send(2))
    before = [bytes(each) for each in sender.kept]
    assert frames[0].keep()
    for index in (0, 1):
        sender.withdraw(index)
    assert frames[0].keep()
    assert frames[0].to_bytes() == frames[0].data == before[0]
    assert frames[0].messages() == [(1, 0, 0, messages(0, PER_FRAME))]
    assert not frames[1].keep()
    for look in (frames[1].messages, frames[1].to_bytes, frames[1].body, lambda: frames[1].data):
        with pytest.raises(LookupError, match="not where it was lent"):
            look()
    assert (frames[1].sequence, frames[1].sender, frames[1].kind) == (1, 2, Kind.DATA)


@pytest.mark.parametrize("groups", [(1,), (1, 2)])
@pytest.mark.parametrize("packed", [frozenset(), frozenset([1])])
def test_what_is_before_a_frame_that_is_gone_is_taken(groups: tuple[int, ...], packed: frozenset[int]) -> None:
    for gone in range(4):
        sender = Sender()
        frames = opened(sender.send(4, groups))
        sender.withdraw(gone)
        taken, runs = codec.take_runs(frames, 1_000, packed)
        assert taken == gone
        found = [message for _, group, _, _, run in runs if group == 1 for message in run]
        assert found == messages(0, gone * PER_FRAME // len(groups))


def split_batches(sender: Sender) -> list[bytes]:
    """Seal batches of three groups in turn, each half in one frame and half in the next."""
    half, start = PER_FRAME // 2, len(sender.kept)
    for number in range(4):
        sender._builder.extend(number, half, messages(half, half))
        sender._builder.extend(number + 1, 0, messages(0, half))
        sender.kept.append(sender._builder.seal(Kind.DATA, 1, 2, 3, 4, 5, number, 11))
    return sender.read(sender.kept[start:])


@pytest.mark.parametrize("packed", [frozenset(), frozenset([1, 2])])
def test_nothing_of_a_frame_that_is_gone_is_in_a_run_that_goes_on_there(packed: frozenset[int]) -> None:
    half = PER_FRAME // 2
    for gone in range(5):
        sender = Sender()
        frames = opened(split_batches(sender))
        if gone < 4:
            sender.withdraw(gone)
        joint = [(each - 1, each, 0, 0, messages(0, PER_FRAME)) for each in range(1, gone)]
        ends = [(0, 0, half, 0, messages(half, half)), *joint, (gone - 1, gone, 0, 0, messages(0, half))]
        assert codec.take_runs(frames, 1_000, packed) == (gone, ends if gone else [])


def test_a_frame_that_is_gone_is_gone_for_a_run_with_pieces_behind_it() -> None:
    """Pieces make that a frame is copied before it is cut."""
    sender = Sender()
    sender._builder.extend(1, 0, messages(0, PER_FRAME))
    sender.kept.append(sender._builder.seal(Kind.DATA, 1, 2, 3, 4, 5, 0, 11))
    sender._builder.extend(1, PER_FRAME, messages(PER_FRAME, 5))
    sender._builder.extend(2, 0, [b"other"])
    sender._builder.append_fragment(3, 0, FLAG_MORE, bytes(40_000), 70_000)
    sender.kept.append(sender._builder.seal(Kind.DATA, 1, 2, 3, 4, 5, 1, 11))
    frames = opened(sender.read(sender.kept))
    taken, runs = codec.take_runs(frames, 1_000)
    assert (taken, [run[:4] for run in runs]) == (2, [(0, 1, 0, 0), (1, 2, 0, 0), (1, 3, 0, FLAG_MORE)])
    assert runs[0][4] == messages(0, PER_FRAME + 5)
    frames = opened(sender.read(sender.kept))
    sender.withdraw(1)
    assert codec.take_runs(frames, 1_000) == (1, [(0, 1, 0, 0, messages(0, PER_FRAME))])


def test_a_frame_that_is_gone_before_it_is_looked_at_is_none() -> None:
    sender = Sender()
    (lent,) = sender.send(1)
    sender.withdraw(0)
    assert lent.copy() is None  # type: ignore[attr-defined]
    try:
        frames = codec.split(lent)
    except DecodeError:
        frames = []
    assert codec.take_runs(frames, 1_000) == (0, [])


def test_what_is_not_a_frame_is_refused_as_in_a_datagram() -> None:
    sender = Sender()
    (lent,) = sender.send(1)
    sender.memory[64] ^= 0xFF
    with pytest.raises(DecodeError):
        codec.split(lent)
    sender.memory[64] ^= 0xFF
    sender.memory[66:68] = (20_000).to_bytes(2, "little")
    with pytest.raises(DecodeError):
        codec.split(lent)


def test_a_header_that_was_changed_after_the_check_is_nothing_to_keep() -> None:
    for place, value in ((64, 9), (65, Kind.TOKEN), (66, 7), (65, 0)):
        sender = Sender()
        (frame,) = opened(sender.send(1))
        sender.memory[place] = value
        assert not frame.keep()


def test_a_blank_one_is_gone() -> None:
    blank = _slots.Lent.__new__(_slots.Lent)
    assert blank.copy() is None
    assert codec.split(blank) == []


def test_what_is_gone_before_or_while_it_is_looked_at_counts_as_that_and_not_as_bad() -> None:
    sender, counters = Sender(), Counters()
    gate = Gate(1, counters, Member(NodeId(2), Incarnation(1)))
    first, second = sender.send(2)
    sender.memory[:8] = bytes(8)
    sender.memory[64] ^= 0xFF
    assert gate.open(0, PLACE, first) == []
    assert (counters.frames_gone, counters.frames_refused_version) == (1, 0)
    sender.memory[_slots.SLOT_BYTES + 64] ^= 0xFF
    assert gate.open(0, PLACE, second) == []
    assert (counters.frames_gone, counters.frames_refused_version) == (1, 1)


@pytest.mark.parametrize("seed", range(4))
def test_a_sender_that_writes_over_what_it_showed_harms_nobody(seed: int) -> None:
    """It takes no stamp away: lengths and counts change under who cuts. What comes out is bytes of the frame."""
    random = Random(seed)
    for _ in range(300):
        sender = Sender()
        ways = (
            lambda sender=sender: [*sender.send(2), *sender.send(1, (1, 2))],
            lambda sender=sender: split_batches(sender),
            sender.send_piece,
        )
        lent = random.choices(ways, (4, 4, 2))[0]()
        frames = opened(lent)
        for _ in range(random.randrange(1, 6)):
            slot = random.randrange(len(lent)) * _slots.SLOT_BYTES
            place = random.choice((66, 104, 108, 116, 118, 118 + random.randrange(40_000)))
            sender.memory[slot + place] = random.randrange(256)
        packed = random.choice((frozenset(), frozenset([1])))
        taken, runs = codec.take_runs(frames, 1_000, packed)
        assert 0 <= taken <= len(frames)
        for index, group, first, flags, run in runs:
            assert index < taken
            assert group <= codec.GROUP_MAX
            assert first + len(run) <= codec.SEQUENCE_MAX + 1
            assert len(run) > 0
            assert sum(map(len, run)) <= 60_000 * len(frames)
            assert not flags or len(run[-1]) > 4
        for frame in frames:
            if frame.keep():
                frame.messages()


def test_a_reader_beside_a_busy_writer_gets_every_frame_right_or_not_at_all() -> None:
    memory = mmap.mmap(-1, SLOTS * _slots.SLOT_BYTES)
    said, told = os.pipe()
    child = os.fork()
    if child == 0:
        # Else it would be its own reader, and wait for ever when there is no other any more.
        os.close(said)
        try:
            _write_all(memory, told)
        finally:
            os._exit(0)
    os.close(told)
    try:
        right, gone = _read_all(memory, said)
    finally:
        os.close(said)
        os.waitpid(child, 0)
    assert right > 0
    assert right + gone == NOTES


NOTES = 3_000


def _write_all(memory: mmap.mmap, told: int) -> None:
    pool = _slots.SlotPool(memory)
    builder = codec.FrameBuilder(60_000, pool)
    for number in range(NOTES):
        builder.extend(1, number * PER_FRAME, [b"%08d" % number * (SIZE // 8)] * PER_FRAME)
        # Nobody keeps it: its slot is soon used again.
        note, _ = _board.write(pool, 5, [builder.seal(Kind.DATA, 1, 2, 3, 4, 5, number, 11)])
        os.write(told, note)


def _read_all(memory: mmap.mmap, said: int) -> tuple[int, int]:
    board, right, gone = _board.Board(memory, 5), 0, 0
    for number in range(NOTES):
        note = b""
        while len(note) < 24:
            note += os.read(said, 24 - len(note))
        taken: list[tuple[Endpoint, bytes]] = []
        board.read(note, PLACE, taken)
        try:
            count, runs = codec.take_runs(opened([data for _, data in taken]), 1_000)
        except DecodeError:
            count, runs = 0, []
        if count:
            assert runs == [(0, 1, number * PER_FRAME, 0, [b"%08d" % number * (SIZE // 8)] * PER_FRAME)]
            right += 1
        else:
            assert runs == []
            gone += 1
    return right, gone
