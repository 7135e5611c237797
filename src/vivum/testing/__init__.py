"""For tests of machines, ours and yours: a virtual clock, and a fake link between two machines.

No sockets, no sleeping: a test of a minute of protocol time takes milliseconds.
"""

from vivum.testing.clock import VirtualClock
from vivum.testing.pair import Pair

__all__ = ["Pair", "VirtualClock"]
