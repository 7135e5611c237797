"""The bytes of a segment log: segments of checked Arrow batches, and the index beside each.

Follows DESIGN section 14 and `docs/design/segment-log.md`. Knows bytes alone: no files, no clock, no policy.

    segment   header (64 bytes), then batches
    batch     header (64 bytes), then an Arrow IPC record batch of `log_schema()`, padded to 64 bytes or to 4 KiB
    index     header (64 bytes), then one entry for each batch, then how far the log goes for each sender

Every header has a CRC-32, every body an XXH3 (64 bits). So a batch is there whole, or it is not there: what a crash
cut off cannot be taken for data, and no byte can change unseen.

Segments form a chain: the header of each names the log (a UUID), the offset at which the segment before it ended, and a
digest of that segment. So a segment of another log, one that was exchanged and one that is missing are all
recognised, while the jump of offsets after a crash is not taken for a loss.

Invariants: offsets inside a segment are contiguous; a segment has at most `SEGMENT_ROWS_MAX` of them, so the
name of a segment alone reserves the offsets that it may use.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from vivum.core.extras import missing_library
from vivum.storage.errors import CorruptLogError
from vivum.storage.trace_schema import arrow

FORMAT_VERSION = 2
"""Version of segments and indexes. Raised when an older reader would misread them."""

ALIGNMENT = 64
"""Bodies begin and end on such a boundary: Arrow reads them in place, without a copy."""

SEGMENT_ROWS_MAX = 1 << 24
"""Rows of a segment. A writer that finds a segment without an end goes on behind all that it could have held."""

_SEGMENT_MAGIC = b"VIVUMSEG"
_INDEX_MAGIC = b"VIVUMIDX"
_BATCH_MAGIC = b"VBAT"
_SEGMENT = Struct("<8sIqq16sqQI")
_BATCH = Struct("<4sIQQqqQQ4xI")
_INDEX = Struct("<8sIIqqqqqII")
_ENTRY = Struct("<QQIqqQQ")
HEADER_BYTES = 64
assert _SEGMENT.size == _BATCH.size == _INDEX.size == HEADER_BYTES

COLUMNS = (
    "offset",
    "topic",
    "sender",
    "incarnation",
    "sequence",
    "view",
    "position",
    "sent_ns",
    "delivered_ns",
    "payload",
)
"""The columns of a log. `position` is the place in the topic's total order, null where the topic has none."""


class BatchEntry(NamedTuple):
    """Where one batch lies, and what is in it. `at` is the place of its header in the file."""

    at: int
    first_offset: int
    rows: int
    delivered_ns_min: int
    delivered_ns_max: int
    body_bytes: int
    payload_bytes: int

    @property
    def stop_offset(self) -> int:
        """The offset behind its last row."""
        return self.first_offset + self.rows

    @property
    def stop(self) -> int:
        """The place behind its padding, where the next batch begins."""
        return self.body_stop + -self.body_bytes % ALIGNMENT

    @property
    def body_stop(self) -> int:
        """The place behind the last byte of its body."""
        return self.at + HEADER_BYTES + self.body_bytes


class SegmentSummary(NamedTuple):
    """What is in a segment, without its batches: enough to plan by."""

    first_offset: int
    stop_offset: int
    bytes: int
    delivered_ns_min: int
    delivered_ns_max: int


class SegmentHead(NamedTuple):
    """What the header of a segment says: its place in the log, and which log that is."""

    first_offset: int
    created_ns: int
    log_id: bytes
    """A UUID: all segments of a log have the same one, wherever the log is moved."""

    previous_stop: int
    """Where the segment before it ended; `NOTHING_BEFORE` for the first of a log."""

    previous_digest: int
    """The digest of the segment before it; 0 where that had no good index."""

    @property
    def mark(self) -> int:
        """Return a number that tells this segment from any other that could have its name."""
        return crc32(_pack_head(self)[:-4])


NOTHING_BEFORE = -1


@cache
def log_schema() -> Any:
    """Make the Arrow schema of a log. Plain types that Spark reads; times are nanoseconds since 1970."""
    pyarrow = arrow()
    types = {"topic": pyarrow.string(), "payload": pyarrow.binary()}
    return pyarrow.schema(
        [pyarrow.field(name, types.get(name, pyarrow.int64()), nullable=name == "position") for name in COLUMNS]
    )


def segment_name(first_offset: int) -> str:
    """Name a segment's file: sorting by name sorts by offset."""
    return f"{first_offset:020}.segment"


def _checksum(body: Any) -> int:
    """Return the checksum of a body: XXH3, 64 bits, at the speed of memory."""
    try:
        from xxhash import xxh3_64_intdigest
    except ImportError as error:
        raise missing_library(error, "logs need") or error from error
    return int(xxh3_64_intdigest(body))


def _sealed(packed: bytes) -> bytes:
    """Put the checksum into the last four bytes of a header."""
    return packed[:-4] + crc32(packed[:-4]).to_bytes(4, "little")


def _is_sealed(header: Any) -> bool:
    return crc32(header[:-4]) == int.from_bytes(header[-4:], "little")


def _pack_head(head: SegmentHead) -> bytes:
    return _SEGMENT.pack(_SEGMENT_MAGIC, FORMAT_VERSION, *head, 0)


def segment_header(head: SegmentHead) -> bytes:
    """Make the first bytes of a segment."""
    return _sealed(_pack_head(head))


def read_segment_header(data: Any, path: str) -> SegmentHead:
    """Return what a segment's header says. Raises `CorruptLogError`."""
    if len(data) < HEADER_BYTES or not _is_sealed(data[:HEADER_BYTES]) or bytes(data[:8]) != _SEGMENT_MAGIC:
        raise CorruptLogError(f"{path} is not a segment of a log, or its first {HEADER_BYTES} bytes are damaged")
    _, version, *fields, _ = _SEGMENT.unpack_from(data)
    if version != FORMAT_VERSION:
        raise CorruptLogError(
            f"{path} has format {version}, this Vivum reads {FORMAT_VERSION}; read the log with the Vivum that wrote "
            f"it, and record into another directory"
        )
    return SegmentHead(*fields)


def batch_header(entry: BatchEntry, body: Any) -> bytes:
    """Make the header of a batch. Reads the whole body for its checksum, which keeps no other thread waiting."""
    return _sealed(
        _BATCH.pack(
            _BATCH_MAGIC,
            entry.rows,
            entry.body_bytes,
            entry.first_offset,
            entry.delivered_ns_min,
            entry.delivered_ns_max,
            entry.payload_bytes,
            _checksum(body),
            0,
        )
    )


def read_batch_header(data: Any, at: int) -> tuple[BatchEntry, int] | None:
    """Return the entry and the body's checksum of the header at this place, or None if there is none."""
    header = data[at : at + HEADER_BYTES]
    if len(header) < HEADER_BYTES or not _is_sealed(header) or header[:4] != _BATCH_MAGIC:
        return None
    _, rows, body_bytes, first_offset, low, high, payload_bytes, checksum, _ = _BATCH.unpack(header)
    return BatchEntry(at, first_offset, rows, low, high, body_bytes, payload_bytes), checksum


def decode_batch(data: Any, expected: BatchEntry, schema: Any, path: str) -> Any:
    """Return the Arrow batch of an entry, checked; its columns point into `data`. Raises `CorruptLogError`."""
    found = read_batch_header(data, expected.at)
    if found is None or found[0] != expected:
        raise CorruptLogError(f"{path} is damaged at byte {expected.at}: the batch that was there has no good header")
    entry, checksum = found
    body = data[entry.at + HEADER_BYTES : entry.body_stop]
    if len(body) < entry.body_bytes or _checksum(body) != checksum:
        raise CorruptLogError(
            f"{path} is damaged: the batch of offsets {entry.first_offset} to {entry.stop_offset - 1} "
            f"at byte {entry.at} does not have its checksum"
        )
    pyarrow = arrow()
    return pyarrow.ipc.read_record_batch(pyarrow.py_buffer(body), schema)


def scan_batches(data: Any, at: int = HEADER_BYTES, *, checked: bool = False) -> Iterator[BatchEntry]:
    """List whole batches from this place on, up to the first that is not. With `checked`, bodies are read too."""
    size = len(data)
    while True:
        found = read_batch_header(data, at)
        if found is None or found[0].stop > size:
            return
        entry, checksum = found
        if checked and _checksum(data[at + HEADER_BYTES : entry.body_stop]) != checksum:
            return
        yield entry
        at = entry.stop


def find_batch(data: Any, at: int) -> BatchEntry | None:
    """Find the next whole batch behind damage: batches begin on multiples of 64."""
    at += -at % ALIGNMENT
    while at + HEADER_BYTES <= len(data):
        if data[at : at + 4] == _BATCH_MAGIC:
            for entry in scan_batches(data, at, checked=True):
                return entry
        at += ALIGNMENT
    return None


def summary_of(first_offset: int, entries: Sequence[BatchEntry]) -> SegmentSummary:
    """Sum up a segment from its batches."""
    if not entries:
        return SegmentSummary(first_offset, first_offset, HEADER_BYTES, 0, 0)
    return SegmentSummary(
        first_offset,
        entries[-1].stop_offset,
        entries[-1].stop,
        min(each.delivered_ns_min for each in entries),
        max(each.delivered_ns_max for each in entries),
    )


def encode_index(first_offset: int, entries: Sequence[BatchEntry], tips: bytes) -> bytes:
    """Make the index of a segment that will not grow any more. `tips` tell how far the log goes for each sender."""
    body = b"".join([*(_ENTRY.pack(*each) for each in entries), tips])
    summary = summary_of(first_offset, entries)
    header = _INDEX.pack(_INDEX_MAGIC, FORMAT_VERSION, len(entries), *summary, crc32(body), 0)
    return _sealed(header) + body


def read_index_summary(data: bytes) -> SegmentSummary | None:
    """Return the summary in the header of an index, or None if it is damaged: then the segment itself tells."""
    if len(data) < HEADER_BYTES or not _is_sealed(data[:HEADER_BYTES]) or data[:8] != _INDEX_MAGIC:
        return None
    _, version, _, *numbers, _, _ = _INDEX.unpack_from(data)
    return SegmentSummary(*numbers) if version == FORMAT_VERSION else None


def segment_digest(head: bytes, index: bytes) -> int:
    """Return the digest of a segment, from its header and that of its index, which has a checksum of all entries."""
    return _checksum(head[:HEADER_BYTES] + index[:HEADER_BYTES])


def decode_index(data: bytes) -> tuple[list[BatchEntry], bytes] | None:
    """Return the entries of an index and its tips, or None if it is damaged."""
    if read_index_summary(data) is None:
        return None
    _, _, count, *_, body_crc, _ = _INDEX.unpack_from(data)
    body = data[HEADER_BYTES:]
    stop = count * _ENTRY.size
    if len(body) < stop or crc32(body) != body_crc:
        return None
    return [BatchEntry(*numbers) for numbers in _ENTRY.iter_unpack(body[:stop])], body[stop:]
