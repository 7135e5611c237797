"""Memory that one process writes and others can only read, without a name in any file system.

It is a sealed `memfd`: whoever has its descriptor can neither write nor shrink it. A process that reads memory after
it was shrunk is killed, so `open_memory` refuses what is not sealed. Nothing is left behind however a process ends.
"""

import fcntl
import mmap
import os
from typing import TYPE_CHECKING

from vivum.wire.codec import COMPILED

if TYPE_CHECKING:
    from vivum.runtime.shared_memory import _slots
    from vivum.runtime.shared_memory._slots import SlotReader, SlotWriter

    IS_AVAILABLE: bool
else:
    try:
        from vivum.runtime.shared_memory import _slots
    except ImportError:
        _slots = None
    # Without the compiled part, or with `VIVUM_PURE=1` as for the codec, datagrams serve.
    IS_AVAILABLE = _slots is not None and COMPILED and hasattr(os, "memfd_create")

F_SEAL_FUTURE_WRITE = 0x10
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | F_SEAL_FUTURE_WRITE

SLOTS_MIN = 16
"""Slots of a node, however small receive buffers are."""


def make_memory(bytes_min: int) -> "tuple[int, SlotWriter] | None":
    """Make memory of about so many bytes; return its descriptor and its slots, None where there can be none."""
    if not IS_AVAILABLE:
        return None
    size = max(SLOTS_MIN, bytes_min // _slots.SLOT_BYTES) * _slots.SLOT_BYTES
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
    return descriptor, _slots.SlotWriter(memory)


def open_memory(descriptors: list[int]) -> "SlotReader | None":
    """Map the memory of another process for reading; None if this is not one that nobody can shrink."""
    if not IS_AVAILABLE or len(descriptors) != 1:
        return None
    try:
        if fcntl.fcntl(descriptors[0], fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            size = os.fstat(descriptors[0]).st_size
            if size and size % _slots.SLOT_BYTES == 0:
                return _slots.SlotReader(mmap.mmap(descriptors[0], size, mmap.MAP_SHARED, mmap.PROT_READ))
    except OSError:
        # No room to map it, or nothing that can be sealed.
        pass
    return None
