"""The frames of a stream that its sender keeps: whole trains, of which single frames are given out."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from vivum.wire.trains import Train


class _Kept(NamedTuple):
    """A train, the number of its first frame, and the bytes of all trains before it."""

    first: int
    before: int
    train: Train


class KeptFrames:
    """Frames with rising numbers, without a gap; the oldest are forgotten first.

    A train is kept as long as any of its frames is wanted.
    """

    __slots__ = ("_bytes", "_stop", "_trains")

    def __init__(self, first: int = 0) -> None:
        """Begin with nothing; the next frame has the number `first`."""
        self._trains: deque[_Kept] = deque()
        self._stop = first
        self._bytes = 0

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._bytes - self._trains[0].before if self._trains else 0

    def extend(self, trains: Iterable[Train]) -> None:
        """Keep the next frames."""
        for train in trains:
            self._trains.append(_Kept(self._stop, self._bytes, train))
            self._stop += train.frames
            self._bytes += len(train.data)

    def get(self, number: int) -> bytes:
        """Return a frame that is kept."""
        first, _, train = self._find(number)
        if not train.segment:
            return train.data
        start = (number - first) * train.segment
        return train.data[start : start + train.segment]

    def size_between(self, start: int, stop: int) -> int:
        """Return the bytes of the frames `start <= n < stop`, all of them kept."""
        return self._offset(stop) - self._offset(start)

    def forget_below(self, number: int) -> None:
        """Forget trains all of whose frames have lower numbers."""
        trains = self._trains
        while trains and trains[0].first + trains[0].train.frames <= number:
            trains.popleft()

    def _find(self, number: int) -> _Kept:
        return self._trains[bisect_right(self._trains, number, key=_first_of) - 1]

    def _offset(self, number: int) -> int:
        if number >= self._stop:
            return self._bytes
        first, before, train = self._find(number)
        return before + (number - first) * train.segment


def _first_of(kept: _Kept) -> int:
    return kept.first
