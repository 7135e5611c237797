"""A node's place in its domain: finds the leader of the service or founds one, joins, follows, hands over, leaves.

Design note: `docs/design/runtime.md`, "Discovery". Composes the finder, the beaconer and the node's role in the
service, and directs the client of membership, which QSM drives. These report what happened; this machine decides what
follows. It acts after the reporting call has returned, so no machine changes in the middle of its own call.

Knows neither sockets nor names of topics. Invariants: a service that is led here is announced by the beaconer and
trusted by the finder; no history is founded before the network was seen to work, nor by a node whose own history may
go on elsewhere; once the node leaves, discovery changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from vivum.core.deadlines import Deadlines
from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint, Member
from vivum.core.machine import Command, Datagram, Effect, Event
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.discovery.beaconer import EndBeacon, ServiceOutranked, StartBeacon
from vivum.protocols.discovery.finder import (
    ReplicaEnded,
    ServiceAbsent,
    ServiceFound,
    ServiceLost,
    StartSeeking,
    TrustService,
)
from vivum.protocols.discovery.machine import Discovery
from vivum.protocols.discovery.rank import ServiceInfo
from vivum.protocols.membership.client.client import ClientState
from vivum.protocols.membership.service.machine import ServiceMachine
from vivum.protocols.membership.service.role import ServiceRole
from vivum.protocols.qsm.machine import QsmMachine
from vivum.wire.codec import Frame
from vivum.wire.kinds import Kind

CARRY_STEP_NS = 150 * MILLISECOND
"""How much longer each further seed waits before it founds a history."""

FOLLOW_PATIENCE_NS = 1 * SECOND
"""How long the leader of another history may take to greet a node, if it goes on from the node's own one, before the
node begins a new life there."""

NOT_PRIMARY_AFTER_NS = 1 * SECOND
"""How long a node looks for the next leader before it says that it is cut off: longer than most elections."""

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
class NoteRefused(Command):
    """Note that no process has an endpoint: its computer, which is this one, says so."""

    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class NotPrimary(Event):
    """The node hears no leader: its part of the domain changes nothing until it does. What it sends in its views still
    reaches those members that it hears, and is confirmed when all have it."""


@dataclass(frozen=True, slots=True)
class PrimaryAgain(Event):
    """The node hears a leader again."""


@dataclass(frozen=True, slots=True)
class PlaceTaken(Event):
    """The node has a life in a history: a new life, or its old one in a history that goes on from the one before."""

    history: int


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

    survives: bool = True
    """One of two nodes goes on alone when the other is gone. False: it waits, as nodes without a majority always do."""

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
    commands: frozenset[type[Command]] = frozenset({JoinDomain, LeaveDomain, TrustNetwork, NoteRefused})
    transport = ""

    def __init__(
        self,
        discovery: Discovery,
        role: ServiceRole,
        qsm: QsmMachine,
        *,
        multicast: bool,
        awaits_network: bool = False,
        survives: bool = True,
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
        self._survives = survives
        self._multicast = multicast
        self._endpoint = qsm.client.endpoint
        self._timers: Deadlines[str] = Deadlines()
        self._now_ns = 0
        # The speaker here whose beginning was acted upon.
        self._announced: ServiceMachine | None = None
        self._place: tuple[Member, int] | None = None
        self.is_primary = True
        """Whether a leader was heard lately, or none was known yet."""

    @property
    def service(self) -> ServiceInfo | None:
        """The service of the domain; None if it is not known."""
        return self._finder.service

    @property
    def carries_service(self) -> bool:
        """Whether this node leads the configuration service."""
        return self._role.serving is not None

    @property
    def voters(self) -> list[Endpoint]:
        """Where the replicas that vote are, as far as the replica of this node knows; none if it is blank."""
        return self._role.voters

    @property
    def neighbours(self) -> list[Endpoint]:
        """Those of this computer whose end matters to this node: replicas, and if it leads, all nodes."""
        places = dict.fromkeys(self._role.replica_endpoints)
        if self._role.serving is not None:
            places |= dict.fromkeys(life.endpoint for life in self._role.serving.service.lives.values())
        return [each for each in places if each.host == self._endpoint.host and each != self._endpoint]

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
            case NoteRefused(endpoint):
                self._role.on_refused(now_ns, endpoint)
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
                case "primary":
                    self.is_primary = False
                    self.effects.append(NotPrimary())
                case "hand over":
                    self._client.leave(now_ns)
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
            case ReplicaEnded(endpoint):
                self._role.on_refused(self._now_ns, endpoint)
            case ServiceLost():
                self._timers.cancel("follow")
                if self._client.member is not None and self.is_primary:
                    self._timers.set_earlier("primary", self._now_ns + NOT_PRIMARY_AFTER_NS)
                if not self._multicast:
                    self._finder.ask_also(self._client.endpoints.values())
            case ServiceOutranked(by):
                # Nodes that had joined here follow too, each with a new life.
                self._role.forget()
                self._announced = None
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
        self._timers.cancel("primary")
        if not self.is_primary:
            self.is_primary = True
            self.effects.append(PrimaryAgain())
        if client.member is None or client.history == 0:
            self._follow_now(service)
        elif client.history == service.history:
            self._timers.cancel("follow")
            if not client.follows(service.endpoint):
                client.seek_at(service.endpoint)
        else:
            # If that history goes on from this one, its leader greets the node, and the life goes on: give it time.
            self._timers.set_earlier("follow", self._now_ns + FOLLOW_PATIENCE_NS)

    def _follow_now(self, service: ServiceInfo) -> None:
        now_ns, client = self._now_ns, self._client
        self._timers.cancel("follow")
        if self._role.history not in (0, service.history):
            self._role.forget()
            self._announced = None
        if client.member is not None and client.history == service.history:
            return
        client.serve_by(now_ns, [service.endpoint])
        if client.state is ClientState.IDLE:
            client.start(now_ns)
        # QSM must not handle even one more frame in a life that has ended.
        self._qsm.on_timer(now_ns)
        self.effects += self._qsm.effects
        self._qsm.effects.clear()

    # Leading the service.

    def _begin_service(self) -> None:
        """Found a history, unless there is one of which this node cannot know that it is over."""
        if self.awaits_network:
            self.effects.append(NetworkAwaited())
            return
        if self._client.member is not None:
            lost = self._finder.lost
            was_small = lost is not None and lost.lives <= 2
            if self._role.history or not self._survives or not was_small:
                return
        self._role.begin(self._now_ns)

    def _note_service(self) -> None:
        """Announce a service that is led here from now on; look for the next leader if it is not any more."""
        serving = self._role.serving
        if serving is self._announced or self.state is not DomainState.INSIDE:
            return
        self._announced = serving
        if serving is None:
            if self.service is not None and self.service.endpoint == self._endpoint:
                self._finder.lose_service(self._now_ns)
            return
        self._beaconer.submit(self._now_ns, StartBeacon())
        info = self._beaconer.info
        assert info is not None, "a service that is led here has a status"
        self._finder.submit(self._now_ns, TrustService(info))

    # Leaving.

    def _leave(self, within_ns: int) -> None:
        if self.state is DomainState.OUTSIDE:
            self._become_left()
        elif self.state is DomainState.INSIDE:
            self.state = DomainState.LEAVING
            for what in ("follow", "primary"):
                self._timers.cancel(what)
            self._timers.set("leave", self._now_ns + within_ns)
            if self._role.has_heir:
                # Another one must lead before this node goes; if none does in time, it goes all the same.
                self._role.hand_over()
                self._timers.set("hand over", self._now_ns + within_ns // 2)
            else:
                self._client.leave(self._now_ns)

    def _become_left(self) -> None:
        self.state = DomainState.LEFT
        self._timers.cancel("leave")
        self._timers.cancel("hand over")
        self.effects.append(DomainLeft())
        if self._role.history:
            others = dict.fromkeys(self._role.replica_endpoints)
            if not self._multicast:
                others |= dict.fromkeys(self._client.endpoints.values())
            others.pop(self._endpoint, None)
            self._beaconer.submit(self._now_ns, EndBeacon(tuple(others)))
            self._role.forget()

    # Output.

    @property
    def has_data(self) -> bool:
        """Whether entries of the service's log could be sent now if there were room."""
        return self._role.replica.has_data

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        """Make the frames that are due."""
        client = self._client
        if self.state is DomainState.LEAVING:
            if "hand over" in self._timers and not self.carries_service:
                self._timers.cancel("hand over")
                client.leave(self._now_ns)
            if client.state is ClientState.LEFT:
                # The service's answer went to QSM, which drives the client.
                self._become_left()
        if client.member is not None and client.history and self._place != (client.member, client.history):
            self._place = (client.member, client.history)
            self.effects.append(PlaceTaken(client.history))
        made = self._role.make_frames(room_bytes)
        role = self._role
        if role.effects or role.serving is not self._announced or self._discovery.effects:
            # What the log came to may have begun or ended the service here.
            self._act()
        return self._discovery.make_frames(room_bytes) + made
