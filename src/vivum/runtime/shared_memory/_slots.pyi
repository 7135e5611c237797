"""Frames in memory that one process writes and others read at the same time; what `_slots.pyx` offers."""

from mmap import mmap
from typing import final

SLOT_BYTES: int
"""Memory that each frame takes."""

FRAME_BYTES_MAX: int
"""The largest frame that fits a slot."""

STAMP_BYTES: int
"""Bytes of a stamp: the name of one frame in one slot, used once."""

@final
class SlotWriter:
    """The slots of this node, written one after the other, round and round."""

    def __init__(self, memory: mmap) -> None:
        """Use memory as slots."""

    @property
    def slots(self) -> int:
        """How many frames there are before the oldest is written over."""

    def write(self, frames: list[bytes]) -> bytes:
        """Copy the first frames into slots, up to one that does not fit; return their stamps."""

@final
class SlotReader:
    """The slots of another node."""

    def __init__(self, memory: mmap) -> None:
        """Read memory as slots."""

    def read(self, stamps: bytes) -> list[bytes]:
        """Return copies of the frames that have these stamps, without those that were written over."""
