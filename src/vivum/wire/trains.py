"""Trains: consecutive frames of a stream that leave by one call of the kernel (`UDP_SEGMENT`).

All frames of a train have the same length but the last, which may be shorter: so the kernel, or a receiver that got
the whole train at once, knows where each begins. Numbering, loss and repair stay by frame.
"""

from collections.abc import Sequence
from typing import NamedTuple

TRAIN_BYTES_MAX = 65_000
"""All of a train must fit one IP packet before it is cut."""

TRAIN_FRAMES_MAX = 64
"""The most frames that the kernel takes in one call (UDP_MAX_SEGMENTS of older kernels)."""


class Train(NamedTuple):
    """One or more frames in a row."""

    data: bytes
    count: int
    segment: int
    """Bytes of each frame but the last; 0 where there is only one."""


def couple(frames: Sequence[bytes], frame_bytes: int) -> list[Train]:
    """Couple frames that follow each other; a train ends behind a frame that is not full."""
    most = min(TRAIN_BYTES_MAX // frame_bytes, TRAIN_FRAMES_MAX)
    if len(frames) == 1 or most < 2:
        return [Train(frame, 1, 0) for frame in frames]
    trains = []
    start = 0
    while start < len(frames):
        stop, end = start + 1, min(start + most, len(frames))
        while stop < end and len(frames[stop - 1]) == frame_bytes:
            stop += 1
        count = stop - start
        trains.append(Train(b"".join(frames[start:stop]), count, frame_bytes) if count > 1 else Train(frames[start], 1, 0))
        start = stop
    return trains
