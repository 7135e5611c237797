"""The same bytes under another label, in plain Python: again, or as a frame of one of several streams.

Same names as `_relabel.pyx` and same behaviour to the byte and to the error; change both or neither.
"""

from vivum.wire import refusals
from vivum.wire._arguments import bytes_of, require
from vivum.wire.kinds import Kind
from vivum.wire.layout import (
    GROUP_MAX,
    HEADER,
    HEADER_BYTES,
    LENGTH,
    LENGTH_BYTES,
    MESSAGE_KINDS,
    RUN_HEADER,
    RUN_HEADER_BYTES,
    SEQUENCE_MAX,
    U32_MAX,
    U64_MAX,
    VERSION,
)

Buffer = bytes | bytearray | memoryview


def resend(frame: Buffer) -> bytes:
    """Return the same frame of messages with kind RESENT: same sender, same number, same bytes."""
    content = bytes_of(frame, "frame")
    if (
        len(content) < HEADER_BYTES
        or content[0] != VERSION
        or LENGTH.unpack_from(content, 2)[0] != len(content)
        or content[1] not in MESSAGE_KINDS
    ):
        raise refusals.not_a_data_frame()
    if content[1] == Kind.RESENT:
        return content
    return content[:1] + bytes((Kind.RESENT,)) + content[2:]


def _varint(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """Read a number of 7 bits a byte, the lowest first; return it and the offset behind it, or -1 if it is torn."""
    value = shift = 0
    while at < stop and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value, at) if value <= U64_MAX else (-1, at)
        shift += 7
    return -1, at


def relabel(frame: Buffer, region: int, view: int) -> bytes | None:
    """Return a SPREAD frame as the frame of one region view: kind DATA, with that region, view and its number there.

    None if the list with which the frame begins does not have the region view, or is torn before it.
    """
    content = bytes_of(frame, "frame")
    require(region, "region", 0, U32_MAX)
    require(view, "view", 0, U32_MAX)
    if (
        len(content) < HEADER_BYTES
        or content[0] != VERSION
        or LENGTH.unpack_from(content, 2)[0] != len(content)
        or content[1] != Kind.SPREAD
    ):
        raise refusals.not_a_spread_frame()
    at = HEADER_BYTES
    if len(content) - at < RUN_HEADER_BYTES + LENGTH_BYTES:
        return None
    tag, _, count = RUN_HEADER.unpack_from(content, at)
    (size,) = LENGTH.unpack_from(content, at + RUN_HEADER_BYTES)
    at += RUN_HEADER_BYTES + LENGTH_BYTES
    if tag != GROUP_MAX or count == 0 or size > len(content) - at:
        return None
    stop = at + size
    found = 0
    while at < stop:
        step, at = _varint(content, at, stop)
        its_view, at = _varint(content, at, stop)
        sequence, at = _varint(content, at, stop)
        if step < 0 or its_view < 0 or sequence < 0 or step > U32_MAX - found:
            return None
        found += step
        if found == region and its_view == view and sequence <= SEQUENCE_MAX:
            fields = (VERSION, Kind.DATA, *HEADER.unpack_from(content)[2:7], region, view, sequence)
            return HEADER.pack(*fields, HEADER.unpack_from(content)[10]) + content[HEADER_BYTES:]
    return None
