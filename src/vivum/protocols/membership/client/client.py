"""The client of the configuration service, one in every node: joins the domain and groups, and learns the views.

A part of a protocol machine, not a machine: its owner hands it frames and time, and takes datagrams and changes.
Design note: `docs/design/membership.md`, "Client". It notes *that* something is due and makes the frame in
`make_datagrams`, from the state of that moment; only a request for groups stays as it was made (`requests`).

Knows nothing of rings and streams. Invariants: `groups`, `regions` and `epoch` belong to the life `member`; epochs
of one life only grow.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from random import Random

from vivum.core.errors import DecodeError, LimitError, UsageError
from vivum.core.ids import Endpoint, GroupId, Incarnation, Member, NodeId, RegionId, ViewNumber
from vivum.core.machine import Datagram, InstallView, Priority
from vivum.core.ranges import RangeSet
from vivum.core.time import SECOND
from vivum.observe.trace import NodeStarted, NodeStopped, Tracer
from vivum.protocols.membership.assembly import Assembly
from vivum.protocols.membership.client.allegiance import Allegiance
from vivum.protocols.membership.client.changes import Change, Removed, Welcomed
from vivum.protocols.membership.client.conversation import Conversation
from vivum.protocols.membership.client.subscriptions import Subscriptions
from vivum.protocols.membership.client.view import ConfigurationView
from vivum.protocols.membership.region_config import RegionConfig
from vivum.protocols.membership.settings import ClientSettings
from vivum.wire.codec import Frame
from vivum.wire.control import encode_control
from vivum.wire.fields import ControlMessage
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind
from vivum.wire.membership import (
    Alive,
    Configuration,
    ConfigurationAck,
    FailureReport,
    Join,
    Leave,
    Probe,
    Removal,
    Welcome,
)
from vivum.wire.standby import Candidacy, ServiceStatus, Support

PROCESS_NAME_CHARACTERS_MAX = 240
"""Longest name of a process: leaves room for the number of a later life."""

YOUNG_NS = 3 * SECOND
"""A life that ends younger is in no hurry: what ended it may go on, and would end the next one too."""


class ClientState(Enum):
    """The client's state."""

    IDLE = "not started"
    JOINING = "asks for a place"
    JOINED = "has a life"
    LEAVING = "has a life and gives it back"
    LEFT = "left"


class MembershipClient:
    """What a node knows of the domain, and its side of the conversation with the service."""

    def __init__(
        self,
        name: str,
        wanted: NodeId,
        endpoint: Endpoint,
        services: Sequence[Endpoint],
        gate: Gate,
        rng: Random,
        settings: ClientSettings | None = None,
        trace: Tracer | None = None,
    ) -> None:
        if not 0 < len(name) <= PROCESS_NAME_CHARACTERS_MAX:
            limit = PROCESS_NAME_CHARACTERS_MAX
            raise UsageError(f"the name of a process has {len(name)} characters; expected 1 to {limit}")
        self.settings = settings or ClientSettings()
        self.trace = trace
        self.state = ClientState.IDLE
        self.member: Member | None = None
        self.own_region: RegionConfig | None = None
        self.groups = RangeSet()
        self._process = self._name = name
        self._lives = 1
        self._wanted = wanted
        self.endpoint = endpoint
        self._gate = gate
        self._talk = Conversation(services, rng, self.settings)
        self._allegiance = Allegiance()
        self._supports: list[tuple[Endpoint, Support]] = []
        self._view = ConfigurationView(self.settings.gone_endpoints_max)
        self._assembly = Assembly(self.settings.parts_max)
        self._changes: list[Change] = []
        self._requests = Subscriptions()
        # A life that arrived after we had left, to be given back.
        self._ghost: Member | None = None
        # Whether this life is to end as soon as the service is heard, and whether it was heard.
        self._wants_over = self._may_end = False
        self._joined_ns = 0
        self._reports: dict[Member, int] = {}
        self._reported_ns: dict[Member, int] = {}

    # The service that it follows.

    @property
    def term(self) -> int:
        """The term of the service that this node follows; 0 while it follows none."""
        return self._allegiance.term

    @property
    def service_status(self) -> ServiceStatus | None:
        """The last status of the service, with its endpoint."""
        return self._allegiance.status

    @property
    def supported_round(self) -> int:
        """The last round in which this node supported a candidate."""
        return self._allegiance.round

    def is_service_silent(self, now_ns: int) -> bool:
        """Return whether the service has been silent long enough for a standby to take over."""
        return now_ns - self._allegiance.heard_ns >= self.settings.service_silence_ns

    def support(self, now_ns: int, round_: int, epoch: int, candidate: Endpoint) -> bool:
        """Support a candidate whose copy is at `epoch`, if the service is silent and no other one was supported."""
        if not self.is_service_silent(now_ns) or epoch < self.epoch:
            return False
        return bool(self._allegiance.support(round_, candidate))

    # What is known.

    @property
    def epoch(self) -> int:
        """The node's epoch; 0 if it has learned none in this life."""
        return self._view.epoch

    @property
    def regions(self) -> dict[RegionId, RegionConfig]:
        """The present view of every region that concerns this node."""
        return self._view.regions

    @property
    def endpoints(self) -> Mapping[NodeId, Endpoint]:
        """The endpoints of members of these regions, and of some that left them recently."""
        return self._view.endpoints

    @property
    def wanted_groups(self) -> RangeSet:
        """The groups that the application asked for, even if the service does not know it yet."""
        return self._requests.wanted

    def regions_of(self, group: GroupId) -> tuple[RegionConfig, ...]:
        """List the regions of a group, by their ids."""
        return self._view.regions_of(group)

    def members_of(self, group: GroupId) -> tuple[Member, ...]:
        """List the members of a group, oldest first."""
        return self._view.members_of(group)

    def group_view(self, group: GroupId) -> ViewNumber:
        """Return the number of a group's view, on which its members agree; 0 if it is not known."""
        return self._view.group_view(group)

    def bundles(self, groups: RangeSet) -> list[InstallView]:
        """List the views of these groups, bundle by bundle; see `ConfigurationView.bundles`."""
        return self._view.bundles(groups)

    # Calls of the owner.

    def start(self, now_ns: int) -> None:
        """Join the domain. While no service is known nothing happens: call `serve_by`, then start again."""
        if self.state is not ClientState.IDLE:
            raise UsageError(f"the client was started before and {self.state.value}; make a new one")
        if not self._talk.has_services:
            return
        self._allegiance.heard_ns = now_ns
        self._become_joining(now_ns)

    def subscribe(self, now_ns: int, groups: RangeSet) -> None:
        """Join these groups too. Takes effect with a configuration, in this life and later ones."""
        target = self._requests.wanted.copy()
        target.update(groups)
        self._retarget(now_ns, target)

    def unsubscribe(self, now_ns: int, groups: RangeSet) -> None:
        """Leave these groups."""
        target = self._requests.wanted.copy()
        target.difference_update(groups)
        self._retarget(now_ns, target)

    def _retarget(self, now_ns: int, target: RangeSet) -> None:
        if target.range_count > self.settings.group_ranges_max:
            raise LimitError(
                f"the groups would be {target.range_count} ranges, over group_ranges_max="
                f"{self.settings.group_ranges_max}; use group ids that are neighbours"
            )
        self._requests.wanted = target
        if self.state is ClientState.JOINED and self._requests.under_way is None:
            self._talk.timers.set_earlier("gather", now_ns + self.settings.gather_ns)

    def leave(self, now_ns: int) -> None:
        """Leave the domain. The service's answer is reported as `Removed`; there is no other life after it."""
        if self.state is ClientState.JOINED:
            self._become_leaving(now_ns)
        elif self.state is not ClientState.LEAVING:
            self._become_left(now_ns)

    def serve_by(self, now_ns: int, services: Sequence[Endpoint]) -> None:
        """Use other services from now on. A life given by a former one ends, and a new one begins there."""
        self._talk.replace_services(services)
        # Terms of different histories cannot be compared.
        self._allegiance = Allegiance()
        self._allegiance.heard_ns = now_ns
        if self.state in (ClientState.JOINING, ClientState.JOINED):
            self._become_removed(now_ns)

    def on_service_ended(self) -> None:
        """Note the service's farewell: support a successor without waiting for silence."""
        self._allegiance.heard_ns = 0

    def follows(self, service: Endpoint) -> bool:
        """Return whether this node already speaks with the service at an endpoint."""
        return self._talk.has_services and self._talk.destination == service

    def report_failure(self, now_ns: int, member: Member, silent_ns: int) -> None:
        """Report to the service that a member is silent. Not repeated: call again while it is."""
        if self.state is not ClientState.JOINED:
            return
        interval_ns = self.settings.report_interval_ns
        if now_ns - self._reported_ns.get(member, -interval_ns) < interval_ns:
            return
        self._reported_ns = {each: at_ns for each, at_ns in self._reported_ns.items() if now_ns - at_ns < interval_ns}
        self._reported_ns[member] = now_ns
        self._reports[member] = silent_ns

    # States.

    def start_over(self, now_ns: int) -> None:
        """End this life, which cannot keep its promises, and begin another once the service is heard again."""
        # Not before: if all standbys gave up their lives, none could replace a service that is gone. A node that leaves
        # begins no other.
        if self.state is ClientState.JOINED:
            self._wants_over = True
            # To the one the service answers at once, to the other with its next regular word.
            self._talk.say("ack" if now_ns - self._joined_ns >= YOUNG_NS else "alive")

    def _become_joining(self, now_ns: int) -> None:
        self.state = ClientState.JOINING
        self._talk.ask(now_ns, "join")

    def _become_joined(self, now_ns: int, member: Member) -> None:
        self.state = ClientState.JOINED
        self.member = member
        self._joined_ns = now_ns
        self._wanted = member.node
        self._changes.append(Welcomed(member))
        if self.trace is not None and self._lives > 1:
            self.trace(NodeStarted(now_ns, *member))
        self._talk.answered()
        self._talk.timers.set("keepalive", now_ns + self._talk.spread(self.settings.keepalive_ns))
        self._maybe_request(now_ns)

    def _become_leaving(self, now_ns: int) -> None:
        self.state = ClientState.LEAVING
        self._talk.clear()
        self._talk.ask(now_ns, "leave")

    def _become_left(self, now_ns: int) -> None:
        self._end_life(now_ns)
        self.state = ClientState.LEFT

    def _become_removed(self, now_ns: int) -> None:
        """Note that the life has ended, or that the process was dropped before it had one: join as another process."""
        self._end_life(now_ns)
        self._lives += 1
        self._name = f"{self._process}~{self._lives}"
        self._become_joining(now_ns)

    def _end_life(self, now_ns: int) -> None:
        member, self.member = self.member, None
        self._wants_over = self._may_end = False
        self.own_region = None
        self.groups = RangeSet()
        self._view.forget()
        self._assembly.clear()
        self._requests.on_life_ended()
        self._talk.clear()
        self._reports.clear()
        self._reported_ns.clear()
        if member is not None:
            self._changes.append(Removed(member))
            if self.trace is not None and self.state is ClientState.JOINED:
                # The driver traces how the process begins and ends; only this client knows the lives in between.
                self.trace(NodeStopped(now_ns, *member, "dropped by the configuration service"))

    # Frames.

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a frame of kind CONFIGURATION: refuse what makes no sense now, then act."""
        if not self._talk.knows(source) and source not in self._view.endpoints.values():
            self._gate.refuse_state(now_ns, source, frame, "not from a configuration service that this node knows")
            return
        body = self._gate.decode(now_ns, source, frame)
        if body is None:
            return
        if isinstance(body, ServiceStatus):
            cause = self._on_status(now_ns, source, body)
        elif isinstance(body, Candidacy):
            cause = self._on_candidacy(now_ns, source, body)
        else:
            cause = self._allegiance.fault_of_term(frame.view, self.member is not None) or self._on_word(now_ns, body)
            if cause is None:
                self._hear(now_ns, source)
        if cause is not None:
            self._gate.refuse_state(now_ns, source, frame, cause)

    def _hear(self, now_ns: int, source: Endpoint) -> None:
        """Note that the service speaks: stay with it, and postpone asking whether it is there."""
        self._allegiance.heard_ns = now_ns
        self._talk.on_answer(source)
        # Not at once: the message is handled in the life to which it was sent.
        self._may_end = self._wants_over
        if self.state is ClientState.JOINED:
            self._talk.timers.set("keepalive", now_ns + self._talk.spread(self.settings.keepalive_ns))

    def _on_status(self, now_ns: int, source: Endpoint, body: ServiceStatus) -> str | None:
        if body.term < self.term:
            return "tells of a service that was replaced"
        is_new = body.term > self.term
        lost = is_new and self.member is not None and not self._allegiance.is_of_its_history(body, self.epoch)
        service = self._allegiance.adopt(source, body)
        self._talk.learn(service, [Endpoint(each.host, each.port) for each in body.standbys])
        if not body.host:
            # Only from the service itself: others may pass its status on when it is gone.
            self._hear(now_ns, source)
        if lost and self.state is ClientState.JOINED:
            # This node followed another service too long: its epoch is one that this service never reached.
            self._become_removed(now_ns)
        elif is_new and self.state is ClientState.JOINED:
            self._talk.say("ack")
        return None

    def _on_candidacy(self, now_ns: int, source: Endpoint, body: Candidacy) -> str | None:
        if not self.is_service_silent(now_ns):
            return "asks for support while the service speaks"
        if body.epoch < self.epoch:
            return "asks for support and knows less than this node"
        granted = self._allegiance.support(body.round, source)
        if granted is None:
            return "asks for support in a round that is over"
        self._supports.append((source, Support(body.round, granted)))
        return None

    def _on_word(self, now_ns: int, body: ControlMessage) -> str | None:
        match body:
            case Welcome():
                return self._on_welcome(now_ns, body)
            case Removal():
                return self._on_removal(now_ns, body)
            case Probe():
                return self._on_probe(body)
            case Configuration():
                return self._on_configuration(now_ns, body)
            case _:
                return "not a message of the configuration service"

    def _on_welcome(self, now_ns: int, body: Welcome) -> str | None:
        if body.name != self._name:
            return "welcomes another process, or a former life of this one"
        member = Member(NodeId(body.node), Incarnation(body.incarnation))
        if self.state is ClientState.LEFT:
            # It was under way when we left: give it back, or the service would keep a member that does not exist.
            self._ghost = member
            self._talk.say("leave")
            return None
        if self.state is not ClientState.JOINING:
            return None if member == self.member else "welcomes as another member than before"
        self._become_joined(now_ns, member)
        return None

    def _on_removal(self, now_ns: int, body: Removal) -> str | None:
        if self.member is not None:
            if self.member != (body.node, body.incarnation):
                return "removes another life"
        elif self.state is not ClientState.JOINING or body.name != self._name:
            return "removes another process, or a former life of this one"
        if self.state is ClientState.LEAVING:
            self._become_left(now_ns)
        else:
            self._become_removed(now_ns)
        return None

    def _on_probe(self, body: Probe) -> str | None:
        if self.member != (body.node, body.incarnation) or self.state is not ClientState.JOINED:
            return "probes another life"
        self._talk.say("alive")
        return None

    def _on_configuration(self, now_ns: int, body: Configuration) -> str | None:
        if self.member != (body.node, body.incarnation) or self.state is not ClientState.JOINED:
            return "configures another life"
        if body.request > self._requests.number:
            return "answers a request that was never made"
        if body.base > self.epoch:
            return "tells changes after an epoch that this node does not have"
        if body.epoch <= self.epoch:
            # A repetition: our acknowledgement was lost.
            if body.epoch:
                self._talk.say("ack")
        elif (cause := self._assemble(body)) is not None:
            return cause
        # Not before its result is known: the next request must not overtake a configuration of which parts are missing.
        if body.epoch <= self.epoch and self._requests.on_applied(body.request):
            self._talk.answered()
            self._maybe_request(now_ns)
        return None

    def _assemble(self, body: Configuration) -> str | None:
        """Take a part of a new configuration; apply the whole when it is complete."""
        try:
            changes = self._assembly.configuration(body)
        except DecodeError as error:
            return str(error)
        if changes is None:
            return None
        self._changes.append(self._view.apply(body.base, body.epoch, changes))
        member = self.member
        assert member is not None
        self.own_region = next((each for each in self.regions.values() if member in each.members), None)
        self.groups = RangeSet() if self.own_region is None else self.own_region.groups_of(member)
        self._talk.say("ack")
        return None

    def _maybe_request(self, now_ns: int) -> None:
        """Request wanted groups that were not requested yet, unless a request is under way."""
        if self._requests.begin():
            self._talk.timers.cancel("gather")
            self._talk.ask(now_ns, "subscribe")

    # Time.

    def next_deadline_ns(self) -> int | None:
        """Return when something will be due."""
        if self._may_end and self.state is ClientState.JOINED:
            return self._allegiance.heard_ns
        return self._talk.timers.next_ns()

    def on_timer(self, now_ns: int) -> None:
        """Note what has become due; the frames are made in `make_datagrams`."""
        if self._may_end and self.state is ClientState.JOINED:
            self._become_removed(now_ns)
        talk = self._talk
        for what in talk.timers.take_due(now_ns):
            match what:
                case "gather":
                    self._maybe_request(now_ns)
                case "keepalive":
                    # From now on more often, until there is an answer; if none comes, also ask others than the service.
                    if self.is_service_silent(now_ns):
                        talk.try_next()
                    talk.say("ack")
                    talk.timers.set("keepalive", now_ns + talk.spread(self.settings.ping_ns))
                case "leave" if talk.attempts >= self.settings.leave_attempts_max:
                    self._become_left(now_ns)
                case _:
                    talk.ask_again(now_ns, elsewhere=self.member is None or self.is_service_silent(now_ns))

    # Output.

    def take_changes(self) -> list[Change]:
        """Return what happened since the last call, in order, and forget it."""
        changes, self._changes = self._changes, []
        return changes

    def make_datagrams(self, now_ns: int) -> list[Datagram]:
        """Make the frames that are due."""
        made = [self._datagram(now_ns, self._message(what)) for what in self._talk.take_due()]
        for member, silent_ns in self._reports.items():
            made.append(self._datagram(now_ns, FailureReport(*member, silent_ns)))
        self._reports.clear()
        for candidate, support in self._supports:
            made.append(self._datagram(now_ns, support, candidate))
        self._supports.clear()
        return made

    def _message(self, what: str) -> ControlMessage:
        match what:
            case "join":
                return Join(self._name, self._wanted, *self.endpoint)
            case "subscribe":
                assert self._requests.under_way is not None, "a request is due only while it is under way"
                return self._requests.under_way
            case "leave":
                return Leave()
            case "alive":
                return Alive()
            case _:
                return ConfigurationAck(self.epoch)

    def _datagram(self, now_ns: int, message: ControlMessage, destination: Endpoint | None = None) -> Datagram:
        sender = self.member or self._ghost or (0, 0)
        data = encode_control(Kind.MEMBERSHIP, self._gate.domain, *sender, 0, self.term, now_ns, message)
        return Datagram(destination or self._talk.destination, data, Priority.CONTROL)
