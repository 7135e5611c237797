"""The text of a fault in `FaultInjected.cause`, for people and for checkers, which parse it.

partition at node 1, 2 for 3s
leave of group 4 at every node
end of partition at node 1, 2
everything heals
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from vivum.core.time import format_duration, parse_duration_ns

HEALED = "everything heals"
"""All faults end here, and every dead host starts."""


class Fault(NamedTuple):
    """A fault that begins: at these nodes (none: at every one), for a time (None: until everything heals)."""

    kind: str
    nodes: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    lasts_ns: int | None = None

    def __str__(self) -> str:
        groups = f" of group {_list(self.groups)}" if self.groups else ""
        lasts = f" for {format_duration(self.lasts_ns)}" if self.lasts_ns else ""
        return f"{self.kind}{groups} {self._where}{lasts}"

    @property
    def end(self) -> str:
        """The text for the end of the fault."""
        return f"end of {self.kind} {self._where}"

    @property
    def _where(self) -> str:
        return f"at node {_list(self.nodes)}" if self.nodes else "at every node"


_BEGIN = re.compile(r"([a-z_]+)(?: of group ([0-9, ]+))? at (?:every node|node ([0-9, ]+?))(?: for (\S+))?")


def read_fault(cause: str) -> Fault | None:
    """Return the fault that begins with a record; None if one ends, or if the text is about something else."""
    match = _BEGIN.fullmatch(cause)
    if match is None:
        return None
    kind, groups, nodes, lasts = match.groups()
    return Fault(kind, _numbers(nodes), _numbers(groups), parse_duration_ns(lasts) if lasts else None)


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _numbers(text: str | None) -> tuple[int, ...]:
    return tuple(map(int, text.split(", "))) if text else ()
