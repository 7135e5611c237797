"""Notes of frames in shared memory, and how they are read; what `_board.pyx` offers. See `boards.py`."""

from mmap import mmap
from typing import Any, final

from vivum.wire._slots import SlotPool

FRAMES_MAX: int
"""Frames that one note may refer to."""

NOTE_MARK: bytes
"""What a note begins with; no frame does, since that begins with its version."""

def write(pool: SlotPool, name: int, frames: list[bytes]) -> tuple[bytes, int]:
    """Show the first frames, at most `FRAMES_MAX`, on the board of this name; return their note, and how many they are.

    Frames that are not in slots of the pool are copied into some, as far as there are any.
    """

@final
class Board:
    """The slots of another node."""

    name: int
    """What its notes call it: 64 bits that nobody can guess."""

    def __init__(self, memory: mmap, name: int) -> None:
        """Read memory as slots."""

    def read(self, data: bytes, place: Any, taken: list[tuple[Any, bytes]]) -> int:
        """Append to `taken` the frames that a note refers to, each with `place`; return how many are gone.

        What is no note of this board refers to nothing.
        """
