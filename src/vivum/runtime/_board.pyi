"""Frames in memory that one node writes and others of its machine read; what `_board.pyx` offers. See `boards.py`."""

from mmap import mmap
from typing import Any, final

SLOT_BYTES: int
"""What each frame takes on a board."""

FRAME_BYTES_MAX: int
"""The largest frame that fits a slot."""

FRAMES_MAX: int
"""Frames that one note may refer to."""

NOTE_BYTES: int
NOTE_MARK: bytes
"""What a note begins with; no frame does, since that begins with its version."""

@final
class Board:
    """The slots of one node, filled in turn."""

    name: int
    """What its notes call it: 64 bits that nobody can guess."""

    def __init__(self, memory: mmap, name: int, is_own: bool) -> None:
        """Use memory as slots, to write or to read."""

    def write(self, frames: list[bytes]) -> bytes:
        """Put frames, at most `FRAMES_MAX`, into the next slots; return the note that refers to them."""

    def read(self, data: bytes, place: Any, taken: list[tuple[Any, bytes]]) -> int:
        """Append to `taken` the frames that a note refers to, each with `place`; return how many are gone.

        What is no note of this board refers to nothing.
        """
