"""How a live node and the node of a configuration service are put together: which machines, joined by what.

Pure: endpoints, time and randomness come in; the runtime opens the sockets. `build` has the nodes of the simulator.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.limits import Limits
from vivum.node.build import SERVICE_NODE
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.observe.trace import Tracer
from vivum.protocols.directory.client import DirectoryClient
from vivum.protocols.directory.machine import DirectoryMachine
from vivum.protocols.discovery.beaconer import Beaconer
from vivum.protocols.discovery.finder import Finder
from vivum.protocols.membership.client import MembershipClient
from vivum.protocols.membership.service_machine import ServiceMachine
from vivum.protocols.qsm.machine import QsmMachine
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.survey.machine import Surveyor
from vivum.protocols.unrepaired.machine import UnrepairedMachine, UnrepairedSettings
from vivum.wire.gate import Gate

NOWHERE = Endpoint("0.0.0.0", 0)
"""The endpoint of a service that is not found yet. The client is not started before it is."""


@dataclass(frozen=True, slots=True)
class MemberParts:
    """A live node and the machines that its driver must know."""

    node: Node
    client: MembershipClient
    qsm: QsmMachine
    finder: Finder
    surveyor: Surveyor
    counters: Counters


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """The node of a configuration service and the machines that its driver must know."""

    node: Node
    service: ServiceMachine
    beaconer: Beaconer
    counters: Counters


def compose_member(
    name: str,
    domain: int,
    endpoint: Endpoint,
    rng: Random,
    settings: QsmSettings,
    limits: Limits,
    *,
    seeds: Sequence[Endpoint],
    carry_after_ns: int | None,
    trace: Tracer | None = None,
) -> MemberParts:
    """Make a node that finds its service, joins the domain and takes part in topics of all guarantees."""
    counters = Counters()
    nobody = Member(NodeId(0), Incarnation(0))
    gate = Gate(domain, counters, nobody, trace, limits)
    finder = Finder(
        endpoint, gate, rng, multicast=settings.multicast, seeds=seeds, carry_after_ns=carry_after_ns
    )
    client = MembershipClient(name, NodeId(0), endpoint, [NOWHERE], gate, rng, trace=trace)
    qsm = QsmMachine(client, gate, settings, limits, trace=trace)
    unrepaired = UnrepairedMachine(
        client,
        gate,
        UnrepairedSettings(frame_bytes_max=settings.frame_bytes_max),
        limits,
        multicast=settings.multicast,
    )
    directory = DirectoryClient(
        lambda: finder.service.endpoint if finder.service is not None else NOWHERE, lambda: client.member, gate
    )
    surveyor = Surveyor(gate)
    machines = [qsm, unrepaired, finder, directory, surveyor]
    node = Node(nobody, gate, machines, counters, trace, identity=lambda: qsm.identity or nobody)
    return MemberParts(node, client, qsm, finder, surveyor, counters)


def compose_service(domain: int, endpoint: Endpoint, *, multicast: bool, dedicated: bool, term: int) -> ServiceParts:
    """Make the node of a configuration service with its directory and its beacon."""
    counters = Counters()
    member = Member(SERVICE_NODE, Incarnation(1))
    gate = Gate(domain, counters, member)
    service = ServiceMachine(member, gate)
    directory = DirectoryMachine(member, service.service, gate, term)
    beaconer = Beaconer(
        endpoint,
        gate,
        lambda: [life.endpoint for life in service.service.lives.values()],
        multicast=multicast,
        dedicated=dedicated,
        term=term,
    )
    return ServiceParts(Node(member, gate, [service, directory, beaconer], counters), service, beaconer, counters)
