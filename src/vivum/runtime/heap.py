"""A reserve of free heap for messages: it stays with the process while a node is open, and leaves with the node.

Messages of more than 512 bytes come from `malloc`. glibc gives the top of its heap back to the system when 128 KiB of
it are free, and takes it again, page by page, for the next burst. What is free below a block in use is not the top, and
stays. So we take as much room as a burst needs, keep the last block of it, and free all others. No setting of the
C library changes. Others take no notice, or profit in the same way.
"""

import ctypes

RESERVED_BYTES = 24 << 20
"""About what a node at full rate holds: frames that are not stable, and messages that are not read yet."""

BLOCK_BYTES = 120 << 10
"""Blocks of 128 KiB and more would not lie on the heap. Only the first page of each is touched before it is used."""


class HeapReserve:
    """Free heap that the C library keeps."""

    def __init__(self) -> None:
        """Take it, where the C library can be asked."""
        self._pin: int | None = None
        try:
            # Not as `bytes`: these are written over, which would take all the memory at once.
            self._library = ctypes.PyDLL(None)
            allocate, self._free = self._library.malloc, self._library.free
        except (OSError, AttributeError):
            return
        allocate.argtypes, allocate.restype = [ctypes.c_size_t], ctypes.c_void_p
        self._free.argtypes, self._free.restype = [ctypes.c_void_p], None
        # As large as the others, which took all gaps of this size: so the last one lies behind them.
        *room, self._pin = [allocate(BLOCK_BYTES) for _ in range(RESERVED_BYTES // BLOCK_BYTES)]
        for block in room:
            self._free(block)

    def release(self) -> None:
        """Give free heap back to the system, as far as the C library can be asked to. May be called again."""
        if self._pin is not None:
            self._free(self._pin)
            self._pin = None
            if hasattr(self._library, "malloc_trim"):
                # Also what lies below blocks that the program has allocated since.
                self._library.malloc_trim(0)
