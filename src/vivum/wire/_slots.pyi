"""Memory for large frames that others may read; what `_slots.pyx` offers. Without it frames are `bytes`."""

from mmap import mmap
from typing import final

SLOT_BYTES: int
"""What each frame takes."""

SLOT_FRAME_BYTES_MIN: int
"""Smaller frames are not worth a slot: a `FrameBuilder` makes `bytes` of them."""

SLOT_FRAME_BYTES_MAX: int
"""The largest frame that fits."""

@final
class SlotPool:
    """Slots that a `FrameBuilder` seals large frames in.

    A slot is free again when nobody holds its frame any more, and then the first to be written. Who keeps frames until
    all have them need not fear for readers; what is not kept so long rests as long as possible before it is used again.
    Some slots are reserved for copies of frames that found none: kept frames never have them.
    """

    def __init__(self, memory: mmap, reserved: int | None = None) -> None:
        """Use memory as slots, of which some are reserved for copies, by default half."""

    @property
    def slots(self) -> int:
        """All of them."""
    @property
    def unused(self) -> int:
        """Those that hold no frame."""

@final
class Slot(bytes):
    """A frame in a slot. It is no `bytes` object, but has all of it that senders use: a length, bytes by index and
    slice, and the buffer protocol. `bytes(slot)` copies it."""

@final
class Lent(bytes):
    """A frame where its sender made it, in memory of another process, as a board lends it: nothing was copied.

    Its sender keeps it there until all have it, but need not: who uses what is in it asks afterwards whether it was
    there all the time. It is no `bytes` object, but has a length, and single bytes by index; `split` takes it.
    """

    def copy(self) -> bytes | None:
        """Return the frame as it was, or None if it is gone."""
