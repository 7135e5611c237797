"""What nodes tell each other about frames in shared memory, by UDP.

A *note* goes in the place of up to eight frames, and names the memory and the stamps of its frames. A *complaint* comes
back from a listener that cannot read that memory. Both name memory by its *key*: 64 random bits which only those know
who were sent a note. The address of the local socket follows from the key, but not the key from the address, which
everybody on the machine can see.
"""

import struct
from hashlib import blake2b

MARK = b"\xb6"
"""The first byte of notes and complaints. Frames begin with their version, which is another."""

NOTE_MARK = MARK + b"VMN"
COMPLAINT_MARK = MARK + b"VMC"

NOTE_FRAMES_MAX = 8
"""Frames for one note: what a receiver handles at once."""

STAMP_BYTES = 8

_NOTE = struct.Struct("=4sIQ")
_COMPLAINT = struct.Struct("=4sQ")


def pack_note(key: int, stamps: bytes) -> bytes:
    """Make the note for frames with these stamps."""
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
    """Make the complaint about memory with this key."""
    return _COMPLAINT.pack(COMPLAINT_MARK, key)


def unpack_complaint(data: bytes) -> int | None:
    """Return the key in a complaint; None if it is malformed."""
    if len(data) != _COMPLAINT.size or not data.startswith(COMPLAINT_MARK):
        return None
    key: int = _COMPLAINT.unpack(data)[1]
    return key


def local_address(key: int) -> bytes:
    """Return where memory with this key is asked for. Addresses that begin with a zero are in no file system."""
    return b"\0vivum-memory-" + blake2b(key.to_bytes(8, "little"), digest_size=8).hexdigest().encode()
