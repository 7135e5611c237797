"""Compose a live node, or the node of a configuration service, from its machines.

Pure: endpoints, time and randomness come in. The runtime opens sockets for such a node, the simulator a link.
"""

from collections.abc import Sequence
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
        *,
        survives: bool = True,
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
        self.role = ServiceRole(self.gate, endpoint, rng, self.client, survives=survives)
        self.surveyor = Surveyor(self.gate)

    def node(self, membership: ProtocolMachine) -> Node:
        """Make the node. `membership` takes the frames of the service."""
        client, qsm, gate = self.client, self.qsm, self.gate
        machines: list[ProtocolMachine] = [
            qsm,
            self.unrepaired,
            self.timely,
            membership,
            DirectoryClient(
                lambda: client.service_endpoint, lambda: client.member, lambda: (client.history, client.term), gate
            ),
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
    member = _Member(
        name, domain, endpoint, rng, settings, limits, (), NO_ID, trace, builder, timely, survives=way_in.survives
    )
    gate, role, multicast, seeds = member.gate, member.role, settings.multicast, way_in.seeds
    client = member.client
    finder = Finder(
        endpoint,
        gate,
        rng,
        multicast=multicast,
        seeds=seeds,
        carry_after_ns=way_in.carry_after_ns(endpoint),
        followed=lambda: 0 if client.member is None else client.history,
        bereft=lambda: role.history if role.is_bereft else 0,
    )
    domain_machine = DomainMachine(
        Discovery(finder, Beaconer(endpoint, gate, role.service, multicast=multicast, seeds=seeds), gate),
        role,
        member.qsm,
        multicast=multicast,
        awaits_network=way_in.awaits_network,
        survives=way_in.survives,
    )
    node = member.node(domain_machine)
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

    It joins at once and asks for the id `wanted`. It leads the service only as one of its replicas.
    """
    member = _Member(name, domain, endpoint, rng, settings, Limits(), services, wanted, trace, None, timely)
    return member.node(member.role)


def compose_service(
    domain: int,
    endpoint: Endpoint,
    rng: Random,
    settings: ServiceSettings | None = None,
    *,
    incarnation: Incarnation = FIRST_LIFE,
) -> Node:
    """Make a node that has a replica of the configuration service and nothing else, and founds the only history.

    Only its first life does: a later one has lost the state, and nobody takes it in.
    """
    counters = Counters()
    member = Member(SERVICE_NODE, incarnation)
    gate = Gate(domain, counters, member)
    role = ServiceRole(gate, endpoint, rng, None, settings)
    if incarnation == FIRST_LIFE:
        role.begin(0, is_only=True)
    machines: list[ProtocolMachine] = [role, DirectoryMachine(role.service, gate)]
    return Node(member, gate, machines, counters)
