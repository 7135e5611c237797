"""The network between hosts: a switch with one full-duplex link to each host.

A datagram waits for its turn at the sender's interface, crosses the switch, and waits for its turn at the link to
each receiver. Multicast is one send and many arrivals. A switched network does not reorder datagrams on one path, so
reordering, like duplication, is a fault that can be switched on. Most loss is not modelled here: it happens in the
receive buffer of a busy host (seed 004, section 6, rule 2.2), which `host` models.

Sizes on the wire count headers: 28 bytes of UDP and IP, and 38 bytes of Ethernet (preamble and gap included) for each
packet of 1,500 bytes.

`_engine.pyx` has these classes compiled, with the same draws from the same random sources; change both or neither.
`engine` chooses.
"""

from dataclasses import dataclass
from typing import Protocol

from vivum.core.ids import Channel, Endpoint, Incarnation, NodeId
from vivum.core.randomness import RandomSource
from vivum.core.time import SECOND
from vivum.observe.trace import FrameDropped, Tracer
from vivum.sim.loss import LossModel
from vivum.sim.scheduler import Scheduler
from vivum.wire.kinds import kind_name

UDP_HEADER_BYTES = 28
PACKET_BYTES_MAX = 1500
ETHERNET_BYTES = 38


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """The properties of every link of the network."""

    bandwidth_bps: int
    delay_ns: int
    jitter_ns: int
    egress_bytes_max: int
    ingress_bytes_max: int


class Station(Protocol):
    """The end of a link: a simulated host, or a port of a simulated process."""

    node_id: NodeId
    endpoint: Endpoint
    incarnation: Incarnation
    frame_trace: Tracer | None

    def on_arrival(self, packet: "Packet") -> None:
        """Take a datagram from the link."""
        ...


class Packet:
    """A datagram on its way. One object serves all receivers of a multicast."""

    __slots__ = ("data", "destination", "source", "source_node", "wire_ns")

    def __init__(
        self, source_node: NodeId, source: Endpoint, destination: Endpoint | Channel, data: bytes, wire_ns: int
    ) -> None:
        self.source_node = source_node
        self.source = source
        self.destination = destination
        self.data = data
        self.wire_ns = wire_ns


class SimPort:
    """One host's link: when it will be free in each direction, and its present faults."""

    __slots__ = (
        "blocks",
        "disturbed",
        "duplicates",
        "egress_free_ns",
        "host",
        "ingress_free_ns",
        "loss",
        "lost",
        "reorders",
        "rng",
    )

    def __init__(self, host: Station, rng: RandomSource) -> None:
        self.host = host
        self.rng = rng
        self.egress_free_ns = 0
        self.ingress_free_ns = 0
        # Datagrams that were on their way to this host and did not reach it.
        self.lost = 0
        self.loss: list[LossModel] = []
        self.duplicates: list[float] = []
        self.reorders: list[tuple[float, int]] = []
        self.blocks: list[frozenset[NodeId]] = []
        self.disturbed = False

    def update(self) -> None:
        """Note whether any fault is on, so that a healthy link needs only one test for all of them."""
        self.disturbed = bool(self.loss or self.blocks or self.duplicates or self.reorders)

    def heal(self) -> None:
        """End all faults of the link."""
        for faults in (self.loss, self.duplicates, self.reorders, self.blocks):
            faults.clear()
        self.update()


class Network:
    """All links, and the listeners of each channel."""

    def __init__(self, scheduler: Scheduler, profile: LinkProfile) -> None:
        self.profile = profile
        self.arrivals = 0
        self.losses: dict[str, int] = {}
        self._scheduler = scheduler
        self._ports: dict[NodeId, SimPort] = {}
        self._by_endpoint: dict[Endpoint, SimPort] = {}
        self._listeners: dict[Channel, dict[NodeId, SimPort]] = {}
        self._wire_ns: dict[int, int] = {}

    def attach(self, host: Station, rng: RandomSource) -> SimPort:
        """Connect a host."""
        port = SimPort(host, rng)
        self._ports[host.node_id] = port
        self._by_endpoint[host.endpoint] = port
        return port

    def detach(self, node: NodeId) -> None:
        """Disconnect a host for good: datagrams on their way to it are lost."""
        self.unlisten_all(node)
        del self._by_endpoint[self._ports.pop(node).host.endpoint]

    def port(self, node: NodeId) -> SimPort:
        """Return the link of a host."""
        return self._ports[node]

    def listen(self, channel: Channel, node: NodeId) -> None:
        """Add a host to the listeners of a channel."""
        self._listeners.setdefault(channel, {})[node] = self._ports[node]

    def unlisten(self, channel: Channel, node: NodeId) -> None:
        """Remove a host from the listeners of a channel."""
        self._listeners.get(channel, {}).pop(node, None)

    def unlisten_all(self, node: NodeId) -> None:
        """Remove a host that went down from all channels."""
        for listeners in self._listeners.values():
            listeners.pop(node, None)

    def wire_time_ns(self, payload_bytes: int) -> int:
        """Return how long a datagram occupies a link."""
        known = self._wire_ns.get(payload_bytes)
        if known is None:
            total = payload_bytes + UDP_HEADER_BYTES
            packets = -(-total // PACKET_BYTES_MAX)
            bits = 8 * (total + packets * ETHERNET_BYTES)
            known = self._wire_ns[payload_bytes] = bits * SECOND // self.profile.bandwidth_bps
        return known

    def egress_room_bytes(self, port: SimPort) -> int:
        """Return how many more bytes the sender's interface would queue, as a non-blocking socket would take."""
        backlog_ns = port.egress_free_ns - self._scheduler.now_ns
        if backlog_ns <= 0:
            return self.profile.egress_bytes_max
        return self.profile.egress_bytes_max - backlog_ns * self.profile.bandwidth_bps // (8 * SECOND)

    def send(self, port: SimPort, at_ns: int, destination: Endpoint | Channel, data: bytes) -> None:
        """Queue a datagram at the sender's interface at a time that is not in the past."""
        wire_ns = self.wire_time_ns(len(data))
        start_ns = port.egress_free_ns if port.egress_free_ns > at_ns else at_ns
        leave_ns = port.egress_free_ns = start_ns + wire_ns
        host = port.host
        packet = Packet(host.node_id, host.endpoint, destination, data, wire_ns)
        self._scheduler.at(leave_ns, self._cross, packet)

    def _cross(self, packet: Packet) -> None:
        """Schedule the arrivals of a datagram that has left its sender."""
        if type(packet.destination) is Endpoint:
            port = self._by_endpoint.get(packet.destination)
            if port is not None:
                self._arrive_at(port, packet)
            return
        source_node = packet.source_node
        for node, port in self._listeners.get(packet.destination, {}).items():  # type: ignore[arg-type]
            if node != source_node:
                self._arrive_at(port, packet)

    def _arrive_at(self, port: SimPort, packet: Packet) -> None:
        if port.disturbed and self._disturb(port, packet):
            return
        profile = self.profile
        now_ns = self._scheduler.now_ns + profile.delay_ns
        if profile.jitter_ns:
            now_ns += int(port.rng.random() * profile.jitter_ns)
        free_ns = port.ingress_free_ns
        if free_ns > now_ns:
            # Arrivals keep their order, so one delayed by jitter delays others. That delay does not count as a queue.
            queued_bytes = (free_ns - now_ns - profile.jitter_ns) * profile.bandwidth_bps // (8 * SECOND)
            if queued_bytes + len(packet.data) > profile.ingress_bytes_max:
                self.drop(port, packet, "switch queue full")
                return
            now_ns = free_ns
        port.ingress_free_ns = arrive_ns = now_ns + packet.wire_ns
        self.arrivals += 1
        self._scheduler.at(arrive_ns, port.host.on_arrival, packet)

    def _disturb(self, port: SimPort, packet: Packet) -> bool:
        """Apply the faults of a link; return whether the datagram was lost or already scheduled."""
        for sources in port.blocks:
            if packet.source_node in sources:
                self.drop(port, packet, "partition")
                return True
        rng = port.rng
        for model in port.loss:
            if model.loses(rng):
                self.drop(port, packet, "link")
                return True
        for probability in port.duplicates:
            if rng.random() < probability:
                self._late_arrival(port, packet, int(rng.random() * self.profile.delay_ns * 4))
        for probability, delay_ns in port.reorders:
            if rng.random() < probability:
                self._late_arrival(port, packet, int(rng.random() * delay_ns))
                return True
        return False

    def _late_arrival(self, port: SimPort, packet: Packet, extra_ns: int) -> None:
        self.arrivals += 1
        late_ns = self._scheduler.now_ns + self.profile.delay_ns + packet.wire_ns + extra_ns
        self._scheduler.at(late_ns, port.host.on_arrival, packet)

    def drop(self, port: SimPort, packet: Packet, cause: str) -> None:
        """Count, trace and forget a datagram that did not reach its host."""
        self.losses[cause] = self.losses.get(cause, 0) + 1
        port.lost += 1
        host = port.host
        if host.frame_trace is not None:
            host.frame_trace(
                FrameDropped(
                    self._scheduler.now_ns,
                    host.node_id,
                    host.incarnation,
                    str(packet.source),
                    kind_name(packet.data),
                    len(packet.data),
                    cause,
                )
            )
