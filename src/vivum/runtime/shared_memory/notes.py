"""Datagrams about frames in shared memory.

A *note* replaces up to eight frames, and names the memory and the stamps of its frames. A *complaint* comes back from a
listener that cannot read that memory. Both name memory by its *key*: 64 random bits, known only to those who were sent
a note. The address of the local socket, which everybody on the machine can see, is a hash of the key.
"""

import struct
from hashlib import blake2b

MARK = b"\xb6"
"""The first byte of notes and complaints. Frames begin with their version, which is another."""

NOTE_MARK = MARK + b"VMN"
COMPLAINT_MARK = MARK + b"VMC"

NOTE_FRAMES_MAX = 8
"""The most frames in one note: what a receiver handles at once."""

STAMP_BYTES = 8

_NOTE = struct.Struct("=4sIQ")
_COMPLAINT = struct.Struct("=4sQ")


def pack_note(key: int, stamps: bytes) -> bytes:
    """Return the note for frames with these stamps."""
    return _NOTE.pack(NOTE_MARK, len(stamps) // STAMP_BYTES, key) + stamps


def unpack_note(data: bytes) -> tuple[int, bytes] | None:
    """Return the key and the stamps in a note; None if it is malformed."""
    if len(data) < _NOTE.size:
        return None
    mark, count, key = _NOTE.unpack_from(data)
    if mark != NOTE_MARK or not 0 < count <= NOTE_FRAMES_MAX or len(data) != _NOTE.size + STAMP_BYTES * count:
        return None
    return key, data[_NOTE.size :]


def pack_complaint(key: int) -> bytes:
    """Return the complaint about memory with this key."""
    return _COMPLAINT.pack(COMPLAINT_MARK, key)


def unpack_complaint(data: bytes) -> int | None:
    """Return the key in a complaint; None if it is malformed."""
    if len(data) != _COMPLAINT.size or not data.startswith(COMPLAINT_MARK):
        return None
    key: int = _COMPLAINT.unpack(data)[1]
    return key


def local_address(key: int) -> bytes:
    """Return the local address at which to ask for memory with this key, in the abstract namespace."""
    return b"\0vivum-memory-" + blake2b(key.to_bytes(8, "little"), digest_size=8).hexdigest().encode()
