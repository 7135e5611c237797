"""Virtual time: a heap of things to do.

Events at the same nanosecond run in the order in which they were scheduled, so nothing depends on hashing or
addresses. There is no cancelling: an action checks whether it is still wanted.

`_engine.pyx` has this class compiled; change both or neither. `engine` chooses.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Scheduler:
    """The simulator's clock and agenda."""

    __slots__ = ("_heap", "_order", "events", "now_ns")

    def __init__(self) -> None:
        self.now_ns = 0
        self.events = 0
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._order = 0

    def at(self, at_ns: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Run `action(argument)` at a time, which is not in the past."""
        assert at_ns >= self.now_ns, f"scheduled {self.now_ns - at_ns} ns into the past"
        self._order += 1
        heappush(self._heap, (at_ns, self._order, action, argument))

    def run_until(self, stop_ns: int) -> None:
        """Do everything that is due before or at a time, then stand at that time."""
        heap = self._heap
        events = 0
        while heap and heap[0][0] <= stop_ns:
            self.now_ns, _, action, argument = heappop(heap)
            events += 1
            action(argument)
        self.events += events
        self.now_ns = max(self.now_ns, stop_ns)

    @property
    def next_ns(self) -> int | None:
        """When the next thing is due; None if nothing will ever happen any more."""
        return self._heap[0][0] if self._heap else None

    @property
    def idle(self) -> bool:
        """Nothing will ever happen any more."""
        return not self._heap
