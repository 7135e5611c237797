"""What `_engine.pyx` offers: the names, types and behaviour of its twins in plain Python."""

from vivum.sim.network import Network as Network
from vivum.sim.network import Packet as Packet
from vivum.sim.network import SimPort as SimPort
from vivum.sim.processor import Processor as Processor
from vivum.sim.scheduler import Scheduler as Scheduler
