"""How late timers are: a node that is busy or asleep gets to them late (seed 004, Figures 30, 31 and 35)."""

from statistics import fmean

from vivum.core.time import MILLISECOND, SECOND
from vivum.node.node import Node


class TimerLog:
    """The longest delay of a timer in every second, as far as samples show it: a shorter one may lie between two."""

    def __init__(self, begin_ns: int) -> None:
        self._begin_ns = begin_ns
        self._late_ns: dict[int, int] = {}

    def sample(self, now_ns: int, node: Node | None) -> None:
        """Look when the next timer of a node was due."""
        due_ns = None if node is None else node.next_deadline_ns()
        second = (now_ns - self._begin_ns) // SECOND
        late_ns = 0 if due_ns is None else max(0, now_ns - due_ns)
        self._late_ns[second] = max(self._late_ns.get(second, 0), late_ns)

    def mean_ms(self) -> float:
        """Return the mean of the longest delays."""
        return fmean(self._late_ns.values()) / MILLISECOND if self._late_ns else 0.0

    def max_ms(self) -> float:
        """Return the longest delay of all."""
        return max(self._late_ns.values(), default=0) / MILLISECOND
