"""Two nodes of the reference protocol in one group, joined by a fake link."""

from random import Random
from typing import Any

from vivum.core.ids import Channel, Endpoint, GroupId, Incarnation, Member, NodeId
from vivum.core.limits import Limits
from vivum.core.machine import Datagram, Event
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.protocols.commands import JoinGroup, LeaveGroup, SendMessages
from vivum.protocols.reference.machine import ReferenceMachine
from vivum.protocols.reference.settings import ReferenceSettings
from vivum.testing import Pair, VirtualClock
from vivum.wire.gate import Gate, domain_tag
from vivum.wire.kinds import kind_name

GROUP = GroupId(7)
ALICE, BOB, CAROL = NodeId(1), NodeId(2), NodeId(3)
ALICE_1 = Member(ALICE, Incarnation(1))
ENDPOINTS = {ALICE: Pair.a, BOB: Pair.b, CAROL: Endpoint("carol", 1)}
DOMAIN = domain_tag("test")


class Duo:
    """Alice at `pair.a` and Bob at `pair.b`, both in one group; time and loss are the test's."""

    def __init__(self, nodes: tuple[NodeId, ...] = (ALICE, BOB), limits: Limits | None = None, **settings: Any) -> None:
        self.settings = ReferenceSettings(**settings)
        self.limits = limits
        self.nodes = nodes
        self.pair = Pair(self.make(ALICE), self.make(BOB), clock=VirtualClock(1_000_000_000))
        self.a, self.b = self.pair.a, self.pair.b
        for endpoint in (self.a, self.b):
            self.join(endpoint)

    def make(self, node: NodeId, incarnation: int = 1) -> Node:
        """Make a node without a group."""
        member = Member(node, Incarnation(incarnation))
        counters = Counters()
        gate = Gate(DOMAIN, counters, member)
        machine = ReferenceMachine(member, ENDPOINTS, gate, Random(node), self.settings, self.limits)
        return Node(member, gate, [machine], counters)

    def restart(self, endpoint: Endpoint, incarnation: int) -> None:
        """Replace a node by its next life, which joins."""
        self.pair.machines[endpoint] = self.make(ALICE if endpoint == self.a else BOB, incarnation)
        self.join(endpoint)

    def join(self, endpoint: Endpoint) -> None:
        self.pair.submit(endpoint, JoinGroup(GROUP, Channel(GROUP), self.nodes))

    def leave(self, endpoint: Endpoint) -> None:
        self.pair.submit(endpoint, LeaveGroup(GROUP))

    def send(self, endpoint: Endpoint, *payloads: bytes) -> None:
        self.pair.submit(endpoint, SendMessages(GROUP, list(payloads)))

    def node(self, endpoint: Endpoint) -> Node:
        machine = self.pair.machines[endpoint]
        assert isinstance(machine, Node)
        return machine

    def counters(self, endpoint: Endpoint) -> Counters:
        return self.node(endpoint).counters

    def got(self, endpoint: Endpoint, sender: NodeId) -> list[bytes]:
        """Payloads of one sender that a node delivered, in order."""
        return [
            payload
            for delivery in self.pair.deliveries[endpoint]
            if delivery.sender.node == sender
            for payload in delivery.payloads
        ]

    def told(self, endpoint: Endpoint, kind: type[Event]) -> list[Any]:
        return [event for event in self.pair.events[endpoint] if isinstance(event, kind)]

    def drop_kinds(self, *names: str) -> None:
        """Lose all datagrams of these kinds from now on."""
        self.pair.drop = lambda _, datagram: kind_name(datagram.data) in names

    def drop_all(self) -> None:
        self.pair.drop = lambda _, __: True

    def drop_nothing(self) -> None:
        self.pair.drop = lambda _, __: False

    def drop_data(self, *numbers: int) -> None:
        """Lose the first sending of the data frames of these numbers, of any sender; repairs pass."""
        wanted = set(numbers)
        self.pair.drop = lambda _, datagram: is_data(datagram) and sequence_of(datagram) in wanted


def is_data(datagram: Datagram) -> bool:
    return kind_name(datagram.data) == "DATA"


def sequence_of(datagram: Datagram) -> int:
    return int.from_bytes(datagram.data[24:32], "little")


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def send_one_a_frame(duo: Duo, endpoint: Endpoint, payloads: list[bytes]) -> None:
    for payload in payloads:
        duo.send(endpoint, payload)
