"""Keep a reserve of free heap for messages while a node is open, and give it back when the node closes.

Messages of more than 512 bytes come from `malloc`. glibc gives the top of its heap back to the system when 128 KiB of
it are free, and takes it again, page by page, for the next burst. Free memory below a block in use is not the top, and
stays. So we allocate as much as a burst needs, keep the last block, and free all others. No setting of the C library
changes, and the rest of the program can use the reserve too.
"""

import ctypes

RESERVED_BYTES = 24 << 20
"""About what a node at full rate holds: frames that are not stable yet, and messages that are not read yet."""

BLOCK_BYTES = 120 << 10
"""Below 128 KiB: larger blocks would not be on the heap. Only the first page of each is touched before it is used."""


class HeapReserve:
    """Free heap that the C library keeps."""

    def __init__(self) -> None:
        """Reserve the heap, if the C library can be called."""
        self._pin: int | None = None
        try:
            # Not as `bytes`, which are zeroed: that would touch all the memory at once.
            self._library = ctypes.PyDLL(None)
            allocate, self._free = self._library.malloc, self._library.free
        except (OSError, AttributeError):
            return
        allocate.argtypes, allocate.restype = [ctypes.c_size_t], ctypes.c_void_p
        self._free.argtypes, self._free.restype = [ctypes.c_void_p], None
        # As large as the others, which filled all gaps of this size, so the last one lies behind them.
        *room, self._pin = [allocate(BLOCK_BYTES) for _ in range(RESERVED_BYTES // BLOCK_BYTES)]
        for block in room:
            self._free(block)

    def release(self) -> None:
        """Give free heap back to the system, if the C library can. May be called again."""
        if self._pin is not None:
            self._free(self._pin)
            self._pin = None
            if hasattr(self._library, "malloc_trim"):
                # Also trims below blocks that the program has allocated since.
                self._library.malloc_trim(0)
