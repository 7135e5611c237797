"""A number for every group, kept by ranges of groups: in which epoch a region with this group went last.

The number of a group view is the last epoch in which one of its regions changed, appeared or went. The first two can
be seen in the regions that are there; the third leaves no region behind, so it is kept here. One value for each
stretch of neighbouring groups: a region of 8,192 neighbours that goes costs one entry.

Invariants: starts increase strictly and begin with 0; neighbouring values differ; the last value is 0.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from vivum.core.ranges import RangeSet


class GroupEpochs:
    """A function from group to epoch, constant on stretches; 0 where nothing was ever set."""

    __slots__ = ("_starts", "_values")

    def __init__(self) -> None:
        self._starts = [0]
        self._values = [0]

    def at(self, group: int) -> int:
        """Return the value of one group."""
        return self._values[bisect_right(self._starts, group) - 1]

    def set_range(self, start: int, stop: int, epoch: int) -> None:
        """Give all groups `start <= g < stop` this value."""
        if start >= stop:
            return
        starts, values = self._starts, self._values
        low = bisect_left(starts, start)
        high = bisect_right(starts, stop, low)
        before = values[low - 1] if low else None
        after = values[high - 1]
        new_starts, new_values = [], []
        if epoch != before:
            new_starts, new_values = [start], [epoch]
        if after != epoch:
            new_starts.append(stop)
            new_values.append(after)
        starts[low:high] = new_starts
        values[low:high] = new_values

    def set_groups(self, groups: RangeSet, epoch: int) -> None:
        """Give all groups of a set this value."""
        for start, stop in groups.ranges():
            self.set_range(start, stop, epoch)

    def stretches(self, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
        """Walk start, stop and value of the stretches inside some ranges, in order."""
        starts, values = self._starts, self._values
        for start, stop in ranges:
            index = bisect_right(starts, start) - 1
            while start < stop:
                end = starts[index + 1] if index + 1 < len(starts) else stop
                end = min(end, stop)
                yield start, end, values[index]
                start = end
                index += 1

    def above(self, groups: RangeSet, floor: int) -> list[tuple[int, tuple[int, ...]]]:
        """List the values over `floor` of some groups, lowest first, each with the bounds of its groups."""
        found: dict[int, RangeSet] = {}
        for start, stop, epoch in self.stretches(groups.ranges()):
            if epoch > floor:
                found.setdefault(epoch, RangeSet()).add_range(start, stop)
        return [(epoch, tuple(found[epoch].bounds())) for epoch in sorted(found)]

    def keep_only(self, groups: RangeSet) -> None:
        """Forget all that is outside a set."""
        kept = list(self.stretches(groups.ranges()))
        self.clear()
        for start, stop, epoch in kept:
            self.set_range(start, stop, epoch)

    def clear(self) -> None:
        """Forget everything."""
        self._starts = [0]
        self._values = [0]

    def state(self) -> tuple[list[int], list[int]]:
        """Copy out the stretches: where each begins, and its value."""
        return list(self._starts), list(self._values)

    def restore(self, starts: list[int], values: list[int]) -> None:
        """Become what `state` told of another one."""
        self._starts, self._values = list(starts), list(values)

    def __len__(self) -> int:
        """Count the stretches: what memory depends on."""
        return len(self._starts)
