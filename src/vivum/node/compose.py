"""How a live node and the node of a configuration service are put together: which machines, joined by what.

Pure: endpoints, time and randomness come in; the runtime opens the sockets. `build` has the nodes of the simulator.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.limits import Limits
from vivum.node.build import SERVICE_NODE
from vivum.node.carrier import Carrier
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
from vivum.protocols.qsm.machine import QsmMachine
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.survey.machine import Surveyor
from vivum.protocols.unrepaired.machine import UnrepairedMachine, UnrepairedSettings
from vivum.wire.codec import FrameBuilder
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
    beaconer: Beaconer
    carrier: Carrier
    surveyor: Surveyor
    counters: Counters


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """The node of a configuration service and the machines that its driver must know."""

    node: Node
    carrier: Carrier
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
    builder: FrameBuilder | None = None,
) -> MemberParts:
    """Make a node that finds its service or carries it, joins the domain and takes part in topics of all guarantees.

    The `builder`, if there is one, makes its reliable frames: where the runtime wants to have them.
    """
    counters = Counters()
    nobody = Member(NodeId(0), Incarnation(0))
    gate = Gate(domain, counters, nobody, trace, limits)
    multicast = settings.multicast
    client = MembershipClient(name, NodeId(0), endpoint, [NOWHERE], gate, rng, trace=trace)
    carrier = Carrier(gate, client)
    finder = Finder(endpoint, gate, rng, multicast=multicast, seeds=seeds, carry_after_ns=carry_after_ns)
    beaconer = Beaconer(
        endpoint, gate, carrier.service, carrier.heard_since, multicast=multicast, dedicated=False, seeds=seeds
    )
    qsm = QsmMachine(client, gate, settings, limits, trace=trace, builder=builder)
    once = UnrepairedSettings(frame_bytes_max=settings.frame_bytes_max)
    surveyor = Surveyor(gate)
    machines: list[ProtocolMachine] = [
        qsm,
        UnrepairedMachine(client, gate, once, limits, multicast=multicast),
        Discovery(finder, beaconer, gate),
        DirectoryClient(
            lambda: None if finder.service is None else finder.service.endpoint, lambda: client.member, gate
        ),
        carrier,
        DirectoryMachine(carrier.service, gate),
        surveyor,
    ]
    node = Node(nobody, gate, machines, counters, trace, identity=lambda: qsm.identity or nobody)
    return MemberParts(node, client, qsm, finder, beaconer, carrier, surveyor, counters)


def compose_service(domain: int, endpoint: Endpoint, salt: int, *, multicast: bool) -> ServiceParts:
    """Make the node of a configuration service in a process of its own, with its directory and its beacon."""
    counters = Counters()
    member = Member(SERVICE_NODE, Incarnation(1))
    gate = Gate(domain, counters, member)
    carrier = Carrier(gate, None)
    carrier.begin(member, 0, salt)
    beaconer = Beaconer(endpoint, gate, carrier.service, carrier.heard_since, multicast=multicast, dedicated=True)
    machines: list[ProtocolMachine] = [carrier, DirectoryMachine(carrier.service, gate), beaconer]
    return ServiceParts(Node(member, gate, machines, counters), carrier, beaconer, counters)
