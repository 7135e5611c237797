"""The memory in which this node has large frames for the others of its machine."""

import os
import secrets
import time
from typing import TYPE_CHECKING

from vivum.runtime.shared_memory.memory import make_memory
from vivum.runtime.shared_memory.notes import NOTE_FRAMES_MAX, STAMP_BYTES, pack_note, unpack_complaint

if TYPE_CHECKING:
    from vivum.runtime.shared_memory._slots import Slots

PLAIN_S = 10.0
PLAIN_S_MAX = 600.0
"""For how long a node does without its memory after a complaint; twice as long each time, up to the limit."""


class OwnMemory:
    """The slots of this node, and whether all who hear of them can read them."""

    def __init__(self, buffer_bytes: int, is_wanted: bool) -> None:
        """Make memory for receive buffers of so many bytes, if it is wanted and can be had."""
        self.frames_written = 0
        self.key = secrets.randbits(64)
        self.descriptor = -1
        """What readers are handed; -1 if there is no memory."""

        self.slots: Slots | None = None
        """Where frames can be sealed, so that they need not be copied."""

        made = make_memory(buffer_bytes) if is_wanted else None
        if made is not None:
            self.descriptor, self.slots = made
        self._plain_until_s = 0.0
        self._plain_s = PLAIN_S
        self._last_copied: bytes | None = None
        self._last_note = b""

    @property
    def is_open(self) -> bool:
        """Whether frames may be put here: there is memory, and nobody complained of late."""
        return self.slots is not None and time.monotonic() >= self._plain_until_s

    def put(self, frames: list[bytes]) -> tuple[bytes, int]:
        """Show the first frames to others; return the note to send in their place, and how many it stands for.

        Those that were not sealed here are copied, and written over by later copies. Whoever has not read them by then
        has lost them, as datagrams that found a receive buffer full.
        """
        if self.slots is None or len(frames[0]) < self.slots.frame_bytes_min or not self.is_open:
            return b"", 0
        if len(frames) == 1 and frames[0] is self._last_copied:
            # Without multicast, every receiver is sent the same frame in turn.
            return self._last_note, 1
        stamps = self.slots.write(frames[:NOTE_FRAMES_MAX])
        count = len(stamps) // STAMP_BYTES
        if not count:
            return b"", 0
        self.frames_written += count
        self._last_note = pack_note(self.key, stamps)
        self._last_copied = frames[0] if count == 1 and type(frames[0]) is bytes else None
        return self._last_note, count

    def on_complaint(self, data: bytes) -> bool:
        """Do without the memory for a while, since somebody cannot read it; False if it is not about this memory.

        Whoever complains was sent a note, by unicast or to a channel that it hears: nobody else knows the key.
        """
        if unpack_complaint(data) != self.key:
            return False
        now_s = time.monotonic()
        if now_s >= self._plain_until_s:
            self._plain_until_s = now_s + self._plain_s
            self._plain_s = min(2 * self._plain_s, PLAIN_S_MAX)
        return True

    def close(self) -> None:
        """Let the memory go. Those who have it mapped keep it, and so do frames that somebody holds."""
        self.slots = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
