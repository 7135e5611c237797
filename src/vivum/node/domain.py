"""A node's place in its domain: finds a service or carries it, joins, follows when the service changes, leaves.

Design note: `docs/design/runtime.md`, "Discovery". Composes the finder, the beaconer and the node's role in the
service, and directs the client of membership, which QSM drives. These report what happened; this machine decides what
follows. It acts after the reporting call has returned, so no machine changes in the middle of its own call.

Knows neither sockets nor names of topics. Invariants: a service that is carried here is announced by the beaconer and
trusted by the finder; no service begins before the network was seen to work; once the node leaves, discovery changes
nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

from vivum.core.deadlines import Deadlines
from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint, Incarnation, Member
from vivum.core.machine import Command, Datagram, Effect, Event
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.discovery.beaconer import EndBeacon, ServiceOutranked, StartBeacon
from vivum.protocols.discovery.finder import ServiceAbsent, ServiceFound, ServiceLost, StartSeeking, TrustService
from vivum.protocols.discovery.machine import Discovery
from vivum.protocols.discovery.rank import ServiceInfo
from vivum.protocols.membership.client.allegiance import ROUND_BITS
from vivum.protocols.membership.client.client import ClientState
from vivum.protocols.membership.service.machine import ServiceMachine
from vivum.protocols.membership.service.role import SERVICE_NODE, ServiceRole
from vivum.protocols.qsm.machine import QsmMachine
from vivum.wire.codec import Frame
from vivum.wire.kinds import Kind

CARRY_STEP_NS = 150 * MILLISECOND
"""How much longer each younger node waits before it begins a service in the place of a lost one."""

TAKEOVER_PATIENCE_NS = 5 * SECOND
"""How long standbys may take to replace a lost service before a node begins a new one."""

FOLLOW_PATIENCE_NS = 2 * SECOND
"""How long a service of a later round may take to contact a node before the node begins a new life there."""

MEETING_PATIENCE_NS = 1500 * MILLISECOND
"""How much longer a node without the meeting port waits."""


@dataclass(frozen=True, slots=True)
class JoinDomain(Command):
    """Find the domain's service or carry one, then join."""


@dataclass(frozen=True, slots=True)
class LeaveDomain(Command):
    """Leave the domain within this time. `DomainLeft` follows."""

    within_ns: int


@dataclass(frozen=True, slots=True)
class TrustNetwork(Command):
    """Note that the network works: a multicast came back. A node that waited for it seeks its service anew."""


@dataclass(frozen=True, slots=True)
class NetworkAwaited(Event):
    """Nobody answers, and the network was not seen to work: the node keeps seeking and begins no service."""


@dataclass(frozen=True, slots=True)
class DomainLeft(Event):
    """The node has left its domain, or ran out of time to leave. It sends nothing after this output."""


class DomainState(Enum):
    """Whether the node takes part in a domain."""

    OUTSIDE = "did not join yet"
    INSIDE = "takes part, or looks for a service to do so"
    LEAVING = "gives its place back"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class WayIn:
    """How a node comes into its domain."""

    seeds: Sequence[Endpoint] = ()
    """Nodes or services to ask for the service, besides the beacon channel."""

    embedded: bool = True
    """This node may carry the service. If there are seeds, only a seed does."""

    meets: bool = False
    """The only seed is the meeting port of this computer's nodes. Any of them may carry the service."""

    awaits_network: bool = False
    """Begin no service before the network was seen to work."""

    def carry_after_ns(self, endpoint: Endpoint) -> int | None:
        """Return how much longer a node at this endpoint waits before it begins a service; None if it never does."""
        if not self.embedded:
            return None
        if not self.seeds:
            return 0
        if endpoint in self.seeds:
            return self.seeds.index(endpoint) * CARRY_STEP_NS
        return MEETING_PATIENCE_NS if self.meets else None


class DomainMachine:
    """Decides where a node belongs."""

    kinds = Discovery.kinds | ServiceRole.kinds
    commands: frozenset[type[Command]] = frozenset({JoinDomain, LeaveDomain, TrustNetwork})
    transport = ""
    has_data = False

    def __init__(
        self,
        discovery: Discovery,
        role: ServiceRole,
        qsm: QsmMachine,
        rng: Random,
        *,
        multicast: bool,
        awaits_network: bool = False,
    ) -> None:
        """Prepare. The client of `qsm` is directed from here, and started only when there is a service to ask."""
        self.state = DomainState.OUTSIDE
        self.awaits_network = awaits_network
        self.effects: list[Effect] = []
        self._discovery = discovery
        self._finder = discovery.finder
        self._finder.is_held_back = awaits_network
        self._beaconer = discovery.beaconer
        self._role = role
        self._qsm = qsm
        self._client = qsm.client
        self._rng = rng
        self._multicast = multicast
        self._endpoint = qsm.client.endpoint
        self._timers: Deadlines[str] = Deadlines()
        self._now_ns = 0
        # The carried service whose beginning was acted upon.
        self._announced: ServiceMachine | None = None

    @property
    def service(self) -> ServiceInfo | None:
        """The service of the domain; None if it is not known."""
        return self._finder.service

    @property
    def carries_service(self) -> bool:
        """Whether the configuration service is in this node."""
        return self._role.serving is not None

    # Input.

    def submit(self, now_ns: int, command: Command) -> None:
        """Join, leave, or learn that the network works."""
        self._now_ns = now_ns
        match command:
            case JoinDomain():
                if self.state is not DomainState.OUTSIDE:
                    raise UsageError(f"the node {self.state.value}; to join again, make a new one")
                self.state = DomainState.INSIDE
                self._finder.submit(now_ns, StartSeeking())
            case LeaveDomain(within_ns):
                self._leave(within_ns)
            case TrustNetwork():
                self._trust_network()
        self._act()

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a frame of discovery, or for the service."""
        self._now_ns = now_ns
        if frame.kind is Kind.DISCOVERY:
            self._discovery.on_frame(now_ns, source, frame)
        else:
            self._role.on_frame(now_ns, source, frame)
        self._act()
        if self.awaits_network and source.host != self._endpoint.host:
            self._trust_network()
            self._act()

    def next_deadline_ns(self) -> int | None:
        """Return when something will be due."""
        earliest_ns = self._discovery.next_deadline_ns()
        for each_ns in (self._role.next_deadline_ns(), self._timers.next_ns()):
            if each_ns is not None and (earliest_ns is None or each_ns < earliest_ns):
                earliest_ns = each_ns
        return earliest_ns

    def on_timer(self, now_ns: int) -> None:
        """Do what is due."""
        self._now_ns = now_ns
        self._discovery.on_timer(now_ns)
        self._act()
        self._role.on_timer(now_ns)
        self._act()
        for what in self._timers.take_due(now_ns):
            match what:
                case "follow":
                    if self.service is not None:
                        self._follow_now(self.service)
                case "leave":
                    self._become_left()

    # Reacting to events.

    def _act(self) -> None:
        """Act on what the machines reported, in order, until nothing new is reported."""
        told = self._discovery.effects
        while True:
            self._note_service()
            self.effects += self._role.effects
            self._role.effects.clear()
            if not told:
                return
            event = told.pop(0)
            self.effects.append(event)
            if self.state is DomainState.INSIDE:
                self._on_event(event)

    def _on_event(self, event: Effect) -> None:
        match event:
            case ServiceFound(service):
                self._follow(service)
            case ServiceAbsent():
                self._begin_service()
            case ServiceLost(_, has_ended):
                self._timers.cancel("follow")
                if has_ended:
                    self._role.on_service_ended()
                self._rank_by_age()
            case ServiceOutranked(by):
                # Nodes that had joined here follow too, each with a new life.
                self._end_service()
                self._finder.submit(self._now_ns, TrustService(by))

    def _trust_network(self) -> None:
        if not self.awaits_network:
            return
        self.awaits_network = self._finder.is_held_back = False
        if self.state is DomainState.INSIDE and self.service is None:
            # Nobody could have answered until now: restart the wait.
            self._finder.submit(self._now_ns, StartSeeking())

    # Following a service.

    def _follow(self, service: ServiceInfo) -> None:
        client = self._client
        is_later = service.term >> ROUND_BITS > client.term >> ROUND_BITS
        if client.member is not None and client.term and is_later:
            # A standby that took over contacts its nodes itself, and their lives go on: give it time.
            self._timers.set_earlier("follow", self._now_ns + FOLLOW_PATIENCE_NS)
        else:
            self._follow_now(service)

    def _follow_now(self, service: ServiceInfo) -> None:
        now_ns, client = self._now_ns, self._client
        self._timers.cancel("follow")
        is_with = client.member is not None and client.follows(service.endpoint) and client.term == service.term
        if service.endpoint != self._endpoint and (self.carries_service or not is_with):
            # If that service gave this life, this node is its standby and keeps its copy.
            self._end_service()
        if is_with:
            return
        client.serve_by(now_ns, [service.endpoint])
        if client.state is ClientState.IDLE:
            client.start(now_ns)
        # QSM must not handle even one more frame in a life that has ended.
        self._qsm.on_timer(now_ns)
        self.effects += self._qsm.effects
        self._qsm.effects.clear()

    def _rank_by_age(self) -> None:
        """Set how long to wait before beginning a service: the oldest node that is left begins first."""
        client = self._client
        aged = sorted(
            {pair for config in client.regions.values() for pair in zip(config.ages, config.members, strict=True)}
        )
        index = next((index for index, (_, member) in enumerate(aged) if member == client.member), len(aged))
        # Where a majority of the nodes is left, a standby takes over; begin anew only if none does.
        patience_ns = TAKEOVER_PATIENCE_NS if len(aged) > 2 else 0
        self._finder.carry_after(patience_ns + index * CARRY_STEP_NS)
        if not self._multicast:
            self._finder.ask_also(client.endpoints.values())

    # Carrying a service.

    def _begin_service(self) -> None:
        if self.awaits_network:
            self.effects.append(NetworkAwaited())
            return
        known = self._finder.term
        round_ = (known >> ROUND_BITS) + 1 if known else 0
        self._role.begin(Member(SERVICE_NODE, Incarnation(1)), round_, self._rng.randrange(1, 1 << ROUND_BITS))

    def _note_service(self) -> None:
        """Announce a service that began here or was taken over; look for its successor if it stepped down."""
        serving = self._role.serving
        if serving is self._announced or self.state is not DomainState.INSIDE:
            return
        self._announced = serving
        if serving is None:
            self._finder.lose_service(self._now_ns)
            return
        self._beaconer.submit(self._now_ns, StartBeacon())
        info = self._beaconer.info
        assert info is not None, "a carried service has a status"
        self._finder.submit(self._now_ns, TrustService(info))

    def _end_service(self) -> None:
        """Stop carrying a service or a copy of one: the node follows another."""
        self._role.forget()
        self._announced = None

    # Leaving.

    def _leave(self, within_ns: int) -> None:
        if self.state is DomainState.OUTSIDE:
            self._become_left()
        elif self.state is DomainState.INSIDE:
            self.state = DomainState.LEAVING
            self._timers.cancel("follow")
            self._timers.set("leave", self._now_ns + within_ns)
            self._client.leave(self._now_ns)

    def _become_left(self) -> None:
        self.state = DomainState.LEFT
        self._timers.cancel("leave")
        self.effects.append(DomainLeft())
        if self.carries_service:
            self._beaconer.submit(self._now_ns, EndBeacon())

    # Output.

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        """Make the frames that are due. All is control: it does not wait for room."""
        if self.state is DomainState.LEAVING and self._client.state is ClientState.LEFT:
            # The service's answer went to QSM, which drives the client.
            self._become_left()
        return self._discovery.make_frames(room_bytes) + self._role.make_frames(room_bytes)
