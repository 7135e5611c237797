"""Trains: consecutive frames of a stream that leave by one call of the kernel (`UDP_SEGMENT`).

All frames of a train have the same length but the last, which may be shorter: so the kernel, or a receiver that got
the whole train at once, knows where each begins. Numbering, loss and repair stay by frame.
"""

from collections.abc import Iterable, Sequence
from struct import Struct

import msgspec

from vivum.core.ids import Channel, Endpoint
from vivum.core.machine import Datagram, Priority

TRAIN_BYTES_MAX = 65_000
"""All of a train must fit one IP packet before it is cut."""

TRAIN_FRAMES_MAX = 64
"""The most frames that the kernel takes in one call (UDP_MAX_SEGMENTS of older kernels)."""

PADDED_PART = 8
"""A frame lacks less than this part when the beginning of the next message found no room in it (`WORTHWHILE_PART`)."""

_BEGINNING = Struct("<2sH")
"""How a header begins: version and kind, and the length of the frame."""


class Train(msgspec.Struct, frozen=True, gc=False):
    """One or more frames in a row."""

    data: bytes
    frames: int = 1
    segment: int = 0
    """Bytes of each frame but the last; 0 where there is only one."""


def frames_in_train(frame_bytes: int) -> int:
    """Return how many frames of this size make the longest train."""
    return max(1, min(TRAIN_BYTES_MAX // frame_bytes, TRAIN_FRAMES_MAX))


def pad(frame: bytes, frame_bytes: int) -> bytes:
    """Fill a frame up with zeros, so that another can follow it in a train; not if that wastes an eighth or more."""
    if not frame_bytes * (PADDED_PART - 1) // PADDED_PART < len(frame) < frame_bytes:
        return frame
    version_and_kind, _ = _BEGINNING.unpack_from(frame)
    return _BEGINNING.pack(version_and_kind, frame_bytes) + frame[_BEGINNING.size :].ljust(
        frame_bytes - _BEGINNING.size, b"\0"
    )


def couple(frames: Sequence[bytes], frame_bytes: int) -> list[Train]:
    """Couple frames that follow each other; a train ends behind a frame that is not full."""
    most = frames_in_train(frame_bytes)
    if len(frames) == 1 or most < 2:
        return [Train(frame) for frame in frames]
    trains = []
    start = 0
    while start < len(frames):
        stop, end = start + 1, min(start + most, len(frames))
        while stop < end and len(frames[stop - 1]) == frame_bytes:
            stop += 1
        train = frames[start:stop]
        trains.append(Train(b"".join(train), len(train), frame_bytes) if len(train) > 1 else Train(train[0]))
        start = stop
    return trains


def address(
    trains: Iterable[Train], destinations: Sequence[Endpoint | Channel], priority: Priority = Priority.DATA
) -> list[Datagram]:
    """Make the effects that send trains to all of some destinations."""
    return [Datagram(where, train.data, priority, train.segment) for train in trains for where in destinations]
