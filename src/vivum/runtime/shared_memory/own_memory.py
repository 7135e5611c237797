"""The memory in which this node keeps large frames for other nodes of its machine."""

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
"""How long a node does not use its memory after a complaint; doubles each time, up to the limit."""


class OwnMemory:
    """The slots of this node, and whether they may be used now."""

    def __init__(self, buffer_bytes: int, is_wanted: bool) -> None:
        """Make memory for receive buffers of this size, if it is wanted and available."""
        self.frames_written = 0
        self.key = secrets.randbits(64)
        self.descriptor = -1
        """The descriptor for readers; -1 if there is no memory."""

        self.slots: Slots | None = None
        """The slots, in which frames can be sealed without a copy."""

        made = make_memory(buffer_bytes) if is_wanted else None
        if made is not None:
            self.descriptor, self.slots = made
        self._plain_until_s = 0.0
        self._plain_s = PLAIN_S
        self._last_copied: bytes | None = None
        self._last_note = b""

    @property
    def is_open(self) -> bool:
        """Whether frames may go here: there is memory, and nobody complained recently."""
        return self.slots is not None and time.monotonic() >= self._plain_until_s

    def put(self, frames: list[bytes]) -> tuple[bytes, int]:
        """Make the first frames readable; return the note to send in their place, and how many it stands for.

        Frames that were not sealed here are copied, and later copies overwrite them. A late reader loses them, like
        datagrams that find a receive buffer full.
        """
        if self.slots is None or len(frames[0]) < self.slots.frame_bytes_min or not self.is_open:
            return b"", 0
        if len(frames) == 1 and frames[0] is self._last_copied:
            # Without multicast, the same frame goes to every receiver in turn.
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
        """Stop using the memory for a while, since somebody cannot read it; return whether it is about this memory.

        Only those who were sent a note know the key: by unicast, or on a channel that they hear.
        """
        if unpack_complaint(data) != self.key:
            return False
        now_s = time.monotonic()
        if now_s >= self._plain_until_s:
            self._plain_until_s = now_s + self._plain_s
            self._plain_s = min(2 * self._plain_s, PLAIN_S_MAX)
        return True

    def close(self) -> None:
        """Release the memory. Mappings of readers stay valid, and so do frames that are still referenced."""
        self.slots = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
