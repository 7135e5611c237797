"""Reads a segment log: where it begins and ends, and batches from one offset to another.

    reader = LogReader("out/log")
    for batch in reader.batches(reader.first_offset(), reader.stop_offset()):
        ...                                                        # Arrow batches of `log_schema()`

May run while a writer appends: sees whole batches only. Checks every byte that it hands out. What the log had and
cannot give any more is told as `LostRows`, or raised: a reader never passes over it in silence. Keeps no file open
between calls.
"""

import mmap
import os
from collections.abc import Iterator
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from vivum.storage.errors import CorruptLogError, StorageError
from vivum.storage.segment_files import SegmentFile, find_segments
from vivum.storage.segment_format import (
    HEADER_BYTES,
    NOTHING_BEFORE,
    BatchEntry,
    SegmentHead,
    SegmentSummary,
    decode_batch,
    log_schema,
    read_segment_header,
    scan_batches,
    summary_of,
)


class LostRows(NamedTuple):
    """Rows that a log had, and that cannot be read."""

    start: int
    stop: int
    reason: str
    is_deleted: bool = False

    def error(self) -> StorageError:
        """Make the error for readers that need every row."""
        kind = StorageError if self.is_deleted else CorruptLogError
        which = f": offsets {self.start} to {self.stop - 1} cannot be read" if self.stop > self.start else ""
        return kind(f"{self.reason}{which}")


class KnownSegment(NamedTuple):
    """A segment as it was when it was looked at."""

    file: SegmentFile
    head: SegmentHead | None
    """None while it is being made, and where it is damaged."""

    summary: SegmentSummary
    digest: int
    """By which the next segment names this one; 0 while it is unknown."""


class LogReader:
    """A log as it is now. Remembers what it saw of segments, and looks again only at what can have changed."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._closed: dict[int, tuple[tuple[int, ...], KnownSegment]] = {}
        self._growing: dict[int, tuple[int, list[BatchEntry]]] = {}
        find_segments(self.directory)

    def segments(self) -> list[KnownSegment]:
        """List the segments that there are now, oldest first. Raises `StorageError` if they are of different logs."""
        found: list[KnownSegment] = []
        known: KnownSegment | None = None
        for segment in find_segments(self.directory):
            try:
                found.append(self._look(segment))
            except FileNotFoundError:
                continue  # Retention took it just now.
            head = found[-1].head
            if head is not None:
                if known is not None and known.head is not None and head.log_id != known.head.log_id:
                    raise StorageError(
                        f"{self.directory} has segments of different logs: {known.file.path.name} and "
                        f"{segment.path.name}; keep those of one log only"
                    )
                known = found[-1]
        return found

    def _look(self, segment: SegmentFile) -> KnownSegment:
        stamp: tuple[int, ...]
        try:
            status = os.stat(segment.index_path)
            stamp = status.st_ino, status.st_mtime_ns, status.st_size
        except FileNotFoundError:
            stamp = ()
        kept = self._closed.get(segment.first_offset)
        if stamp and kept is not None and kept[0] == stamp:
            return kept[1]
        try:
            head = segment.head()
        except CorruptLogError:
            head = None
        summary = segment.stored_summary() if stamp else None
        if summary is None:
            return KnownSegment(segment, head, summary_of(segment.first_offset, self.entries(segment)), 0)
        found = KnownSegment(segment, head, summary, segment.digest())
        if head is not None:
            self._closed[segment.first_offset] = stamp, found
            self._growing.pop(segment.first_offset, None)
        return found

    def summaries(self) -> list[tuple[SegmentFile, SegmentSummary]]:
        """List the segments that there are now, oldest first, with what is in each."""
        return [(each.file, each.summary) for each in self.segments()]

    def holes(self) -> list[LostRows]:
        """List the rows that are missing between segments, because a segment is gone or was exchanged."""
        return holes_between(self.segments())

    def entries(self, segment: SegmentFile) -> list[BatchEntry]:
        """List the batches of a segment. What was seen of one that grows is not read again."""
        stored = segment.stored_index()
        if stored is not None:
            return stored
        try:
            head = segment.head()
        except CorruptLogError:
            head = None
        if head is None:
            return []  # What it may have had is missing for the next segment.
        mark, seen = self._growing.get(segment.first_offset, (head.mark, []))
        if mark != head.mark:
            seen = []
        seen += segment.scanned(seen[-1].stop if seen else HEADER_BYTES)
        self._growing[segment.first_offset] = head.mark, seen
        return seen

    def log_id(self) -> str | None:
        """Return the UUID of the log, as hexadecimal digits; None while it has no segment."""
        return next((each.head.log_id.hex() for each in self.segments() if each.head is not None), None)

    def first_offset(self) -> int:
        """Return the oldest offset that is still there; 0 for an empty log."""
        summaries = self.summaries()
        return summaries[0][1].first_offset if summaries else 0

    def stop_offset(self) -> int:
        """Return the offset behind the newest row."""
        summaries = self.summaries()
        return summaries[-1][1].stop_offset if summaries else 0

    def offset_at(self, time_ns: int) -> int:
        """Return the offset of the first row in a batch that has rows delivered at this time or later."""
        for segment, summary in self.summaries():
            if summary.stop_offset > summary.first_offset and summary.delivered_ns_max >= time_ns:
                for entry in self.entries(segment):
                    if entry.delivered_ns_max >= time_ns:
                        return entry.first_offset
        return self.stop_offset()

    def batches(self, start: int, stop: int) -> Iterator[Any]:
        """Read the rows `start <= offset < stop`, from the oldest that is there. Raises what it cannot read."""
        segments = self.segments()
        holes = [each for each in holes_between(segments) if each.start < stop and each.stop > start]
        for segment, _, summary, _ in segments:
            if holes and holes[0].start < summary.stop_offset:
                raise holes[0].error()
            low, high = max(start, summary.first_offset), min(stop, summary.stop_offset)
            if low < high:
                yield from read_segment(segment, low, high)


def holes_between(segments: list[KnownSegment]) -> list[LostRows]:
    """List the rows that neighbours in the chain of segments say are missing between them."""
    found = []
    for before, after in pairwise(segments):
        if after.head is None or after.head.previous_stop == NOTHING_BEFORE:
            continue
        stop, digest = after.head.previous_stop, before.digest
        if stop > before.summary.stop_offset:
            reason = f"segments before {after.file.path} are gone"
            found.append(LostRows(before.summary.stop_offset, stop, reason))
        elif stop != before.summary.stop_offset or (digest and after.head.previous_digest not in (0, digest)):
            reason = f"{before.file.path} is not the segment that was there when {after.file.path.name} was begun"
            found.append(LostRows(before.summary.first_offset, before.summary.stop_offset, reason))
    return found


def read_segment(segment: SegmentFile, start: int, stop: int, at: int | None = None) -> Iterator[Any]:
    """Read the rows `start <= offset < stop` of one segment as Arrow batches. Raises `StorageError` if one is lost."""
    for each in read_rows(segment, start, stop, at):
        if isinstance(each, LostRows):
            raise each.error()
        yield each


def read_rows(segment: SegmentFile, start: int, stop: int, at: int | None = None) -> Iterator[Any]:
    """Read rows that a segment had when it was looked at: Arrow batches, each checked, and `LostRows` in their place.

    `at` is the place of a batch at or before `start`, if the caller knows one; else the index tells.
    """
    path = str(segment.path)
    try:
        with segment.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            # Never closed by hand: columns of batches point into it, and let go of it when they go.
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if size else memoryview(b"")
    except FileNotFoundError:
        where = "is gone" if segment.path.parent.is_dir() else "is not there: its folder does not exist on this machine"
        yield LostRows(start, stop, f"{path} {where}; retention may have deleted it", is_deleted=True)
        return
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    try:
        read_segment_header(data, path)
    except CorruptLogError as error:
        yield LostRows(start, stop, str(error))
        return
    schema = log_schema()
    expected = start
    for entry in _entries_of(segment, data, start, stop, at):
        low, high = max(expected, entry.first_offset), min(stop, entry.stop_offset)
        if low > expected:
            yield LostRows(expected, low, f"{path} is damaged")
        try:
            batch = decode_batch(data, entry, schema, path)
        except CorruptLogError as error:
            yield LostRows(low, high, str(error))
        else:
            yield batch if high - low == entry.rows else batch.slice(low - entry.first_offset, high - low)
        expected = high
    if expected < stop:
        yield LostRows(expected, stop, f"{path} is damaged")


def _entries_of(segment: SegmentFile, data: memoryview, start: int, stop: int, at: int | None) -> list[BatchEntry]:
    """List the batches that have these rows: as they follow each other in the file, or else as the index has them."""
    found: list[BatchEntry] = []
    if at is not None:
        found = list(takewhile(lambda each: each.first_offset < stop, scan_batches(data, at)))
        is_whole = found and found[0].first_offset <= start and found[-1].stop_offset >= stop
        if is_whole and all(one.stop_offset == other.first_offset for one, other in pairwise(found)):
            return [each for each in found if each.stop_offset > start]
    stored = segment.stored_index()
    if stored is None:
        stored = found or list(scan_batches(data, HEADER_BYTES))
    return [each for each in stored if each.stop_offset > start and each.first_offset < stop]
