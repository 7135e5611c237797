"""An index from groups to the sets that hold them: which regions cover a group, which share one with a given region.

Each set has a small number; the sets that hold a group are the bits of one integer, its *mask*. Masks are kept by
stretches of neighbouring groups, as in `group_epochs`: sets of 8,192 neighbours take one entry. A thousand sets are 125
bytes a mask, so questions about all of them at once cost a few operations on integers.

A bound that no longer parts anything stays for a while, since sets are often taken out to come back a little changed.
Such bounds are dropped when they are more than half of all.

Invariants: starts increase strictly and begin with 0; the last mask is 0.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from vivum.core.ranges import RangeSet

STRETCHES_SPARE = 64
"""Superfluous bounds that are always allowed, however few bounds separate groups."""


def numbers_in(mask: int) -> Iterator[int]:
    """Walk the numbers of the bits of a mask, lowest first."""
    digits = bin(mask)[:1:-1]
    number = digits.find("1")
    while number >= 0:
        yield number
        number = digits.find("1", number + 1)


class GroupIndex:
    """Numbered sets of groups, found by group."""

    __slots__ = ("_masks", "_needed", "_starts")

    def __init__(self) -> None:
        self._starts = [0]
        self._masks = [0]
        # Stretches that parted something when this was last looked at.
        self._needed = 1

    def flip(self, number: int, bounds: Sequence[int]) -> None:
        """Put these groups into the set of this number, or take them out: each that is in goes, each other comes."""
        starts, masks = self._starts, self._masks
        bit = 1 << number
        for start, stop in zip(bounds[::2], bounds[1::2], strict=True):
            low = bisect_left(starts, start)
            if low == len(starts) or starts[low] != start:
                starts.insert(low, start)
                masks.insert(low, masks[low - 1])
            high = bisect_left(starts, stop, low)
            if high == len(starts) or starts[high] != stop:
                starts.insert(high, stop)
                masks.insert(high, masks[high - 1])
            for index in range(low, high):
                masks[index] ^= bit
        if len(starts) > STRETCHES_SPARE + 2 * self._needed:
            self._join_stretches()

    def _join_stretches(self) -> None:
        kept = [0, *(index for index in range(1, len(self._masks)) if self._masks[index] != self._masks[index - 1])]
        self._starts = [self._starts[index] for index in kept]
        self._masks = [self._masks[index] for index in kept]
        self._needed = len(kept)

    def at(self, group: int) -> int:
        """Return the mask of the sets that hold a group."""
        return self._masks[bisect_right(self._starts, group) - 1]

    def sharing(self, bounds: Sequence[int]) -> int:
        """Return the mask of the sets that hold one of these groups."""
        starts, masks = self._starts, self._masks
        found = 0
        for start, stop in zip(bounds[::2], bounds[1::2], strict=True):
            low = bisect_right(starts, start) - 1
            for mask in masks[low : bisect_left(starts, stop, low)]:
                found |= mask
        return found

    def stretches(self, bounds: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Walk start, stop and mask of the stretches inside these groups, in order."""
        starts, masks = self._starts, self._masks
        for start, stop in zip(bounds[::2], bounds[1::2], strict=True):
            index = bisect_right(starts, start)
            while index < len(starts) and starts[index] < stop:
                yield start, starts[index], masks[index - 1]
                start = starts[index]
                index += 1
            yield start, stop, masks[index - 1]

    def count_shared(self, bounds: Sequence[int]) -> list[int]:
        """Count, for all sets at once, how many of these groups each holds.

        Returns the binary digits of the counts, lowest first: bit n of digit d is digit d of the count of set n.
        """
        waiting: dict[int, list[int]] = {}
        for start, stop, mask in self.stretches(bounds):
            weight = stop - start if mask else 0
            while weight:
                waiting.setdefault((weight & -weight).bit_length() - 1, []).append(mask)
                weight &= weight - 1
        digits: list[int] = []
        while waiting:
            # Add up one place in all sets at once, two masks at a time; what is carried waits for the next place.
            total, carried = 0, []
            masks = waiting.pop(len(digits), [])
            if len(masks) % 2:
                total = masks.pop()
            for first, second in zip(masks[::2], masks[1::2], strict=True):
                either = total ^ first
                carry = total & first | either & second
                total = either ^ second
                if carry:
                    carried.append(carry)
            digits.append(total)
            if carried:
                waiting.setdefault(len(digits), []).extend(carried)
        return digits

    def groups(self) -> RangeSet:
        """Return all groups that some set holds."""
        found = RangeSet()
        for index, mask in enumerate(self._masks):
            if mask:
                found.add_range(self._starts[index], self._starts[index + 1])
        return found

    def masks(self) -> Iterable[int]:
        """Return the masks of all stretches, in order."""
        return self._masks

    def __len__(self) -> int:
        """Count the stretches: what memory depends on."""
        return len(self._starts)
