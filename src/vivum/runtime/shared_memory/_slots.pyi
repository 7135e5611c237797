"""Frames in memory that one process writes and others read at the same time; what `_slots.pyx` offers."""

from mmap import mmap
from typing import final

from vivum.wire._frame_bytes import FrameMemory

SLOT_BYTES: int
"""Size of a slot."""

FRAME_BYTES_MIN: int
"""Smaller frames are not worth a slot."""

FRAME_BYTES_MAX: int
"""The largest frame that fits a slot."""

STAMP_BYTES: int
"""Bytes of a stamp: the name of one frame in one slot, used once."""

@final
class Slots(FrameMemory):
    """The slots of this node.

    A `FrameBuilder` seals frames here. Their slots are free when nobody holds them any more: for reliable ones, when
    every member has them. The slot that was freed last is used first. Other frames are copied here as they are sent,
    and their slots rest for as long as possible. Some slots are reserved for those.
    """

    def __init__(self, memory: mmap, reserved: int) -> None:
        """Use memory as slots, of which some are reserved for copies."""

    @property
    def slots(self) -> int:
        """The number of slots."""

    @property
    def unused(self) -> int:
        """The number of slots that hold no kept frame."""

    def write(self, frames: list[bytes]) -> bytes:
        """Make the first frames readable, as far as there are slots; return their stamps."""

@final
class SlotReader:
    """The slots of another node."""

    def __init__(self, memory: mmap) -> None:
        """Read memory as slots."""

    def read(self, stamps: bytes) -> list[bytes]:
        """Return copies of the frames with these stamps, without those that were overwritten."""
