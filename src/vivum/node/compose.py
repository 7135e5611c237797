"""Compose a live node, or the node of a configuration service, from its machines.

Pure: endpoints, time and randomness come in. The runtime opens sockets for such a node, the simulator a link.
"""

from collections.abc import Callable, Sequence
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
from vivum.protocols.membership.client.client import MembershipClient
from vivum.protocols.membership.service.role import SERVICE_NODE, ServiceRole
from vivum.protocols.membership.settings import ServiceSettings
from vivum.protocols.qsm.machine import QsmMachine
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.ricochet.machine import TimelyMachine
from vivum.protocols.ricochet.settings import TimelySettings
from vivum.protocols.survey.machine import Surveyor
from vivum.protocols.unrepaired.machine import UnrepairedMachine, UnrepairedSettings
from vivum.wire.codec import FrameBuilder
from vivum.wire.gate import Gate

NO_ID = NodeId(0)
"""The node asks for no particular id: the service chooses."""

FIRST_LIFE = Incarnation(1)


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


class _Member:
    """The machines that every node has, whether it discovers its service or is given one."""

    def __init__(
        self,
        name: str,
        domain: int,
        endpoint: Endpoint,
        rng: Random,
        settings: QsmSettings,
        limits: Limits,
        services: Sequence[Endpoint],
        wanted: NodeId,
        trace: Tracer | None,
        builder: FrameBuilder | None,
        timely: TimelySettings | None = None,
    ) -> None:
        self.nobody = Member(wanted, Incarnation(0))
        self.counters = Counters()
        self.trace = trace
        self.gate = Gate(domain, self.counters, self.nobody, trace, limits)
        self.client = MembershipClient(name, wanted, endpoint, services, self.gate, rng, trace=trace)
        self.qsm = QsmMachine(self.client, self.gate, settings, limits, builder=builder)
        once = UnrepairedSettings(frame_bytes_max=settings.frame_bytes_max)
        self.unrepaired = UnrepairedMachine(self.client, self.gate, once, limits, multicast=settings.multicast)
        self.timely = TimelyMachine(
            self.client,
            self.gate,
            rng,
            timely or TimelySettings(frame_bytes_max=settings.frame_bytes_max),
            limits,
            multicast=settings.multicast,
            spread=self.qsm.spread_channel_of,
        )
        self.role = ServiceRole(self.gate, self.client)
        self.surveyor = Surveyor(self.gate)

    def node(self, membership: ProtocolMachine, service: Callable[[], Endpoint | None]) -> Node:
        """Make the node. `membership` takes the frames of the service; `service` returns its endpoint."""
        client, qsm, gate = self.client, self.qsm, self.gate
        machines: list[ProtocolMachine] = [
            qsm,
            self.unrepaired,
            self.timely,
            membership,
            DirectoryClient(service, lambda: client.member, gate),
            DirectoryMachine(self.role.service, gate),
            self.surveyor,
        ]
        return Node(
            self.nobody, gate, machines, self.counters, self.trace, identity=lambda: qsm.identity or self.nobody
        )


def compose_member(
    name: str,
    domain: int,
    endpoint: Endpoint,
    rng: Random,
    settings: QsmSettings,
    limits: Limits,
    way_in: WayIn,
    *,
    trace: Tracer | None = None,
    builder: FrameBuilder | None = None,
    timely: TimelySettings | None = None,
) -> MemberParts:
    """Make a node that finds or carries its service, joins the domain, and uses topics of all guarantees.

    It begins with `JoinDomain`. A `builder` seals its reliable frames in memory of the runtime's choice.
    """
    member = _Member(name, domain, endpoint, rng, settings, limits, (), NO_ID, trace, builder, timely)
    gate, role, multicast, seeds = member.gate, member.role, settings.multicast, way_in.seeds
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
    domain_machine = DomainMachine(
        Discovery(finder, beaconer, gate),
        role,
        member.qsm,
        rng,
        multicast=multicast,
        awaits_network=way_in.awaits_network,
    )
    node = member.node(
        domain_machine, lambda: None if domain_machine.service is None else domain_machine.service.endpoint
    )
    return MemberParts(node, domain_machine, member.client, member.qsm, member.surveyor, member.counters)


def compose_member_without_discovery(
    name: str,
    domain: int,
    endpoint: Endpoint,
    rng: Random,
    settings: QsmSettings,
    services: Sequence[Endpoint],
    *,
    wanted: NodeId,
    trace: Tracer | None = None,
    timely: TimelySettings | None = None,
) -> Node:
    """Make the same node without discovery: one of `services` has the service, or knows where it is.

    It joins at once and asks for the id `wanted`. It carries the service only as a standby that takes over.
    """
    member = _Member(name, domain, endpoint, rng, settings, Limits(), services, wanted, trace, None, timely)
    return member.node(member.role, lambda: services[0])


def compose_service(
    domain: int,
    endpoint: Endpoint,
    salt: int,
    *,
    multicast: bool,
    settings: ServiceSettings | None = None,
    incarnation: Incarnation = FIRST_LIFE,
) -> ServiceParts:
    """Make the node of a configuration service in a process of its own, with its directory and its beacon.

    Only its first life serves: a later one has lost the state, and only tells clients where the service went. `salt`
    keeps services apart that begin without knowing of each other.
    """
    counters = Counters()
    member = Member(SERVICE_NODE, incarnation)
    gate = Gate(domain, counters, member)
    role = ServiceRole(gate, settings=settings)
    if incarnation == FIRST_LIFE:
        role.begin(member, 0, salt)
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
