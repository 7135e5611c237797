"""A file that only grows, a whole piece at a time.

Large pieces are written past the kernel's cache (`O_DIRECT`). A recorder writes far more than anybody reads at once:
in the cache it would push out what others need, and the kernel would have to find, fill and clean a page for every
four messages, which takes more time than all that a recorder does itself. Also nothing of them waits to be forced
later. Where the file system has no such way, and for small pieces, the cache serves.

Invariants: `size` bytes are there; a piece that could not be written whole is cut off again. No page has both a part
that is written past the cache and a part that is in it and not yet on the disk.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path

from vivum.storage.batch_buffer import LARGE_BYTES, PAGE_BYTES

_DIRECT = getattr(os, "O_DIRECT", 0)


class GrowingFile:
    """A new file. Raises `FileExistsError` if there is one."""

    def __init__(self, path: Path) -> None:
        self.size = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self.direct = -1
        """The way past the kernel's cache for large pieces; -1 without one."""

        if _DIRECT:
            with suppress(OSError):
                self.direct = os.open(path, os.O_WRONLY | os.O_CLOEXEC | _DIRECT)

    def append(self, piece: memoryview) -> None:
        """Write a piece at the end, or cut off what got there and raise.

        To go past the cache a piece must lie in memory as it will lie in the file: `size % PAGE_BYTES` in a page.
        """
        written = 0
        try:
            if self.direct >= 0 and len(piece) >= LARGE_BYTES:
                # Up to the next page through the cache, since the page may have an end of the piece before.
                head = -self.size % PAGE_BYTES
                if head:
                    written = os.pwrite(self._file, piece[:head], self.size)
                if written == head:
                    written += self._write_direct(piece[head : len(piece) - (len(piece) - head) % PAGE_BYTES], head)
            while written < len(piece):
                # Also where a write was cut short by a full disk: the next try tells the cause.
                written += os.pwrite(self._file, piece[written:], self.size + written)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self.size)
            raise
        self.size += written

    def _write_direct(self, pages: memoryview, head: int) -> int:
        """Write whole pages past the cache; return how many bytes, 0 if the file system wants it in another way."""
        try:
            return os.pwrite(self.direct, pages, self.size + head)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            os.close(self.direct)
            self.direct = -1
            return 0

    def force(self) -> None:
        """Force to the disk what was written."""
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close it. What was written stays."""
        for file in (self._file, self.direct):
            if file >= 0:
                os.close(file)
        self._file = self.direct = -1
