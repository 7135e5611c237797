"""Many timers behind one deadline.

A machine has a single deadline (`next_deadline_ns`). `Deadlines` keeps one time for each key in a heap
with lazy removal: setting, moving and cancelling cost O(log n), asking for the earliest is O(1) amortised. Keys
that are due together come out in the order of their times, then of their setting, so a run is repeatable.
"""

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """At most one deadline for each key."""

    __slots__ = ("_earliest_ns", "_heap", "_is_known", "_order", "_set")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, K]] = []
        self._set: dict[K, tuple[int, int]] = {}
        self._order = 0
        # Drivers ask after every datagram, and few datagrams change anything.
        self._earliest_ns: int | None = None
        self._is_known = True

    def set(self, key: K, at_ns: int) -> None:
        """Set or move the deadline of a key."""
        self._is_known = False
        self._order += 1
        self._set[key] = (at_ns, self._order)
        heappush(self._heap, (at_ns, self._order, key))
        # Moved deadlines leave stale entries behind; rebuild before these far outnumber the live ones.
        if len(self._heap) > 64 + 4 * len(self._set):
            self._heap = [(at, order, each) for each, (at, order) in self._set.items()]
            heapify(self._heap)

    def set_earlier(self, key: K, at_ns: int) -> None:
        """Set the deadline of a key unless it has an earlier one."""
        held = self._set.get(key)
        if held is None or at_ns < held[0]:
            self.set(key, at_ns)

    def cancel(self, key: K) -> None:
        """Forget the deadline of a key, if it has one."""
        self._is_known = False
        self._set.pop(key, None)

    def get(self, key: K) -> int | None:
        """Return the deadline of a key."""
        held = self._set.get(key)
        return None if held is None else held[0]

    def next_ns(self) -> int | None:
        """Return the earliest deadline."""
        if not self._is_known:
            self._earliest_ns = self._find_earliest()
            self._is_known = True
        return self._earliest_ns

    def _find_earliest(self) -> int | None:
        heap, live = self._heap, self._set
        while heap:
            at_ns, order, key = heap[0]
            if live.get(key) == (at_ns, order):
                return at_ns
            heappop(heap)
        return None

    def take_due(self, now_ns: int) -> Iterator[K]:
        """Yield and remove the keys that are due, including those set meanwhile for `now_ns` or before."""
        while (at_ns := self.next_ns()) is not None and at_ns <= now_ns:
            key = heappop(self._heap)[2]
            del self._set[key]
            self._is_known = False
            yield key

    def __len__(self) -> int:
        return len(self._set)

    def __contains__(self, key: object) -> bool:
        return key in self._set
