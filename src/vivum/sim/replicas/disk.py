"""The disk of a simulated replica: the bytes of a write-ahead log, which crashes tear and time flips bits of.

A replica that dies while a record is being written finds it whole, torn or not there: until the write is forced, any of
these may be. Everything before was forced.
"""

from random import Random

from vivum.protocols.consensus.records import Recovery, StoredState, entries_record, read_stored_record
from vivum.storage.write_ahead.record_format import frame_record, scan_records


class SimulatedDisk:
    """Survives its replica's lives."""

    def __init__(self, rng: Random) -> None:
        self.content = bytearray()
        self.torn = 0
        self.flipped = 0
        self._rng = rng
        self._number = 0
        # Where each record begins.
        self._starts: list[int] = []

    def append(self, record: bytes, *, is_dying: bool = False) -> None:
        """Write and force a record; or die over it."""
        framed = frame_record(self._number, record)
        if is_dying:
            self.torn += 1
            self.content += framed[: self._rng.choice([0, self._rng.randrange(len(framed)), len(framed)])]
            return
        self._starts.append(len(self.content))
        self._number += 1
        self.content += framed

    def flip_a_bit(self) -> None:
        """Damage a record that has others behind it; not the first, without which there is no log."""
        if len(self._starts) > 2:
            which = self._rng.randrange(1, len(self._starts) - 1)
            at = self._rng.randrange(self._starts[which], self._starts[which + 1])
            self.content[at] ^= 1 << self._rng.randrange(8)
            self.flipped += 1

    def open(self) -> StoredState:
        """Read back what is there, as a store does: cut a torn tail, begin anew behind damage."""
        scanned = scan_records(self.content, 0, 0)
        recovery = Recovery()
        for record in scanned.records:
            recovery.take(read_stored_record(record))
        del self.content[scanned.stop :]
        self._number = len(scanned.records)
        self._starts = [each for each in self._starts if each < scanned.stop]
        if not scanned.lost:
            return recovery.finish()
        recovery.impair(map(read_stored_record, scanned.lost))
        state = recovery.finish()
        # What it lost must not be forgotten by the next crash.
        self.append(entries_record(state.promises, state.last_index, ()))
        return state
