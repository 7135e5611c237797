"""A log of recorded messages: appended to by one writer, read by many, whole after every crash.

    with SegmentLog("out/log", fsync="interval") as log:
        log.declare("/swx/NESN", Quote)
        log.append([RecordedRun(...), ...])

What can be lost. `append` returns when the bytes are with the kernel, so the death of the process loses nothing that
was appended. When the machine dies: with `fsync="always"` nothing that was appended; with `"interval"` what came since
the last force, `fsync_interval_ns` ago or a little more while `append` or `sync_if_due` is called; with `"none"` what
the kernel had not written by itself, about 30 s on Linux.

Offsets rise by one from row to row and are never used twice. After a crash they jump: the new writer begins behind
all offsets that the old one could have given to anybody.

Invariants: an `append` is in the log whole or not at all, also on a full disk. A segment with an index does not
change any more. There is one writer: a second one is refused.
"""

import fcntl
import mmap
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from vivum.core.errors import UsageError
from vivum.core.time import MILLISECOND, SECOND
from vivum.storage.batch_buffer import BatchBuffer
from vivum.storage.errors import CorruptLogError, StorageError
from vivum.storage.growing_file import GrowingFile
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_files import LOCK_FILE, SegmentFile, find_segments, force_directory, write_whole
from vivum.storage.segment_format import (
    HEADER_BYTES,
    NOTHING_BEFORE,
    SEGMENT_ROWS_MAX,
    BatchEntry,
    SegmentHead,
    encode_index,
    find_batch,
    read_segment_header,
    scan_batches,
    segment_digest,
    segment_header,
    segment_name,
)
from vivum.storage.segment_reader import LostRows, read_rows
from vivum.storage.tips import Tips, tips_of
from vivum.storage.topic_types import TopicTypes
from vivum.storage.trace_schema import arrow

FSYNC_POLICIES = ("none", "interval", "always")
FSYNC_INTERVAL_NS = 200 * MILLISECOND
"""Between two forces under `interval`: what the death of the machine can lose. Less costs more disk work."""

SEGMENT_BYTES = 64 * 1024 * 1024
"""A segment is closed before it grows past this, so that retention and readers have pieces to take."""

SEGMENT_AGE_NS = 600 * SECOND
"""A segment is closed when it is older than this at an append: retention by age has pieces also at low rates."""


CHECKED_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of the newest closed segments that are fully read when a log is opened, to find damage; of older ones only the
headers of batches. More makes opening slower: 0.1 s for each gigabyte that is in memory, seconds on a slow disk."""

PREPARED_MAX = 2
"""Batches that may wait to be written: one is made while the other is on its way to the disk."""


class TopicDeclaration(NamedTuple):
    """What is known of a topic: its type unless it is raw, the name of what it promises, if payloads have heads."""

    topic: str
    message_type: Any = None
    guarantee: str | None = None
    is_headed: bool = False


class PreparedBatch(NamedTuple):
    """A batch that is ready to be written: what is in it, and whether a new segment begins with it."""

    entry: BatchEntry
    topics: set[str]
    tips: list[tuple[str, int, int, int]]
    rolls: bool
    segment_first: int
    segment_began_ns: int
    buffer: BatchBuffer


class SegmentLog:
    """The writer of a log. Takes the directory for itself until `close()`."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        fsync: str = "interval",
        fsync_interval_ns: int = FSYNC_INTERVAL_NS,
        segment_bytes: int = SEGMENT_BYTES,
        segment_age_ns: int = SEGMENT_AGE_NS,
        keep_bytes: int | None = None,
        keep_age_ns: int | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        if fsync not in FSYNC_POLICIES:
            raise UsageError(f"fsync={fsync!r} is unknown; policies are {', '.join(FSYNC_POLICIES)}")
        if segment_bytes < HEADER_BYTES * 2:
            raise UsageError(f"segment_bytes is {segment_bytes}; it must be at least {HEADER_BYTES * 2}")
        self.directory = Path(directory)
        self.damage: list[str] = []
        """What the writer found broken when it opened the log, and left as it was."""
        self.bytes_cut = 0
        """Bytes of torn batches that were cut off when the log was opened."""
        self._fsync = fsync
        self._fsync_interval_ns = fsync_interval_ns
        self._segment_bytes = segment_bytes
        self._segment_age_ns = segment_age_ns
        self._keep_bytes = keep_bytes
        self._keep_age_ns = keep_age_ns
        self._clock = clock
        self._file: GrowingFile | None = None
        self._entries: list[BatchEntry] = []
        self._segment_first = 0
        self._segment_began_ns = 0
        self._header = b""
        self.tips = Tips()
        """How far the log goes for each sender."""
        self.delivered_ns = 0
        """The newest time of delivery in the log; 0 while it is empty."""
        self.log_id = b""
        """The UUID of the log: of the one that is continued, or a new one."""
        # Of the segment before the next one: where it ended, and its digest.
        self._previous = NOTHING_BEFORE, 0
        # Batches that wait to be written, in their order, and memory for more.
        self._prepared: deque[PreparedBatch] = deque()
        self._buffers: list[BatchBuffer] = []
        self._synced_ns = 0
        self._dirty = False
        self._lock = -1
        self._lost = ""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self.next_offset = self._recover()
            self.types = TopicTypes.read(self.directory)
            self._buffers = [BatchBuffer() for _ in range(PREPARED_MAX)]
        except OSError as error:
            self._let_go()
            raise cannot_write_log(self.directory, error) from error
        except BaseException:
            self._let_go()
            raise

    def declare(self, topic: str, message_type: Any) -> None:
        """Keep a topic's type beside the log, so that readers can give its fields as columns."""
        self.declare_all([TopicDeclaration(topic, message_type)])

    def declare_all(self, declared: Iterable[TopicDeclaration]) -> None:
        """Keep what is known of topics beside the log, all at once."""
        self._check_open()
        is_new = False
        for topic, message_type, guarantee, is_headed in declared:
            if message_type is not None:
                is_new |= self.types.declare(topic, message_type)
            if guarantee is not None:
                is_new |= self.types.promise(topic, guarantee, is_headed)
        if is_new:
            try:
                self.types.write(self.directory)
            except OSError as error:
                raise cannot_write_log(self.directory, error) from error

    def append(self, runs: Sequence[RecordedRun]) -> range:
        """Add messages as one batch; return their offsets. Raises `StorageError` and adds nothing if that fails."""
        return self.append_prepared(self.prepare(runs))

    def prepare(self, runs: Sequence[RecordedRun]) -> PreparedBatch:
        """Make the next batch without touching the disk, while another thread may append the one before.

        Up to `PREPARED_MAX` wait; they must be appended in their order. One that fails takes those behind it with it.
        """
        self._check_open()
        if not self._buffers:
            raise UsageError(f"{PREPARED_MAX} batches wait to be appended; append one before the next is prepared")
        # It goes behind the last one that was prepared; behind what is written, if there is none.
        try:
            last: PreparedBatch | None = self._prepared[-1]
        except IndexError:
            # Or it was written just now: then the file and the next offset tell the same.
            last = None
        if last is not None:
            size, offset = last.entry.stop, last.entry.stop_offset
            first, began_ns = last.segment_first, last.segment_began_ns
        else:
            size, offset = -1 if self._file is None else self._file.size, self.next_offset
            first, began_ns = self._segment_first, self._segment_began_ns
        now_ns = self._clock()
        rolls = (
            size < 0
            or size >= self._segment_bytes
            or offset + sum([len(run.payloads) for run in runs]) - first > SEGMENT_ROWS_MAX
            or now_ns - began_ns >= self._segment_age_ns
        )
        if rolls:
            size, first, began_ns = HEADER_BYTES, offset, now_ns
        buffer = self._buffers.pop()
        try:
            entry = buffer.lay_out(runs, offset, size)
        except BaseException:
            self._buffers.append(buffer)
            raise
        batch = PreparedBatch(entry, {run.topic for run in runs}, tips_of(runs), rolls, first, began_ns, buffer)
        self._prepared.append(batch)
        return batch

    def append_prepared(self, batch: PreparedBatch) -> range:
        """Add the batch that was prepared first of those that wait; return its offsets."""
        self._check_open()
        if not self._prepared or batch is not self._prepared[0]:
            raise UsageError("another batch comes before this one, or one before it was not appended; prepare it anew")
        try:
            offsets = self._append(batch)
        except BaseException:
            self._give_up()
            raise
        self._prepared.popleft()
        self._buffers.append(batch.buffer)
        return offsets

    def _give_up(self) -> None:
        """Forget all that is prepared: it was for places behind one that is not in the log."""
        while self._prepared:
            self._buffers.append(self._prepared.popleft().buffer)

    def _append(self, batch: PreparedBatch) -> range:
        self._note_topics(batch.topics)
        if batch.rolls and self._file is not None:
            self._seal()
            self.retain()
        entry = batch.entry
        whole = batch.buffer.seal(entry)
        try:
            if self._file is None:
                self._begin(batch.segment_began_ns)
            assert self._file is not None
            assert self._file.size == entry.at
            self._file.append(whole)
        except OSError as error:
            raise cannot_write_log(self.directory, error) from error
        self._entries.append(entry)
        self.tips.note_all(batch.tips)
        self.delivered_ns = max(self.delivered_ns, entry.delivered_ns_max)
        self._dirty = True
        offsets = range(self.next_offset, entry.stop_offset)
        self.next_offset = entry.stop_offset
        if self._fsync == "always":
            self.sync()
        else:
            self.sync_if_due()
        return offsets

    def _note_topics(self, topics: set[str]) -> None:
        """List new topics beside the log, so that readers know at once what there is."""
        if not topics <= self.types.types.keys():
            self.types.note(topics)
            try:
                self.types.write(self.directory)
            except OSError as error:
                self.types = TopicTypes.read(self.directory)
                raise cannot_write_log(self.directory, error) from error

    def sync(self) -> None:
        """Force to the disk what was appended, whatever the policy."""
        if self._dirty and self._file is not None:
            try:
                self._file.force()
            except OSError as error:
                # The kernel forgets what it could not write: a second force would succeed and mean nothing.
                self._lost = f"forcing it to the disk failed ({error.strerror})"
                raise cannot_write_log(self.directory, error) from error
            self._dirty = False
        self._synced_ns = self._clock()

    def sync_if_due(self) -> None:
        """Force if the policy is `interval` and it is time. Call it now and then while nothing is appended."""
        if self._fsync == "interval" and self._dirty and self._clock() - self._synced_ns >= self._fsync_interval_ns:
            self.sync()

    def retain(self) -> int:
        """Delete the oldest segments beyond the bounds of size and age; return how many. The newest always stays."""
        deleted = 0
        sealed = [each for each in find_segments(self.directory) if each.first_offset != self._segment_first]
        if self._file is None:
            sealed = sealed[:-1]
        newest = self._entries[-1].stop if self._entries else 0
        total = newest + sum(each.bytes_on_disk() for each in sealed)
        now_ns = self._clock()
        for segment in sealed:
            summary = segment.summary()
            too_large = self._keep_bytes is not None and total > self._keep_bytes
            too_old = self._keep_age_ns is not None and now_ns - summary.delivered_ns_max > self._keep_age_ns
            if not too_large and not too_old:
                break
            total -= segment.bytes_on_disk()
            try:
                segment.delete()
            except OSError as error:
                raise cannot_write_log(segment.path, error) from error
            deleted += 1
        return deleted

    def close(self) -> None:
        """Force everything, write the last index, and let go of the directory."""
        if self._lock < 0:
            return
        try:
            self._seal()
        finally:
            self._let_go()

    def __enter__(self) -> "SegmentLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._lock < 0:
            raise UsageError(f"the log {self.directory} is closed")
        if self._lost:
            raise StorageError(f"the log {self.directory} takes nothing any more: {self._lost}; open it again")

    def _take_lock(self) -> None:
        self._lock = os.open(self.directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another recorder writes the log {self.directory}; stop it or choose another directory"
            ) from None

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
        if self._lock >= 0:
            os.close(self._lock)
        self._file, self._lock = None, -1

    def _begin(self, began_ns: int) -> None:
        """Make the file of a new segment. Its name is on the disk before any of its offsets is given to anybody."""
        path = self.directory / segment_name(self.next_offset)
        file = GrowingFile(path)
        self._segment_first, self._segment_began_ns = self.next_offset, began_ns
        self._entries = []
        try:
            self._header = segment_header(self._head(self._segment_first, self._segment_began_ns))
            file.append(memoryview(self._header))
            file.force()
            force_directory(self.directory)
        except OSError:
            # No offset of it was used yet: as if it had never been.
            file.close()
            with suppress(OSError):
                path.unlink()
            raise
        self._file = file
        self._synced_ns = self._segment_began_ns

    def _seal(self) -> None:
        """End the segment: force it, and write its index."""
        if self._file is None:
            return
        self.sync()
        try:
            index = encode_index(self._segment_first, self._entries, self.tips.encode())
            write_whole(self._segment().index_path, index)
        except OSError as error:
            raise cannot_write_log(self.directory, error) from error
        self._previous = self.next_offset, segment_digest(self._header, index)
        self._file.close()
        self._file = None

    def _segment(self) -> SegmentFile:
        return SegmentFile(self.directory / segment_name(self._segment_first), self._segment_first)

    def _head(self, first_offset: int, created_ns: int) -> SegmentHead:
        return SegmentHead(first_offset, created_ns, self.log_id, *self._previous)

    def _recover(self) -> int:
        """Cut torn tails, write missing indexes, and return the first offset that was never given to anybody."""
        segments = find_segments(self.directory)
        self.log_id = self._find_id(segments)
        next_offset = 0
        closed: SegmentFile | None = None
        unread = sum(each.bytes_on_disk() for each in segments) - CHECKED_BYTES_MAX
        for segment in segments:
            unread -= segment.bytes_on_disk()
            entries = segment.stored_index()
            if entries is not None:
                self._inspect(segment, entries, checks_bodies=unread <= 0)
                closed = segment
                next_offset = stop = entries[-1].stop_offset if entries else segment.first_offset
            else:
                # It continues what the closed ones before it had.
                self.tips = Tips.decode(closed.stored_tips()) if closed is not None else self.tips
                closed = None
                stop = self._repair(segment)
                next_offset = segment.first_offset + SEGMENT_ROWS_MAX
            self._previous = stop, segment.digest()
            summary = segment.stored_summary()
            if summary is not None:
                self.delivered_ns = max(self.delivered_ns, summary.delivered_ns_max)
        if closed is not None:
            self.tips = Tips.decode(closed.stored_tips())
        if segments and next_offset == segments[-1].first_offset:
            next_offset += SEGMENT_ROWS_MAX  # An empty segment that was closed: its name is taken.
        return next_offset

    def _find_id(self, segments: Sequence[SegmentFile]) -> bytes:
        """Return the UUID that the segments have; a new one where none has any that can be read."""
        found: dict[bytes, SegmentFile] = {}
        for segment in segments:
            try:
                head = segment.head()
            except CorruptLogError:
                continue  # Told when it is inspected or repaired.
            if head is not None:
                found.setdefault(head.log_id, segment)
        if len(found) > 1:
            names = " and ".join(each.path.name for each in found.values())
            raise UsageError(f"{self.directory} has segments of different logs ({names}); keep those of one log only")
        return next(iter(found), uuid.uuid4().bytes)

    def _inspect(self, segment: SegmentFile, entries: Sequence[BatchEntry], *, checks_bodies: bool) -> None:
        """Note what is broken of a closed segment. It is left as it is: readers say which rows are lost."""
        bad: list[BatchEntry] = []
        expected = segment.first_offset
        try:
            with (
                segment.path.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
                memoryview(mapped) as data,
            ):
                read_segment_header(data, str(segment.path))
                for entry in entries:
                    found = next(scan_batches(data[: entry.stop], entry.at, checked=checks_bodies), None)
                    if found != entry or entry.first_offset != expected:
                        bad.append(entry)
                    expected = entry.stop_offset
        except CorruptLogError as error:
            self.damage.append(str(error))
        except ValueError:
            self.damage.append(f"{segment.path} is damaged: it is empty, and had {len(entries)} batches")
        if bad:
            text = f"{len(bad)} of {len(entries)} batches cannot be read, the first at byte {bad[0].at}"
            self.damage.append(f"{segment.path} is damaged: {text}")

    def _repair(self, segment: SegmentFile) -> int:
        """Cut off a torn tail; return where the segment ends. Whole batches behind damage are kept, and it is told."""
        with segment.path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            good = min(size, HEADER_BYTES)
            entries: list[BatchEntry] = []
            cut = True
            if size:
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
                    try:
                        read_segment_header(data, str(segment.path))
                        at = HEADER_BYTES
                        while True:
                            entries += scan_batches(data, at, checked=True)
                            good = entries[-1].stop if entries else HEADER_BYTES
                            found = find_batch(data, good + 1)
                            if found is None:
                                break
                            self.damage.append(
                                f"{segment.path} is damaged between bytes {good} and {found.at}; the rest is kept"
                            )
                            at = found.at
                    except CorruptLogError as error:
                        if find_batch(data, HEADER_BYTES) is not None:
                            self.damage.append(str(error))
                            entries += scan_batches(data, HEADER_BYTES)
                            cut = False
                        else:
                            good = 0
            stop = entries[-1].stop_offset if entries else segment.first_offset
            if not cut:
                return stop
            if good < size:
                self.bytes_cut += size - good
                file.truncate(good)
            if good == 0:
                # Not even the header got there. The name alone tells which offsets are taken.
                file.write(segment_header(self._head(segment.first_offset, self._clock())))
            file.flush()
            os.fsync(file.fileno())
        if entries:
            self.tips.note_all(_tips_in(segment, entries))
        write_whole(segment.index_path, encode_index(segment.first_offset, entries, self.tips.encode()))
        return stop


def _tips_in(segment: SegmentFile, entries: Sequence[BatchEntry]) -> Iterable[tuple[str, int, int, int]]:
    """Read how far a segment goes for each sender."""
    found: dict[tuple[str, int, int], int] = {}
    for batch in read_rows(segment, entries[0].first_offset, entries[-1].stop_offset):
        if isinstance(batch, LostRows):
            continue  # Told as damage.
        rows = arrow().Table.from_batches([batch.select(["topic", "sender", "incarnation", "sequence"])])
        for each in rows.group_by(["topic", "sender", "incarnation"]).aggregate([("sequence", "max")]).to_pylist():
            sender = each["topic"], each["sender"], each["incarnation"]
            found[sender] = max(found.get(sender, 0), each["sequence_max"] + 1)
    return [(*sender, stop) for sender, stop in found.items()]


def cannot_write_log(path: Path, error: OSError) -> StorageError:
    """Say in one sentence that a log could not be written."""
    cause = error.strerror or str(error)
    return StorageError(f"cannot write the log {path}: {cause}; make room or choose a directory that can be written")
