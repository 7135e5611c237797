"""The bytes of a write-ahead log: numbered records with a checksum each, and how they are read back.

Knows bytes alone: no files, no policy, and nothing of what a record says.

    record   mark, length, number, CRC-32 of length, number and content; then the content

A record is there whole, or it is not there. Numbers rise by one from record to record, so none can be missed. What ends
the good records is a *torn tail* if nothing whole is behind it: a crash cut the last write off. Else it is *damage*.
"""

from struct import Struct
from typing import NamedTuple
from zlib import crc32

_MARK = b"VREC"
_HEADER = Struct("<4sIQI")
_CHECKED = Struct("<IQ")
RECORD_HEADER_BYTES = _HEADER.size


class ScannedRecords(NamedTuple):
    """What is in some bytes: good records from the beginning, where they end, and whole ones behind damage."""

    records: list[bytes]
    stop: int
    next_number: int
    lost: list[bytes]
    damaged_at: int
    """Where the first damage is; -1 for none. A torn tail is none."""


def frame_record(number: int, content: bytes) -> bytes:
    """Make the bytes of a record."""
    checksum = crc32(content, crc32(_CHECKED.pack(len(content), number)))
    return _HEADER.pack(_MARK, len(content), number, checksum) + content


def _read_at(data: memoryview, at: int) -> tuple[int, bytes] | None:
    """Return number and content of the record at a place, or None if no whole one is there."""
    if len(data) - at < RECORD_HEADER_BYTES:
        return None
    mark, length, number, checksum = _HEADER.unpack_from(data, at)
    content = data[at + RECORD_HEADER_BYTES : at + RECORD_HEADER_BYTES + length]
    if mark != _MARK or len(content) < length or crc32(content, crc32(_CHECKED.pack(length, number))) != checksum:
        return None
    return number, bytes(content)


def scan_records(data: bytes | bytearray, at: int = 0, number: int | None = None) -> ScannedRecords:
    """Read records from a place on. `number` is that of the first; None takes any."""
    view = memoryview(data)
    records: list[bytes] = []
    while (found := _read_at(view, at)) is not None and number in (None, found[0]):
        records.append(found[1])
        at += RECORD_HEADER_BYTES + len(found[1])
        number = found[0] + 1
    next_number = number or 0
    lost: list[bytes] = []
    looked = at
    while (looked := data.find(_MARK, looked)) >= 0:
        found = _read_at(view, looked)
        if found is None or found[0] < next_number:
            looked += 1
            continue
        lost.append(found[1])
        next_number = found[0] + 1
        looked += RECORD_HEADER_BYTES + len(found[1])
    return ScannedRecords(records, at, next_number, lost, at if lost else -1)
