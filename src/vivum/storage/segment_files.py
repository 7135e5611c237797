"""The files of a segment log: which there are, and what each holds.

A segment `N.segment` is named by its first offset; `N.index` beside it means that it will not grow any more. Knows no
policy: `vivum.storage.segment_log` writes, `vivum.storage.segment_reader` reads.
"""

import mmap
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from vivum.storage.errors import StorageError
from vivum.storage.segment_format import (
    HEADER_BYTES,
    BatchEntry,
    SegmentHead,
    SegmentSummary,
    decode_index,
    read_index_summary,
    read_segment_header,
    scan_batches,
    segment_digest,
    summary_of,
)

LOCK_FILE = "lock"
_SEGMENT_FILE = re.compile(r"([0-9]{20})\.segment")


class SegmentFile(NamedTuple):
    """One segment on the disk."""

    path: Path
    first_offset: int

    @property
    def index_path(self) -> Path:
        """Where its index is, if it is closed."""
        return self.path.with_suffix(".index")

    def head(self) -> SegmentHead | None:
        """Return what its header says; None while its writer is making it. Raises `CorruptLogError`."""
        with self.path.open("rb") as file:
            data = file.read(HEADER_BYTES)
            return read_segment_header(data, str(self.path)) if len(data) == HEADER_BYTES else None

    def digest(self) -> int:
        """Return the digest by which the next segment names this one; 0 if there is no good index."""
        if self.stored_summary() is None:
            return 0
        with self.path.open("rb") as segment, self.index_path.open("rb") as index:
            return segment_digest(segment.read(HEADER_BYTES), index.read(HEADER_BYTES))

    def stored_index(self) -> list[BatchEntry] | None:
        """Return the batches as the index lists them; None if there is no index, or a damaged one."""
        found = self._decoded_index()
        return None if found is None else found[0]

    def stored_tips(self) -> bytes:
        """Return how far the log goes for each sender, as the index has it; nothing if there is no good one."""
        found = self._decoded_index()
        return b"" if found is None else found[1]

    def _decoded_index(self) -> tuple[list[BatchEntry], bytes] | None:
        try:
            return decode_index(self.index_path.read_bytes())
        except FileNotFoundError:
            return None

    def scanned(self, at: int = HEADER_BYTES) -> list[BatchEntry]:
        """Return the batches that are there now, from this place on, from their own headers."""
        with self.path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < HEADER_BYTES:
                return []  # Its writer is just making it.
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
                read_segment_header(data, str(self.path))
                return list(scan_batches(data, at))

    def entries(self) -> list[BatchEntry]:
        """Return the batches, from the index if there is one."""
        stored = self.stored_index()
        return self.scanned() if stored is None else stored

    def stored_summary(self) -> SegmentSummary | None:
        """Return what the index sums up; None if there is no good one."""
        try:
            with self.index_path.open("rb") as file:
                return read_index_summary(file.read(HEADER_BYTES))
        except FileNotFoundError:
            return None

    def summary(self) -> SegmentSummary:
        """Sum up what is there now."""
        stored = self.stored_summary()
        return summary_of(self.first_offset, self.scanned()) if stored is None else stored

    def bytes_on_disk(self) -> int:
        """Return the size of segment and index."""
        total = 0
        for path in (self.path, self.index_path):
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def delete(self) -> None:
        """Remove the segment. The index goes last: alone it means nothing."""
        self.path.unlink()
        with suppress(FileNotFoundError):
            self.index_path.unlink()


def find_segments(directory: Path) -> list[SegmentFile]:
    """List the segments of a log, oldest first. Raises `StorageError` where there is no such directory."""
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise StorageError(
            f"cannot read the log {directory}: {error.strerror}; give a directory that `vivum record` wrote"
        ) from error
    found = filter(None, map(_SEGMENT_FILE.fullmatch, names))
    return sorted(SegmentFile(directory / match.string, int(match[1])) for match in found)


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file so that under its name it is always whole, and on the disk."""
    hidden = path.with_name(f".{path.name}.tmp")
    try:
        with hidden.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(path)
    except OSError:
        with suppress(OSError):
            hidden.unlink()
        raise
    force_directory(path.parent)


def force_directory(directory: Path) -> None:
    """Force names of a directory to the disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
