"""Live nodes on a wire without sockets or time of its own: every datagram passes through the hands of the test."""

from collections.abc import Callable, Iterable
from random import Random

from vivum.core.ids import Channel, Endpoint, GroupId
from vivum.core.limits import Limits
from vivum.core.machine import ChannelClosed, ChannelOpened, Datagram, Delivery, Event
from vivum.core.time import MILLISECOND, SECOND
from vivum.node.compose import MemberParts, compose_member, compose_service
from vivum.node.domain import JoinDomain, WayIn
from vivum.node.node import Node
from vivum.protocols.commands import JoinGroup
from vivum.protocols.discovery.beaconer import StartBeacon
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.ricochet.settings import TimelySettings

DOMAIN = 7
NO_CHANNEL = Channel(0)

Fate = Callable[[list[tuple[Endpoint, Datagram]]], Iterable[tuple[Endpoint, Datagram]]]
"""What the wire does to datagrams of one node, each with the endpoint that it goes to."""


class Wire:
    """A service and some nodes that have joined one group."""

    def __init__(
        self,
        nodes: int,
        group: GroupId,
        settings: QsmSettings | None = None,
        limits: Limits | None = None,
        timely: TimelySettings | None = None,
    ) -> None:
        self.now_ns = 10 * SECOND
        self.fate: Fate = lambda sent: sent
        self.delivered: dict[Endpoint, list[Delivery]] = {}
        self.events: dict[Endpoint, list[Event]] = {}
        self._channels: dict[Endpoint, set[Channel]] = {}
        endpoints = [Endpoint("10.0.0.1", 1000 + number) for number in range(nodes + 1)]
        service = compose_service(DOMAIN, endpoints[0], 1, multicast=True)
        self.members: dict[Endpoint, MemberParts] = {
            endpoint: compose_member(
                f"node {endpoint.port}",
                DOMAIN,
                endpoint,
                Random(endpoint.port),
                settings or QsmSettings(),
                limits or Limits(),
                WayIn(embedded=False),
                timely=timely,
            )
            for endpoint in endpoints[1:]
        }
        self._nodes: dict[Endpoint, Node] = {endpoints[0]: service.node}
        self._nodes |= {endpoint: parts.node for endpoint, parts in self.members.items()}
        for endpoint in endpoints:
            self.delivered[endpoint], self.events[endpoint], self._channels[endpoint] = [], [], set()
        service.node.submit(self.now_ns, StartBeacon())
        for parts in self.members.values():
            parts.node.submit(self.now_ns, JoinDomain())
        self.advance(SECOND)
        for parts in self.members.values():
            parts.node.submit(self.now_ns, JoinGroup(group, NO_CHANNEL, ()))
        self.advance(3 * SECOND)
        assert all(group in parts.client.groups for parts in self.members.values())

    def advance(self, duration_ns: int) -> None:
        """Let time pass, and everybody do what is due."""
        until_ns = self.now_ns + duration_ns
        while True:
            self.settle()
            deadlines = [each for node in self._nodes.values() if (each := node.next_deadline_ns()) is not None]
            next_ns = min(deadlines, default=until_ns)
            if next_ns >= until_ns:
                break
            self.now_ns = max(self.now_ns + MILLISECOND // 100, next_ns)
            for node in self._nodes.values():
                if (node.next_deadline_ns() or until_ns) <= self.now_ns:
                    node.on_timer(self.now_ns)
        self.now_ns = until_ns

    def settle(self) -> None:
        """Carry datagrams until nobody has anything to say."""
        while sum(self._carry(place) for place in self._nodes):
            pass

    def _carry(self, place: Endpoint) -> bool:
        sent: list[tuple[Endpoint, Datagram]] = []
        while output := self._nodes[place].take_output():
            for effect in output:
                if isinstance(effect, Delivery):
                    self.delivered[place].append(effect)
                elif isinstance(effect, Event):
                    self._on_event(place, effect)
                elif isinstance(effect, Datagram):
                    sent += [(target, each) for each in effect.cut() for target in self._targets(place, each)]
        for target, datagram in list(self.fate(sent)):
            self._nodes[target].on_datagrams(self.now_ns, [(place, datagram.data)])
        return bool(sent)

    def _on_event(self, place: Endpoint, event: Event) -> None:
        self.events[place].append(event)
        if isinstance(event, ChannelOpened):
            self._channels[place].add(event.channel)
        elif isinstance(event, ChannelClosed):
            self._channels[place].discard(event.channel)

    def _targets(self, source: Endpoint, datagram: Datagram) -> list[Endpoint]:
        where = datagram.destination
        if isinstance(where, Endpoint):
            return [where] if where in self._nodes else []
        return [place for place, heard in self._channels.items() if place != source and where in heard]
