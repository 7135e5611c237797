"""For tests, ours and yours: whole asyncio programs in a simulated world, and machines on a fake link.

`World` runs many nodes in one process, in virtual time, under loss, splits, kills and pauses, from one seed
(`docs/TESTING_YOUR_PROGRAMS.md`). `Pair` and `VirtualClock` test single machines. No sockets, no sleeping: a test of a
minute of virtual time takes milliseconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vivum.testing.clock import VirtualClock
    from vivum.testing.loop import Deadlock, VirtualLoop
    from vivum.testing.pair import Pair
    from vivum.testing.process import Process, ProcessKilled
    from vivum.testing.verdict import WorldVerdict
    from vivum.testing.world import SimulatedHost, World

__all__ = [
    "Deadlock",
    "Pair",
    "Process",
    "ProcessKilled",
    "SimulatedHost",
    "VirtualClock",
    "VirtualLoop",
    "World",
    "WorldVerdict",
]

# Where the names live. Each is imported when it is first used: tests of a machine need no event loop.
_HOMES = {
    "vivum.testing.clock": ("VirtualClock",),
    "vivum.testing.loop": ("Deadlock", "VirtualLoop"),
    "vivum.testing.pair": ("Pair",),
    "vivum.testing.process": ("Process", "ProcessKilled"),
    "vivum.testing.verdict": ("WorldVerdict",),
    "vivum.testing.world": ("SimulatedHost", "World"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(home), name)
            return value
    raise AttributeError(f"module 'vivum.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
