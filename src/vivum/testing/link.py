"""A simulated process's way to the simulated network: what a UDP socket is to a real one.

Arrivals wait in a bounded buffer until the process reads, and are lost when it is full, as in a kernel. What a process
sends to its own computer does not cross the network: it is never lost.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context

from vivum.core.errors import UsageError
from vivum.core.ids import Channel, Endpoint, Incarnation, NodeId
from vivum.core.machine import Datagram
from vivum.core.randomness import RandomSource
from vivum.core.time import MICROSECOND
from vivum.observe.trace import Tracer
from vivum.runtime.port import Arrived
from vivum.runtime.shared_memory.shared_memory import SharedMemory
from vivum.sim.clock import DriftingClock
from vivum.sim.network import Network, Packet
from vivum.sim.scheduler import Scheduler
from vivum.testing.loop import VirtualLoop

LOCAL_NS = 20 * MICROSECOND
"""How long a datagram takes within one computer."""

DATAGRAM_BYTES_MAX = 65_507
"""The largest payload of a UDP datagram."""


class SimulatedPort:
    """One socket of a simulated process; a `runtime.NodePort` to its node, a `sim.Station` to the network."""

    shared_memory: SharedMemory | None = None
    frame_trace: Tracer | None = None

    def __init__(
        self,
        node_id: NodeId,
        endpoint: Endpoint,
        domain: int,
        loop: VirtualLoop,
        scheduler: Scheduler,
        network: Network,
        clock: DriftingClock,
        rng: RandomSource,
        receive_buffer_bytes: int,
        neighbour: Callable[[Endpoint], "SimulatedPort | None"],
        on_closed: Callable[["SimulatedPort"], None],
    ) -> None:
        """Plug a socket in. `neighbour` finds the socket at an endpoint of the same computer."""
        self.node_id = node_id
        self.endpoint = endpoint
        self.incarnation = Incarnation(1)
        self.receive_buffer_bytes = receive_buffer_bytes
        self.lost_on_purpose = 0
        self.unsendable = 0
        """Datagrams that no network would take; dropped."""

        self.on_sent: Callable[[], None] | None = None
        """Called after each datagram. It may close the port."""

        self._domain = domain
        self._loop = loop
        self._scheduler = scheduler
        self._network = network
        self._clock = clock
        self._neighbour = neighbour
        self._on_closed = on_closed
        # What waits, and since when.
        self._buffer: deque[tuple[Packet, int]] = deque()
        self._buffer_bytes = 0
        self.waited_ns = 0
        self._on_readable: Callable[[], None] | None = None
        self._context: Context | None = None
        self._is_awake = False
        self._is_closed = False
        self.link = network.attach(self, rng)

    def now_ns(self) -> int:
        """Return the time by the computer's clock."""
        return self._clock.local_ns(self._scheduler.now_ns)

    # In.

    def attach(self, on_readable: Callable[[], None]) -> None:
        """Call back, in the context of the caller, whenever something can be read."""
        self._on_readable = on_readable
        self._wake()

    def on_arrival(self, packet: Packet) -> None:
        """Take a datagram from the network."""
        if self._is_closed:
            return
        size = len(packet.data)
        if self._buffer_bytes + size > self.receive_buffer_bytes:
            self._network.drop(self.link, packet, "socket buffer full")
            return
        self._buffer.append((packet, self._scheduler.now_ns))
        self._buffer_bytes += size
        self._wake()

    def bind_context(self, context: Context) -> None:
        """Call back in this context."""
        self._context = context

    def _wake(self) -> None:
        if self._buffer and self._on_readable is not None and not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._read, context=self._context)

    def _read(self) -> None:
        self._is_awake = False
        if self._on_readable is not None and not self._is_closed:
            self._on_readable()
            # A driver that took only one datagram is called again for the next.
            self._wake()

    def receive(self, bytes_max: int) -> Arrived:
        """Take what has arrived, up to about this many bytes."""
        taken: Arrived = []
        while self._buffer and bytes_max > 0:
            packet, came_ns = self._buffer.popleft()
            self.waited_ns = self._scheduler.now_ns - came_ns
            self._buffer_bytes -= len(packet.data)
            bytes_max -= len(packet.data)
            taken.append((packet.source, packet.data))
        return taken

    def look(self, wait_ns: int) -> Arrived:  # noqa: ARG002
        """Take one datagram if there is one: nothing can arrive while the process looks."""
        return self.receive(1)

    # Out.

    def send(self, datagrams: Sequence[Datagram]) -> Sequence[Datagram]:
        """Hand datagrams to the link; return those for which its queue had no room."""
        for index, each in enumerate(datagrams):
            if not self._is_closed and self._network.egress_room_bytes(self.link) <= 0:
                return datagrams[index:]
            for single in each.cut():
                if self._is_closed:
                    # The process is dead: what else it says nobody hears.
                    return ()
                self._send_one(single.destination, bytes(single.data))
                if self.on_sent is not None:
                    self.on_sent()
        return ()

    def _send_one(self, where: Endpoint | Channel, data: bytes) -> None:
        network, link, now_ns = self._network, self.link, self._scheduler.now_ns
        if len(data) > DATAGRAM_BYTES_MAX:
            self.unsendable += 1
        elif type(where) is not Endpoint:
            network.send(link, now_ns, self._channel(where), data)  # type: ignore[arg-type]
        elif where.host != self.endpoint.host:
            network.send(link, now_ns, where, data)
        else:
            packet = Packet(self.node_id, self.endpoint, where, data, 0)
            self._scheduler.at(now_ns + LOCAL_NS, self._hand_over, packet)

    def _hand_over(self, packet: Packet) -> None:
        assert type(packet.destination) is Endpoint
        neighbour = self._neighbour(packet.destination)
        if neighbour is not None:
            neighbour.on_arrival(packet)

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call back once, when half of what waits at the link has left."""
        now_ns = self._scheduler.now_ns
        self._scheduler.at(max(now_ns + 1, (now_ns + self.link.egress_free_ns) // 2), self._on_writable, callback)

    def _on_writable(self, callback: Callable[[], None]) -> None:
        if not self._is_closed:
            self._loop.call_soon(callback, context=self._context)

    # Channels and the end.

    def _channel(self, channel: Channel) -> Channel:
        """Return the channel in the network: two domains share none, as with multicast addresses."""
        if not 0 <= channel < 1 << 16:
            raise UsageError(f"channel {channel} has no multicast address; channels are 0 to 65535")
        return Channel(self._domain << 16 | channel)

    def listen(self, channel: Channel) -> None:
        """Hear a channel from now on."""
        if self._is_closed:
            return
        self._network.listen(self._channel(channel), self.node_id)

    def unlisten(self, channel: Channel) -> None:
        """Stop hearing a channel."""
        self._network.unlisten(self._channel(channel), self.node_id)

    def close(self) -> None:
        """Unplug the socket: what waits in it is gone. May be called again."""
        if not self._is_closed:
            self._is_closed = True
            self._on_readable = None
            self._buffer.clear()
            self._network.detach(self.node_id)
            self._on_closed(self)
