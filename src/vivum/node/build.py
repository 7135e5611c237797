"""The list of protocols that the simulator can run, by name, and how their nodes are built.

`qsm` is the live node without discovery, and a configuration service on a host of its own. `vivum.node.compose` makes
both, as it does on sockets. `reference` is the simple protocol that QSM is compared with.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import msgspec

from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.settings import settings_of
from vivum.node.compose import compose_member_without_discovery, compose_service
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.observe.trace import Tracer
from vivum.protocols.membership.service.role import SERVICE_NODE
from vivum.protocols.membership.settings import ServiceSettings
from vivum.protocols.qsm.machine import QsmMachine
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.reference.machine import ReferenceMachine
from vivum.protocols.reference.settings import ReferenceSettings
from vivum.protocols.ricochet.machine import TimelyMachine
from vivum.protocols.ricochet.settings import TimelySettings
from vivum.wire.gate import Gate, domain_tag

T = TypeVar("T")

MakeNode = Callable[[Member, Mapping[NodeId, Endpoint], Any, Random, Tracer | None], Node]


@dataclass(frozen=True, slots=True)
class ProtocolEntry:
    """How to build nodes of one protocol."""

    settings: type
    make_node: MakeNode
    meaning: str
    make_service: Callable[[Incarnation, Endpoint, ServiceSettings], Node] | None = None
    """Builds the node of the configuration service, for protocols that need one on a host of its own."""

    transport: str = ""
    """The transport of its groups, where a guarantee has it."""

    joins_with: str = ""
    """The transport that groups are joined with; the node's default if empty."""

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
    return _make_member(member, endpoints, settings, rng, trace)


def _make_timely_node(
    member: Member,
    endpoints: Mapping[NodeId, Endpoint],
    settings: TimelySettings,
    rng: Random,
    trace: Tracer | None,
) -> Node:
    return _make_member(
        member, endpoints, QsmSettings(frame_bytes_max=settings.frame_bytes_max), rng, trace, timely=settings
    )


def _make_member(
    member: Member,
    endpoints: Mapping[NodeId, Endpoint],
    settings: QsmSettings,
    rng: Random,
    trace: Tracer | None,
    timely: TimelySettings | None = None,
) -> Node:
    # The service takes every start of the process for a new life, and numbers it itself.
    name = f"node {member.node}, start {member.incarnation}"
    # If the first service is gone, any node can tell where its successor is.
    services = [endpoints[SERVICE_NODE], *(each for node, each in endpoints.items() if node != SERVICE_NODE)]
    endpoint = endpoints[member.node]
    return compose_member_without_discovery(
        name, domain_tag("sim"), endpoint, rng, settings, services, wanted=member.node, trace=trace, timely=timely
    )


def _make_service_node(incarnation: Incarnation, endpoint: Endpoint, settings: ServiceSettings) -> Node:
    # No other service begins this domain, so no salt: lives are numbered from 1.
    parts = compose_service(domain_tag("sim"), endpoint, 0, multicast=False, settings=settings, incarnation=incarnation)
    return parts.node


PROTOCOLS: dict[str, ProtocolEntry] = {
    "reference": ProtocolEntry(
        ReferenceSettings, _make_reference_node, "Best-effort multicast, then NAKs to the sender"
    ),
    "qsm": ProtocolEntry(
        QsmSettings,
        _make_qsm_node,
        "Regions of overlap, token rings, repair from caches",
        _make_service_node,
        transport=QsmMachine.transport,
    ),
    "ricochet": ProtocolEntry(
        TimelySettings,
        _make_timely_node,
        "Timely: each message once, XORs between receivers, then NAKs to the sender",
        _make_service_node,
        transport=TimelyMachine.transport,
        joins_with=TimelyMachine.transport,
    ),
}
