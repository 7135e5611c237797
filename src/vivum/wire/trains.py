"""Trains: consecutive frames of a stream that leave by one call of the kernel (`UDP_SEGMENT`).

All frames of a train have the same length but the last, which may be shorter: so the kernel, or a receiver that got
the whole train at once, knows where each begins. Numbering, loss and repair stay by frame.
"""

from collections.abc import Iterable, Sequence

import msgspec

from vivum.core.ids import Channel, Endpoint
from vivum.core.machine import Datagram, Priority

TRAIN_BYTES_MAX = 65_000
"""All of a train must fit one IP packet before it is cut."""

TRAIN_FRAMES_MAX = 64
"""The most frames that the kernel takes in one call (UDP_MAX_SEGMENTS of older kernels)."""


class Train(msgspec.Struct, frozen=True, gc=False):
    """One or more frames in a row."""

    data: bytes
    frames: int = 1
    segment: int = 0
    """Bytes of each frame but the last; 0 where there is only one."""


def frames_in_train(frame_bytes: int) -> int:
    """Return how many frames of this size make the longest train."""
    return max(1, min(TRAIN_BYTES_MAX // frame_bytes, TRAIN_FRAMES_MAX))


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
