"""Composition of a live node and of the node of a configuration service: which machines, and how they are joined.

Pure: endpoints, time and randomness come in. The runtime opens sockets for such a node, the simulator a link.
"""

from dataclasses import dataclass
from random import Random

from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.limits import Limits
from vivum.node.domain import DomainMachine, WayIn
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.observe.trace import Tracer
from vivum.protocols.contract import ProtocolMachine
from vivum.protocols.directory.client import DirectoryClient
from vivum.protocols.directory.machine import DirectoryMachine
from vivum.protocols.discovery.beaconer import Beaconer
from vivum.protocols.discovery.finder import Finder
from vivum.protocols.discovery.machine import Discovery
from vivum.protocols.membership.client.allegiance import ROUND_BITS
from vivum.protocols.membership.client.client import MembershipClient
from vivum.protocols.membership.service.role import SERVICE_NODE, ServiceRole
from vivum.protocols.qsm.machine import QsmMachine
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.survey.machine import Surveyor
from vivum.protocols.unrepaired.machine import UnrepairedMachine, UnrepairedSettings
from vivum.wire.codec import FrameBuilder
from vivum.wire.gate import Gate

NO_ID = NodeId(0)
"""No wish for an id: the service chooses."""


@dataclass(frozen=True, slots=True)
class MemberParts:
    """A live node and those of its machines that its host uses."""

    node: Node
    domain: DomainMachine
    client: MembershipClient
    qsm: QsmMachine
    surveyor: Surveyor
    counters: Counters


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """The node of a configuration service and those of its machines that its host uses."""

    node: Node
    beaconer: Beaconer
    counters: Counters


def compose_member(
    name: str,
    domain: int,
    endpoint: Endpoint,
    rng: Random,
    settings: QsmSettings,
    limits: Limits,
    way_in: WayIn,
    *,
    wanted: NodeId = NO_ID,
    trace: Tracer | None = None,
    builder: FrameBuilder | None = None,
) -> MemberParts:
    """Make a node that finds its service or carries it, joins the domain and takes part in topics of all guarantees.

    It begins with `JoinDomain`, and asks for the id `wanted`. A `builder` seals its reliable frames in memory of the
    runtime's choice.
    """
    counters = Counters()
    nobody = Member(wanted, Incarnation(0))
    gate = Gate(domain, counters, nobody, trace, limits)
    multicast, seeds = settings.multicast, way_in.seeds
    client = MembershipClient(name, wanted, endpoint, (), gate, rng, trace=trace)
    qsm = QsmMachine(client, gate, settings, limits, builder=builder)
    role = ServiceRole(gate, client)
    finder = Finder(
        endpoint, gate, rng, multicast=multicast, seeds=seeds, carry_after_ns=way_in.carry_after_ns(endpoint)
    )
    beaconer = Beaconer(
        endpoint,
        gate,
        role.service,
        role.heard_since,
        multicast=multicast,
        dedicated=False,
        seeds=seeds,
        rouse=role.rouse,
    )
    place = DomainMachine(
        Discovery(finder, beaconer, gate),
        role,
        qsm,
        rng,
        multicast=multicast,
        awaits_network=way_in.awaits_network,
    )
    once = UnrepairedSettings(frame_bytes_max=settings.frame_bytes_max)
    surveyor = Surveyor(gate)
    machines: list[ProtocolMachine] = [
        qsm,
        UnrepairedMachine(client, gate, once, limits, multicast=multicast),
        place,
        DirectoryClient(lambda: None if place.service is None else place.service.endpoint, lambda: client.member, gate),
        DirectoryMachine(role.service, gate),
        surveyor,
    ]
    node = Node(nobody, gate, machines, counters, trace, identity=lambda: qsm.identity or nobody)
    return MemberParts(node, place, client, qsm, surveyor, counters)


def compose_service(domain: int, endpoint: Endpoint, rng: Random, *, multicast: bool) -> ServiceParts:
    """Make the node of a configuration service in a process of its own, with its directory and its beacon."""
    counters = Counters()
    member = Member(SERVICE_NODE, Incarnation(1))
    gate = Gate(domain, counters, member)
    role = ServiceRole(gate)
    role.begin(member, 0, rng.randrange(1, 1 << ROUND_BITS))
    beaconer = Beaconer(
        endpoint,
        gate,
        role.service,
        role.heard_since,
        multicast=multicast,
        dedicated=True,
        rouse=role.rouse,
    )
    machines: list[ProtocolMachine] = [role, DirectoryMachine(role.service, gate), beaconer]
    return ServiceParts(Node(member, gate, machines, counters), beaconer, counters)
