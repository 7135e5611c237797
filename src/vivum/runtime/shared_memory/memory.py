"""Memory that one process writes and others can only read, without a name in any file system.

It is a sealed `memfd`: readers can neither write nor shrink it. Reading memory that was shrunk kills a process, so
`open_memory` refuses what is not sealed. Nothing is left behind however a process ends.
"""

import fcntl
import mmap
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vivum.runtime.shared_memory import _slots
    from vivum.runtime.shared_memory._slots import SlotReader, Slots

    IS_AVAILABLE: bool
else:
    try:
        from vivum.runtime.shared_memory import _slots
    except ImportError:
        _slots = None
    # Without the compiled part large frames go as datagrams.
    IS_AVAILABLE = _slots is not None and hasattr(os, "memfd_create")

F_SEAL_FUTURE_WRITE = 0x10
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | F_SEAL_FUTURE_WRITE

COPIES_MIN = 16
"""The least number of slots for copies."""

KEPT_FRAMES_BYTES = 64 << 20
"""Room for frames kept for members that sleep or are behind. Pages that are never used take no memory."""


def make_memory(buffer_bytes: int) -> "tuple[int, Slots] | None":
    """Make memory for readers with receive buffers of this size; return its descriptor and slots, or None.

    Copies, frames under way, and frames not known to be stable yet get as much room as a receive buffer each;
    `KEPT_FRAMES_BYTES` come on top.
    """
    if not IS_AVAILABLE:
        return None
    copies = max(COPIES_MIN, buffer_bytes // _slots.SLOT_BYTES)
    size = (KEPT_FRAMES_BYTES // _slots.SLOT_BYTES + 3 * copies) * _slots.SLOT_BYTES
    descriptor = -1
    try:
        descriptor = os.memfd_create("vivum", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, size)
        memory = mmap.mmap(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    except OSError:
        # No memory, or a kernel before 5.1.
        if descriptor >= 0:
            os.close(descriptor)
        return None
    return descriptor, _slots.Slots(memory, copies)


def open_memory(descriptors: list[int]) -> "SlotReader | None":
    """Map the memory of another process for reading; return None if it is not sealed against shrinking."""
    if not IS_AVAILABLE or len(descriptors) != 1:
        return None
    try:
        if fcntl.fcntl(descriptors[0], fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            size = os.fstat(descriptors[0]).st_size
            if size and size % _slots.SLOT_BYTES == 0:
                return _slots.SlotReader(mmap.mmap(descriptors[0], size, mmap.MAP_SHARED, mmap.PROT_READ))
    except OSError:
        # No room to map it, or a descriptor that cannot be sealed.
        pass
    return None
