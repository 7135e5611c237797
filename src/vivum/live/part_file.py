"""A file that is being received: kept beside its target until it is complete, then moved there.

Bytes are kept in NAME.DIGEST.part with mode 0600, so that a later run can go on with them. Name and digest come from a
stranger: both are checked before they become part of a path, every path is one name inside the folder that was opened
at the start, and symbolic links are not followed. Knows nothing of topics.
"""

import errno
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

from vivum.core.errors import HostError, UsageError

DIGEST_BYTES = 32
"""Bytes of the BLAKE2b digest, which is written as 64 hexadecimal digits."""

FILE_NAME_BYTES_MAX = 255 - len(".0123456789abcdef.part")
"""Linux allows 255 bytes for a file name, and the part's name is longer than the target's."""

Progress = Callable[[int, int], None]
"""Called with the bytes that are done, and the total."""

_DIGEST = re.compile(f"[0-9a-f]{{{2 * DIGEST_BYTES}}}")
_BLOCK_BYTES = 1 << 20


def refusal_of(name: str, size: int, digest: str) -> str | None:
    """Return what is wrong with an offered file, in words for people; None if it can be received."""
    try:
        length = len(os.fsencode(name))
    except UnicodeError:
        return "its name cannot be written here"
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return "its name is not a plain file name"
    if length > FILE_NAME_BYTES_MAX:
        return f"its name has {length} bytes, over {FILE_NAME_BYTES_MAX}"
    if not _DIGEST.fullmatch(digest):
        return f"its checksum is not {2 * DIGEST_BYTES} hexadecimal digits"
    return None if 0 <= size < 1 << 63 else f"its size {size} is impossible"


class PartFile:
    """One file that is received into a folder. Its name and digest must have passed `refusal_of`."""

    def __init__(self, folder: Path, name: str, size: int, digest: str, *, overwrite: bool) -> None:
        self.target = folder / name
        self.path = folder / f"{name}.{digest[:16]}.part"
        self.have = 0
        """Bytes that are here, from the beginning of the file on."""

        self.is_complete = False
        """The target is there, with the right content."""

        self._size = size
        self._digest = digest
        self._overwrite = overwrite
        self._handle = -1
        try:
            self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(f"{folder} is not a folder that can be used: {error.strerror}") from error
        try:
            self._look_at_target()
            if not self.is_complete:
                self._open_part()
        except OSError as error:
            self.close()
            raise self._cannot_write(error) from error
        except BaseException:
            self.close()
            raise

    def _look_at_target(self) -> None:
        """Check whether the target is there already; raise if it may not be replaced."""
        try:
            found = os.stat(self.target.name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISREG(found.st_mode) and found.st_size == self._size:
            handle = os.open(self.target.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._folder)
            try:
                self.is_complete = digest_of(handle) == self._digest
            finally:
                os.close(handle)
        if self.is_complete:
            self.have = self._size
        elif not self._overwrite:
            raise self._exists()
        elif stat.S_ISDIR(found.st_mode):
            raise UsageError(f"{self.target} is a folder; receive into another one")

    def _open_part(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            self._handle = os.open(self.path.name, flags, 0o600, dir_fd=self._folder)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise HostError(f"{self.path} is a symbolic link; remove it") from error
        found = os.fstat(self._handle)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid != os.geteuid():
            raise HostError(f"{self.path} is not a file of this user alone; remove it")
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HostError(f"another process receives {self.path}; let it finish") from None
        os.fchmod(self._handle, 0o600)
        self.have = min(found.st_size, self._size)
        os.ftruncate(self._handle, self.have)

    def take(self, offset: int, data: bytes) -> bool:
        """Write the part of `data` that is new and follows what is here. Return whether there was any."""
        skip = self.have - offset
        if not 0 <= skip < len(data) or offset + len(data) > self._size:
            return False
        new = memoryview(data)[skip:]
        try:
            while new:
                written = os.pwrite(self._handle, new, self.have)
                self.have += written
                new = new[written:]
        except OSError as error:
            raise self._cannot_write(error) from error
        return True

    def has_right_digest(self) -> bool:
        """Return whether the file on disk has the promised checksum."""
        try:
            os.fsync(self._handle)
            return digest_of(self._handle) == self._digest
        except OSError as error:
            raise self._cannot_write(error) from error

    def start_again(self) -> None:
        """Discard what is here."""
        try:
            os.ftruncate(self._handle, 0)
        except OSError as error:
            raise self._cannot_write(error) from error
        self.have = 0

    def finish(self) -> None:
        """Move the file to its target, which must not exist unless it may be overwritten."""
        part, target, folder = self.path.name, self.target.name, self._folder
        try:
            os.fchmod(self._handle, 0o666 & ~_umask())
            if self._overwrite or not self._link(part, target):
                os.rename(part, target, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        except OSError as error:
            raise self._cannot_write(error) from error
        self.is_complete = True

    def _link(self, part: str, target: str) -> bool:
        """Name the file atomically if the name is free; return False where the file system cannot."""
        try:
            os.link(part, target, src_dir_fd=self._folder, dst_dir_fd=self._folder, follow_symlinks=False)
        except FileExistsError:
            raise self._exists() from None
        except OSError:
            if os.path.lexists(self.target):
                raise self._exists() from None
            return False
        os.unlink(part, dir_fd=self._folder)
        return True

    def close(self) -> None:
        """Close the file; what is here stays."""
        for handle in (self._handle, self._folder):
            if handle >= 0:
                os.close(handle)
        self._handle = self._folder = -1

    def _exists(self) -> UsageError:
        return UsageError(f"{self.target} exists and has another content; use --overwrite or another folder")

    def _cannot_write(self, error: OSError) -> HostError:
        kept = f"; {self.have:,} bytes are kept in {self.path.name}, so a later run goes on there" if self.have else ""
        return HostError(f"cannot write {self.path}: {error.strerror}{kept}")


def digest_of(handle: int, progress: Progress | None = None) -> str:
    """Return the checksum of an open file."""
    made = hashlib.blake2b(digest_size=DIGEST_BYTES)
    size, offset = os.fstat(handle).st_size, 0
    while block := os.pread(handle, _BLOCK_BYTES, offset):
        made.update(block)
        offset += len(block)
        if progress is not None:
            progress(offset, size)
    return made.hexdigest()


def _umask() -> int:
    """Return the process's umask, from `/proc`: calling `os.umask` would change it for all threads."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1], 8) for line in status if line.startswith("Umask:"))
    except (OSError, StopIteration):
        return 0o077
