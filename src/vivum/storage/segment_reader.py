"""Reads a segment log: where it begins and ends, and batches from one offset to another.

    reader = LogReader("out/log")
    for batch in reader.batches(reader.first_offset(), reader.stop_offset()):
        ...                                                        # Arrow batches of `log_schema()`

May run while a writer appends: sees whole batches only. Checks every byte that it hands out; damage raises
`CorruptLogError` with file and place. Keeps no file open between calls.
"""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vivum.storage.errors import CorruptLogError, StorageError
from vivum.storage.segment_files import SegmentFile, find_segments
from vivum.storage.segment_format import (
    HEADER_BYTES,
    BatchEntry,
    SegmentSummary,
    decode_batch,
    log_schema,
    read_segment_header,
    scan_batches,
    summary_of,
)


class LogReader:
    """A log as it is now. Remembers what it saw of segments, and looks again only at what can have changed."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._closed: dict[int, SegmentSummary] = {}
        self._growing: dict[int, list[BatchEntry]] = {}
        find_segments(self.directory)

    def summaries(self) -> list[tuple[SegmentFile, SegmentSummary]]:
        """List the segments that there are now, oldest first, with what is in each."""
        found = []
        for segment in find_segments(self.directory):
            summary = self._closed.get(segment.first_offset)
            if summary is None:
                try:
                    summary = segment.stored_summary()
                    if summary is not None:
                        self._closed[segment.first_offset] = summary
                        self._growing.pop(segment.first_offset, None)
                    else:
                        summary = summary_of(segment.first_offset, self.entries(segment))
                except FileNotFoundError:
                    continue  # Retention took it just now.
            found.append((segment, summary))
        return found

    def entries(self, segment: SegmentFile) -> list[BatchEntry]:
        """List the batches of a segment. What was seen of one that grows is not read again."""
        stored = segment.stored_index()
        if stored is not None:
            return stored
        seen = self._growing.setdefault(segment.first_offset, [])
        seen += segment.scanned(seen[-1].stop if seen else HEADER_BYTES)
        return seen

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
        """Read the rows `start <= offset < stop`."""
        for segment, summary in self.summaries():
            if summary.first_offset < stop and summary.stop_offset > start:
                yield from read_segment(segment, start, stop)


def read_segment(segment: SegmentFile, start: int, stop: int, at: int | None = None) -> Iterator[Any]:
    """Read the rows `start <= offset < stop` of one segment as Arrow batches, each checked.

    `at` is the place of a batch at or before `start`, if the caller knows one; else the index tells.
    """
    schema = log_schema()
    path = str(segment.path)
    try:
        with segment.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            # Never closed by hand: columns of batches point into it, and let go of it when they go.
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if size else memoryview(b"")
    except FileNotFoundError as error:
        raise StorageError(
            f"{path} is gone: retention deleted it before it was read; keep more or read sooner"
        ) from error
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    read_segment_header(data, path)
    entries = segment.stored_index() if at is None else None
    if entries is None:
        entries = list(scan_batches(data, HEADER_BYTES if at is None else at))
    expected = start
    for entry in entries:
        if entry.stop_offset <= start:
            continue
        if entry.first_offset >= stop:
            break
        if entry.first_offset > expected and expected != start:
            raise CorruptLogError(f"{path} is damaged: offsets {expected} to {entry.first_offset - 1} cannot be read")
        batch = decode_batch(data, entry.at, schema, path)
        low, high = max(start - entry.first_offset, 0), min(stop - entry.first_offset, entry.rows)
        expected = entry.stop_offset
        yield batch if high - low == entry.rows else batch.slice(low, high - low)
    if expected < stop and entries and entries[-1].stop_offset > expected:
        raise CorruptLogError(f"{path} is damaged behind offset {expected - 1}")
