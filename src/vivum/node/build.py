"""The list of protocols that the simulator can run, by name, and how their nodes are built.

`domain` is the whole live node, made by the same function as on sockets (`vivum.node.compose`). The others are parts of
it, or its yardstick: QSM with a configuration service on a host of its own, and the reference.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import msgspec

from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.settings import settings_of
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.observe.trace import Tracer
from vivum.protocols.membership.client.client import MembershipClient
from vivum.protocols.membership.service.role import SERVICE_NODE, ServiceRole
from vivum.protocols.membership.settings import ServiceSettings
from vivum.protocols.qsm.machine import QsmMachine
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.reference.machine import ReferenceMachine
from vivum.protocols.reference.settings import ReferenceSettings
from vivum.wire.gate import Gate, domain_tag

T = TypeVar("T")

MakeNode = Callable[[Member, Mapping[NodeId, Endpoint], Any, Random, Tracer | None], Node]


@dataclass(frozen=True, slots=True)
class ProtocolEntry:
    """How to build nodes of one protocol."""

    settings: type
    make_node: MakeNode
    meaning: str
    make_service: Callable[[Member, ServiceSettings], Node] | None = None
    """Builds the node of the configuration service, for protocols that need one on a host of its own."""

    def make_settings(self, values: Mapping[str, Any]) -> Any:
        """Make the protocol's settings from a table; raises `UsageError` that names the wrong one."""
        return make_settings(self.settings, values)


def make_settings(group: type[T], values: Mapping[str, Any]) -> T:
    """Make a group of settings from a table; raises `UsageError` that names the wrong one."""
    known = [each.name for each, _ in settings_of(group)]
    for name in values:
        if name not in known:
            raise UsageError(f"{name}: unknown setting; allowed: {', '.join(known)}")
    try:
        return msgspec.convert(dict(values), group)
    except msgspec.ValidationError as error:
        what, _, name = str(error).partition(" - at `$.")
        raise UsageError(f"{name.rstrip('`')}: {what}") from error


def _make_reference_node(
    member: Member,
    endpoints: Mapping[NodeId, Endpoint],
    settings: ReferenceSettings,
    rng: Random,
    trace: Tracer | None,
) -> Node:
    counters = Counters()
    gate = Gate(domain_tag("sim"), counters, member, trace)
    machine = ReferenceMachine(member, endpoints, gate, rng, settings, trace=trace)
    return Node(member, gate, [machine], counters, trace)


def _make_qsm_node(
    member: Member,
    endpoints: Mapping[NodeId, Endpoint],
    settings: QsmSettings,
    rng: Random,
    trace: Tracer | None,
) -> Node:
    counters = Counters()
    nobody = Member(member.node, Incarnation(0))
    gate = Gate(domain_tag("sim"), counters, nobody, trace)
    # Every start of the process is a new life to the service, whatever number it will give it.
    name = f"node {member.node}, start {member.incarnation}"
    # Any node knows where the service is, if the first one is gone.
    services = [endpoints[SERVICE_NODE], *(each for node, each in endpoints.items() if node != SERVICE_NODE)]
    client = MembershipClient(name, member.node, endpoints[member.node], services, gate, rng, trace=trace)
    machine = QsmMachine(client, gate, settings, trace=trace)
    place = ServiceRole(gate, client)
    return Node(nobody, gate, [machine, place], counters, trace, identity=lambda: machine.identity or nobody)


def _make_service_node(member: Member, settings: ServiceSettings) -> Node:
    counters = Counters()
    gate = Gate(domain_tag("sim"), counters, member)
    # A service that restarts has lost its state: it can only point to its successor.
    place = ServiceRole(gate, settings=settings, serve_as=member if member.incarnation == 1 else None)
    return Node(member, gate, [place], counters)


PROTOCOLS: dict[str, ProtocolEntry] = {
    "reference": ProtocolEntry(
        ReferenceSettings, _make_reference_node, "Best-effort multicast, then NAKs to the sender"
    ),
    "qsm": ProtocolEntry(
        QsmSettings, _make_qsm_node, "Regions of overlap, token rings, repair from caches", _make_service_node
    ),
}
