"""The memories of other nodes: requested when the first note comes, read for every note.

The owner of a memory names the endpoint of its notes over a local socket, where the kernel guarantees its identity.
Notes from elsewhere are refused, and notes that came before the answer wait for it: a stranger's first note changes
nothing.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vivum.core.ids import Endpoint
from vivum.runtime.port import Arrived
from vivum.runtime.shared_memory import memory
from vivum.runtime.shared_memory.notes import STAMP_BYTES, local_address, pack_complaint, unpack_note

if TYPE_CHECKING:
    from vivum.runtime.shared_memory._slots import SlotReader

MEMORIES_MAX = 64
"""Memories that a node keeps mapped. At the limit, the one silent for longest is unmapped."""

SILENT_S = 10.0
"""A memory silent for this long is unmapped when another comes: its owner may be gone."""

ASK_S = 0.1
"""How long to wait before asking for memory again, and the least time between two complaints."""

ASKED_MAX = 64
"""The most requests at once: bounds the effect of made-up keys."""

HELD_NOTES_MAX = 64
"""The most notes that wait for an answer. Beyond that the oldest are lost."""


@dataclass(slots=True)
class _Other:
    owner: Endpoint
    reader: "SlotReader"
    read_at_s: float


@dataclass(slots=True)
class _Asked:
    key: int
    at_s: float
    is_waiting: bool
    """Whether an answer may still come. If not, it is too early to ask again."""


class OtherMemories:
    """The memories of others that this node can read."""

    def __init__(self, ask: Callable[[bytes], bool], complain: Callable[[Endpoint, bytes], None]) -> None:
        """Begin with none. `ask` sends to a local address; False if nobody is there. `complain` uses UDP."""
        self.frames_missed = 0
        self.refused = 0
        self._ask = ask
        self._complain = complain
        self._others: dict[int, _Other] = {}
        self._asked: dict[bytes, _Asked] = {}
        self._held: deque[tuple[Endpoint, int, bytes]] = deque()

    def read(self, source: Endpoint, note: bytes, taken: Arrived) -> None:
        """Append the frames that a note stands for, or hold the note until its memory is mapped."""
        found = unpack_note(note)
        if found is None:
            self.refused += 1
            return
        key, stamps = found
        other = self._others.get(key)
        if other is None:
            self._want(source, key, stamps)
        else:
            self._copy(other, source, stamps, taken)

    def _copy(self, other: _Other, source: Endpoint, stamps: bytes, taken: Arrived) -> None:
        if source != other.owner:
            self.refused += 1
            return
        other.read_at_s = time.monotonic()
        frames = other.reader.read(stamps)
        self.frames_missed += len(stamps) // STAMP_BYTES - len(frames)
        taken += [(source, frame) for frame in frames]

    # Memory that is not known yet.

    def _want(self, source: Endpoint, key: int, stamps: bytes) -> None:
        """Ask for the memory of a note and hold the note; complain to its sender if that is impossible."""
        now_s = time.monotonic()
        address = local_address(key)
        asked = self._asked.get(address)
        if asked is None or now_s - asked.at_s >= ASK_S:
            asked = self._remember(address, key, now_s)
            if asked is not None:
                asked.is_waiting = memory.IS_AVAILABLE and self._ask(address)
                if not asked.is_waiting:
                    self._complain(source, pack_complaint(key))
        if asked is None or not asked.is_waiting:
            self.frames_missed += len(stamps) // STAMP_BYTES
            return
        self._held.append((source, key, stamps))
        if len(self._held) > HELD_NOTES_MAX:
            self.frames_missed += len(self._held.popleft()[2]) // STAMP_BYTES

    def _remember(self, address: bytes, key: int, now_s: float) -> _Asked | None:
        """Remember a request for memory; return None if there are too many."""
        if address not in self._asked and len(self._asked) >= ASKED_MAX:
            self._asked = {each: asked for each, asked in self._asked.items() if now_s - asked.at_s < ASK_S}
            if len(self._asked) >= ASKED_MAX:
                return None
        asked = self._asked[address] = _Asked(key, now_s, True)
        return asked

    def on_answer(self, address: bytes, owner: Endpoint | None, reader: "SlotReader | None", taken: Arrived) -> None:
        """Handle an answer from a local address: a memory and its owner's endpoint, or a refusal.

        Append the frames of notes that waited for it.
        """
        asked = self._asked.get(address)
        if asked is None or not asked.is_waiting:
            self.refused += 1
            return
        key = asked.key
        notes = [(source, stamps) for source, held_key, stamps in self._held if held_key == key]
        self._held = deque(each for each in self._held if each[1] != key)
        if owner is None or reader is None:
            asked.is_waiting = False
            self.frames_missed += sum(len(stamps) // STAMP_BYTES for _, stamps in notes)
            for source in dict.fromkeys(source for source, _ in notes):
                self._complain(source, pack_complaint(key))
            return
        del self._asked[address]
        self._forget_silent()
        other = self._others[key] = _Other(owner, reader, time.monotonic())
        for source, stamps in notes:
            self._copy(other, source, stamps, taken)

    def _forget_silent(self) -> None:
        silent_before_s = time.monotonic() - SILENT_S
        for key, other in sorted(self._others.items(), key=lambda item: item[1].read_at_s):
            if other.read_at_s < silent_before_s or len(self._others) >= MEMORIES_MAX:
                del self._others[key]

    def close(self) -> None:
        """Unmap all of them."""
        self._others.clear()
        self._asked.clear()
        self._held.clear()
