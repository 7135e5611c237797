"""The parts of the simulator in which it spends its own time: compiled, or in plain Python where they were not built.

Both run the same world to the same trace. Import these names from here, not from the modules that define the twins: a
compiled network refuses a scheduler in plain Python.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vivum.sim.network import Network, Packet, SimPort
    from vivum.sim.processor import Processor
    from vivum.sim.scheduler import Scheduler

    COMPILED: bool
else:
    try:
        from vivum.sim._engine import Network, Packet, Processor, Scheduler, SimPort

        COMPILED = True
    except ImportError:
        from vivum.sim.network import Network, Packet, SimPort
        from vivum.sim.processor import Processor
        from vivum.sim.scheduler import Scheduler

        COMPILED = False

__all__ = ["COMPILED", "Network", "Packet", "Processor", "Scheduler", "SimPort"]
