"""Sets of integers kept as sorted ranges: missing frames, cached frames, what was acknowledged.

Ranges are half-open, `start <= n < stop`, as everywhere in Python. A set of k ranges is one flat sorted list of 2k
bounds `[start0, stop0, start1, stop1, ...]`, strictly increasing, so touching ranges are always merged and equal
sets have equal lists. A number is in the set exactly when an odd number of bounds is at or below it: one `bisect`
answers membership, and an update is one slice assignment.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise


class RangeSet:
    """A mutable set of non-negative integers that are mostly neighbours."""

    __slots__ = ("_bounds",)

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._bounds: list[int] = []
        for start, stop in ranges:
            self.add_range(start, stop)

    @classmethod
    def from_bounds(cls, bounds: Sequence[int]) -> "RangeSet":
        """Make a set from a flat list of bounds, as `bounds()` returns it. Raises `ValueError` for any other list."""
        result = cls()
        if len(bounds) % 2 or any(a >= b for a, b in pairwise(bounds)):
            raise ValueError("bounds of a RangeSet must be an even number of strictly increasing integers")
        result._bounds = list(bounds)
        return result

    def bounds(self) -> list[int]:
        """Return the flat list of bounds, the form in which a set travels."""
        return self._bounds.copy()

    def add(self, number: int) -> bool:
        """Add one number; return whether it is new. Appending at the end, the usual case, costs O(1)."""
        bounds = self._bounds
        if not bounds or number > bounds[-1]:
            bounds += (number, number + 1)
            return True
        if number == bounds[-1]:
            bounds[-1] += 1
            return True
        if number in self:
            return False
        self.add_range(number, number + 1)
        return True

    def discard(self, number: int) -> bool:
        """Remove one number; return whether it was in the set."""
        if number not in self:
            return False
        self.discard_range(number, number + 1)
        return True

    def add_range(self, start: int, stop: int) -> None:
        """Add `start <= n < stop`. An empty range changes nothing."""
        if start >= stop:
            return
        bounds = self._bounds
        low = bisect_left(bounds, start)
        high = bisect_right(bounds, stop, low)
        # An even index is outside all ranges: the new bound stays. An odd one is inside or touching: it is absorbed.
        bounds[low:high] = ([] if low % 2 else [start]) + ([] if high % 2 else [stop])

    def discard_range(self, start: int, stop: int) -> None:
        """Remove `start <= n < stop`."""
        if start >= stop:
            return
        bounds = self._bounds
        low = bisect_left(bounds, start)
        high = bisect_right(bounds, stop, low)
        bounds[low:high] = ([start] if low % 2 else []) + ([stop] if high % 2 else [])

    def update(self, other: "RangeSet") -> None:
        """Add all of another set."""
        if not self._bounds:
            self._bounds = other._bounds.copy()
            return
        for start, stop in other.ranges():
            self.add_range(start, stop)

    def difference_update(self, other: "RangeSet") -> None:
        """Remove all of another set."""
        for start, stop in other.ranges():
            self.discard_range(start, stop)

    def intersection(self, other: "RangeSet") -> "RangeSet":
        """Return the intersection, in time linear in the ranges of both."""
        mine, theirs = self._bounds, other._bounds
        result: list[int] = []
        i = j = 0
        while i < len(mine) and j < len(theirs):
            start = max(mine[i], theirs[j])
            stop = min(mine[i + 1], theirs[j + 1])
            if start < stop:
                result += (start, stop)
            if mine[i + 1] <= theirs[j + 1]:
                i += 2
            else:
                j += 2
        made = RangeSet()
        made._bounds = result
        return made

    def lowest(self, ranges_max: int) -> "RangeSet":
        """Return at most this many of the lowest ranges, to fit a bounded control message."""
        made = RangeSet()
        made._bounds = self._bounds[: 2 * ranges_max]
        return made

    def head(self, count: int) -> "RangeSet":
        """Return the lowest numbers, at most this many."""
        made = RangeSet()
        for start, stop in self.ranges():
            if count <= 0:
                break
            made._bounds += (start, min(stop, start + count))
            count -= stop - start
        return made

    def clear(self) -> None:
        """Empty the set."""
        self._bounds.clear()

    def copy(self) -> "RangeSet":
        """Return an independent copy."""
        made = RangeSet()
        made._bounds = self._bounds.copy()
        return made

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Iterate over the half-open ranges in order."""
        bounds = self._bounds
        return zip(bounds[::2], bounds[1::2], strict=True)

    @property
    def range_count(self) -> int:
        """The number of ranges, on which memory and size on the wire depend."""
        return len(self._bounds) // 2

    def first(self) -> int:
        """Return the lowest number. The set must not be empty."""
        return self._bounds[0]

    def last(self) -> int:
        """Return the highest number. The set must not be empty."""
        return self._bounds[-1] - 1

    def __contains__(self, number: int) -> bool:
        return bisect_right(self._bounds, number) % 2 == 1

    def __iter__(self) -> Iterator[int]:
        for start, stop in self.ranges():
            yield from range(start, stop)

    def count(self) -> int:
        """Return how many numbers there are. Not `len()`, which raises for 2**64 numbers; a peer may claim so many."""
        bounds = self._bounds
        return sum(bounds[1::2]) - sum(bounds[::2])

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self._bounds == other._bounds

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        inside = ", ".join(str(a) if b == a + 1 else f"{a}..{b - 1}" for a, b in self.ranges())
        return f"RangeSet({inside})"
