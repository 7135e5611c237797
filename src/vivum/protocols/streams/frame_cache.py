"""Frames of a stream that a node keeps for others, in the trains in which they came.

A train is kept as long as any of its frames may be asked for. It holds the buffer in which it was received, unless
it is a small part of that: a node of a large ring keeps few of the frames of each train.
"""

from bisect import bisect_right
from collections import deque

from vivum.wire.codec import Frame


class FrameCache:
    """Frames from a floor on, by their numbers. Each is added once."""

    __slots__ = ("_count", "_late", "_trains", "floor")

    def __init__(self) -> None:
        """Begin with nothing."""
        # Before this frame nothing is kept.
        self.floor = 0
        # What was added with rising numbers, and single frames that came behind later ones.
        self._trains: deque[Frame] = deque()
        self._late: dict[int, Frame] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    @property
    def size(self) -> int:
        """Bytes of the buffers that the frames hold."""
        return sum({id(frame.data): len(frame.data) for frame in (*self._trains, *self._late.values())}.values())

    @property
    def numbers(self) -> list[int]:
        """The numbers of the frames, from the lowest on."""
        trains = [number for frame in self._trains for number in range(frame.sequence, frame.stop)]
        return sorted([*trains, *self._late])

    def add(self, frame: Frame) -> None:
        """Keep a frame, or those of a train."""
        if frame.stop <= self.floor:
            return
        if frame.sequence < self.floor:
            frame = frame.part(self.floor, frame.stop)
        frame = frame.compact()
        self._count += frame.count
        trains = self._trains
        if not trains or frame.sequence >= trains[-1].stop:
            trains.append(frame)
        else:
            assert frame.count == 1, "trains are taken whole only when they are next"
            self._late[frame.sequence] = frame

    def get(self, number: int) -> Frame | None:
        """Return a single frame; None if it is not kept."""
        frame = self._late.get(number)
        if frame is not None:
            return frame
        index = bisect_right(self._trains, number, key=_first_of) - 1
        train = self._trains[index] if index >= 0 else None
        return train.part(number, number + 1) if train is not None and number < train.stop else None

    def between(self, start: int, stop: int, frames_max: int) -> list[Frame]:
        """Return the lowest frames `start <= n < stop`, single ones, at most so many."""
        found: list[Frame] = []
        # Bound the work by what is here, whatever a peer asks for.
        numbers = range(start, stop) if stop - start <= self._count else self.numbers
        for number in numbers:
            frame = self.get(number) if start <= number < stop else None
            if frame is not None:
                found.append(frame)
                if len(found) >= frames_max:
                    break
        return found

    def forget_below(self, floor: int) -> None:
        """Forget the frames with lower numbers."""
        trains = self._trains
        while trains and trains[0].stop <= floor:
            self._count -= trains.popleft().count
        if trains and trains[0].sequence < floor:
            self._count -= floor - trains[0].sequence
            trains[0] = trains[0].part(floor, trains[0].stop)
        late = self._late
        if late:
            count = len(late)
            is_dense = count > floor - self.floor
            for number in range(self.floor, floor) if is_dense else [each for each in late if each < floor]:
                late.pop(number, None)
            self._count += len(late) - count
        self.floor = floor


def _first_of(frame: Frame) -> int:
    return frame.sequence
