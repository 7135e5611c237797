"""A network with hosts on it, without a scenario: tests send what they like and see what arrived when."""

from collections.abc import Callable

import pytest

from effects import MemoryTrace
from vivum.core.ids import Channel, Endpoint, Incarnation, Member, NodeId
from vivum.core.randomness import RandomSource
from vivum.node.build import PROTOCOLS
from vivum.node.node import Node
from vivum.observe.trace import FrameDropped, FrameReceived
from vivum.protocols.reference.settings import ReferenceSettings
from vivum.sim.clock import DriftingClock
from vivum.sim.engine import Network, Scheduler, SimPort
from vivum.sim.host import Host, HostProfile
from vivum.sim.network import LinkProfile

EVERYBODY = Channel(1)


class Rig:
    """Hosts 1 to `hosts` on one switch, all listening on channel 1. Handling costs nothing unless told."""

    def __init__(
        self,
        hosts: int = 3,
        *,
        bandwidth_bps: int = 8_000_000,
        delay_ns: int = 1000,
        jitter_ns: int = 0,
        egress_bytes_max: int = 100_000,
        ingress_bytes_max: int = 100_000,
        receive_cost_ns: int = 0,
        send_cost_ns: int = 0,
        socket_bytes_max: int = 100_000,
        inbox_bytes_max: int = 100_000,
        settings: ReferenceSettings | None = None,
        clock: DriftingClock | None = None,
    ) -> None:
        self.scheduler = Scheduler()
        self.trace = MemoryTrace()
        self.network = Network(
            self.scheduler, LinkProfile(bandwidth_bps, delay_ns, jitter_ns, egress_bytes_max, ingress_bytes_max)
        )
        self.settings = settings or ReferenceSettings()
        profile = HostProfile(receive_cost_ns, send_cost_ns, socket_bytes_max, inbox_bytes_max)
        self.endpoints = {NodeId(number): Endpoint(f"node-{number}", 1) for number in range(1, hosts + 1)}
        self.hosts = {
            node: Host(
                node,
                self.scheduler,
                self.network,
                profile,
                clock or DriftingClock(),
                RandomSource(1).fork("link", node),
                self._make_node,
                self.trace,
                self.trace,
            )
            for node in self.endpoints
        }
        for node, host in self.hosts.items():
            host.start()
            self.network.listen(EVERYBODY, node)

    def _make_node(self, host: Host, incarnation: Incarnation) -> Node:
        rng = RandomSource(1).fork("node", host.node_id, incarnation)
        member = Member(host.node_id, incarnation)
        return PROTOCOLS["reference"].make_node(member, self.endpoints, self.settings, rng, self.trace)

    def port(self, number: int) -> SimPort:
        return self.network.port(NodeId(number))

    def host(self, number: int) -> Host:
        return self.hosts[NodeId(number)]

    def send(self, source: int, destination: int | None, data: bytes, at_ns: int | None = None) -> None:
        """Put a datagram on the wire, to a host or to everybody."""
        where = EVERYBODY if destination is None else self.endpoints[NodeId(destination)]
        self.network.send(self.port(source), self.scheduler.now_ns if at_ns is None else at_ns, where, data)

    def received(self, number: int | None = None) -> list[tuple[int, int]]:
        """Time and size of what was handled, at one host or at all."""
        return [
            (record.time_ns, record.bytes)
            for record in self.trace.records
            if isinstance(record, FrameReceived) and number in (None, record.node)
        ]

    def kinds(self, number: int) -> list[str]:
        """Kinds of what a host handled, in the order of handling."""
        return [
            record.frame for record in self.trace.records if isinstance(record, FrameReceived) and record.node == number
        ]

    def dropped(self, cause: str) -> list[int]:
        """Sizes of what was lost for a reason."""
        return [
            record.bytes for record in self.trace.records if isinstance(record, FrameDropped) and record.cause == cause
        ]


@pytest.fixture
def make_rig() -> Callable[..., Rig]:
    return Rig
