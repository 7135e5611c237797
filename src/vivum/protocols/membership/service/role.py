"""A node's role in the configuration service: it carries the service, a copy of its state, or neither.

*Serving*: all goes to the `ServiceMachine`. *Standby*: it keeps a copy of the state. When the service falls silent, for
the members too, it asks them for support and, with that of a majority, serves. *Bystander*: it tells nodes that take it
for the service where that is. Design note: `docs/design/membership.md`, "Standbys".

Invariants: it serves or has a copy, never both; a copy is of one term, and of this life of the node.
"""

from vivum.core.errors import DecodeError, UsageError
from vivum.core.ids import Endpoint, Member, NodeId
from vivum.core.machine import Command, Datagram, Effect, Priority
from vivum.protocols.membership.client.allegiance import ROUND_BITS, term_of
from vivum.protocols.membership.client.client import MembershipClient
from vivum.protocols.membership.service.machine import FIRST_TERM, ServiceMachine
from vivum.protocols.membership.service.standby_copy import ServiceCopy
from vivum.protocols.membership.service.state import ERA_BITS, ConfigurationService
from vivum.protocols.membership.settings import ServiceSettings
from vivum.wire.codec import Frame
from vivum.wire.control import encode_control
from vivum.wire.fields import ControlMessage
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind
from vivum.wire.standby import Candidacy, CopyAck, ServiceStatus, StateChanges, StateCopy, Succession, Support

SERVICE_NODE = NodeId(1_000_000)
"""The node id of a configuration service in a process of its own."""


class _Candidate:
    """A candidacy under way."""

    __slots__ = ("ask_ns", "round", "supporters", "was_denied")

    def __init__(self, round_: int, ask_ns: int) -> None:
        self.round = round_
        self.ask_ns = ask_ns
        self.supporters: set[Endpoint] = set()
        self.was_denied = False


class ServiceRole:
    """The service, a copy of it, or a pointer to it."""

    kinds = frozenset({Kind.MEMBERSHIP, Kind.REPLICA})
    commands: frozenset[type[Command]] = frozenset()
    transport = ""
    has_data = False

    def __init__(
        self,
        gate: Gate,
        client: MembershipClient | None = None,
        settings: ServiceSettings | None = None,
    ) -> None:
        """Begin as a bystander. Only a node with a `client` can become a standby."""
        self.settings = settings or ServiceSettings()
        self.serving: ServiceMachine | None = None
        self.copy = ServiceCopy(self.settings.parts_max)
        self._gate = gate
        self._client = client
        self._now_ns = 0
        self._known: ServiceStatus | None = None
        self._life: Member | None = None
        # The term of the service whose copy this is.
        self._term = 0
        self._service: Endpoint | None = None
        self._heard_ns = 0
        self._candidate: _Candidate | None = None
        self._datagrams: list[Datagram] = []
        self.effects: list[Effect] = []

    @property
    def term(self) -> int:
        """The highest known term."""
        followed = 0 if self._client is None else self._client.term
        known = 0 if self._known is None else self._known.term
        return max(self._term, followed, known, 0 if self.serving is None else self.serving.term)

    def begin(self, member: Member, round_: int, salt: int) -> None:
        """Carry a new service from now on: a domain's first in round 0, or in a later round after one was lost.

        Numbers of its round were never given before. `salt` tells apart services that begin in the same round, and
        earlier histories of the domain; 0 is for a domain that has only one.
        """
        self.forget()
        service = ConfigurationService(self.settings)
        service.begin_anew(round_, salt)
        term = term_of(round_, salt) or FIRST_TERM
        self.serving = ServiceMachine(member, self._gate, self.settings, term=term, service=service)

    def service(self) -> tuple[ConfigurationService, int] | None:
        """Return the carried service and its term, if there is one."""
        return None if self.serving is None else (self.serving.service, self.serving.term)

    def heard_since(self, since_ns: int) -> int:
        """Return how many lives the service has heard from since a time."""
        return 0 if self.serving is None else self.serving.heard_since(since_ns)

    def rouse(self, since_ns: int) -> None:
        """Ask lives that were silent since a time for a sign of life."""
        if self.serving is not None:
            self.serving.rouse(since_ns)

    def forget(self) -> None:
        """Drop the service or its copy, and what is known of its terms: the node follows another history."""
        self.serving = self._known = self._life = self._service = self._candidate = None
        self._term = 0
        self.copy.forget()

    def submit(self, now_ns: int, command: Command) -> None:  # noqa: ARG002
        """Refuse: the service takes its requests as frames."""
        raise UsageError(f"the configuration service takes no commands; {type(command).__name__} is for a node")

    def on_service_ended(self) -> None:
        """Note the service's farewell: do not wait until it is silent."""
        self._heard_ns = 0
        if self._client is not None:
            self._client.on_service_ended()

    # Frames.

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a frame: hand it to the service, keep the copy up to date, or tell where the service is."""
        self._now_ns = now_ns
        if self.serving is not None:
            self.serving.on_frame(now_ns, source, frame)
            if self.serving.superseded_by is not None:
                self._step_down(source, self.serving.superseded_by)
            return
        body = self._gate.decode(now_ns, source, frame)
        if body is None:
            return
        if frame.kind == Kind.REPLICA:
            cause = self._on_replica(source, frame.view, body)
        elif isinstance(body, Support):
            cause = self._on_support(source, body)
        else:
            cause = self._on_stray(source)
        if cause is not None:
            self._gate.refuse_state(now_ns, source, frame, cause)

    def _step_down(self, source: Endpoint, status: ServiceStatus) -> None:
        self.serving = None
        self._term = status.term
        if status.host:
            self._known = status
            self._send(source, Kind.REPLICA, status.term, CopyAck(0))

    def _on_replica(self, source: Endpoint, term: int, body: ControlMessage) -> str | None:
        if isinstance(body, Succession):
            status = body.status
            if status.term < self.term:
                return "tells of a service that was replaced"
            host, port = (status.host, status.port) if status.host else source
            self._known = ServiceStatus(status.term, host, port, status.standbys, status.ends)
            self._send(source, Kind.REPLICA, status.term, CopyAck(0))
            return None
        if isinstance(body, CopyAck):
            return "this node is not the configuration service"
        if term < self.term:
            known = self._status()
            if known is not None and Endpoint(known.host, known.port) != source:
                # The sender does not know that it was replaced.
                self._send(source, Kind.REPLICA, known.term, Succession(known))
            return "a copy of a service that was replaced"
        if self._client is None or self._client.member is None:
            return "this node has no life, and cannot be a standby"
        return self._on_copy(source, term, self._client.member, body)

    def _on_copy(self, source: Endpoint, term: int, life: Member, body: ControlMessage) -> str | None:
        if term > self._term or life != self._life:
            self.copy.forget()
        self._term, self._service, self._life = term, source, life
        self._heard_ns = self._now_ns
        self._candidate = None
        try:
            if isinstance(body, StateCopy):
                self.copy.on_copy(body)
            elif isinstance(body, StateChanges):
                self.copy.on_changes(body)
        except DecodeError as error:
            return str(error)
        if self.copy.service is not None or isinstance(body, StateChanges):
            self._send(source, Kind.REPLICA, term, CopyAck(self.copy.position))
        return None

    def _on_stray(self, source: Endpoint) -> str:
        """Answer a node that takes this one for the service: tell it where that is, if it is known and speaks."""
        status = self._status()
        if status is None:
            return "this node is not the configuration service, and does not know where that is"
        self._send(source, Kind.CONFIGURATION, status.term, status)
        return "this node is not the configuration service; told where that is"

    def _status(self) -> ServiceStatus | None:
        client = self._client
        if client is not None and client.member is not None and not client.is_service_silent(self._now_ns):
            return client.service_status
        return self._known

    # Taking over.

    def _on_support(self, source: Endpoint, body: Support) -> str | None:
        candidate, service = self._candidate, self.copy.service
        if candidate is None or service is None or body.round != candidate.round:
            return "supports a candidacy that is over"
        me = None if self._client is None else self._client.member
        if me is None or service.life_of(me) is None:
            return "supports a candidacy of a life that has ended"
        if not body.granted:
            candidate.was_denied = True
        elif any(life.endpoint == source for life in service.lives.values()):
            candidate.supporters.add(source)
            self._maybe_take_over(service)
        return None

    def _maybe_take_over(self, service: ConfigurationService) -> None:
        candidate, client = self._candidate, self._client
        assert candidate is not None
        assert client is not None
        # Counting ourselves: more than half of all.
        if 2 * (len(candidate.supporters) + 1) <= len(service.lives):
            return
        member, before = client.member, self._service
        assert member is not None
        assert before is not None
        term = term_of(candidate.round, member.node)
        position = self.copy.position
        self.copy.forget()
        self._candidate = None
        self._term = term
        # With the settings of the original service: copies of one history must decide alike.
        self.settings = service.settings
        self.serving = ServiceMachine(
            member, self._gate, service.settings, term=term, service=service, position=position
        )
        alive = frozenset({*candidate.supporters, client.endpoint})
        self.serving.take_over(self._now_ns, candidate.round, before, alive)

    def _stand(self) -> None:
        """Check whether the service is gone, and this standby should take over."""
        client, service = self._client, self.copy.service
        assert client is not None
        assert service is not None
        now_ns, settings = self._now_ns, service.settings
        me = service.life_of(client.member) if client.member is not None else None
        if me is None or client.term > self._term:
            # This life has ended, or another standby took over.
            self.copy.forget()
            self._candidate = None
            return
        if not client.is_service_silent(now_ns):
            self._candidate = None
            if now_ns - self._heard_ns >= 4 * settings.takeover_after_ns:
                # The service is alive, and keeps its copies elsewhere.
                self.copy.forget()
            return
        rank = sum(life.age < me.age for life in service.lives.values())
        patience_ns = settings.takeover_after_ns + min(rank, 8) * 2 * settings.candidacy_ns
        if now_ns - self._heard_ns < patience_ns:
            return
        candidate = self._candidate
        if candidate is None or (candidate.was_denied and now_ns >= candidate.ask_ns):
            last = 0 if candidate is None else candidate.round
            round_ = max(service.epoch >> ERA_BITS, self._term >> ROUND_BITS, client.supported_round, last) + 1
            candidate = self._candidate = _Candidate(round_, now_ns)
            if not client.support(now_ns, round_, service.epoch, client.endpoint):
                candidate.was_denied = True
        if now_ns >= candidate.ask_ns:
            candidate.ask_ns = now_ns + settings.candidacy_ns * (1 + min(rank, 3))
            for life in service.lives.values():
                if life is not me and life.endpoint not in candidate.supporters:
                    self._send(life.endpoint, Kind.CONFIGURATION, self._term, Candidacy(candidate.round, service.epoch))
            if not candidate.was_denied:
                self._maybe_take_over(service)

    # Time.

    def next_deadline_ns(self) -> int | None:
        """Return when something will be due."""
        if self.serving is not None:
            return self.serving.next_deadline_ns()
        if self.copy.service is None or self._client is None:
            return None
        settings = self.copy.service.settings
        return max(self._heard_ns + settings.takeover_after_ns, self._now_ns + settings.candidacy_ns // 2)

    def on_timer(self, now_ns: int) -> None:
        """Do what is due."""
        self._now_ns = now_ns
        if self.serving is not None:
            self.serving.on_timer(now_ns)
        elif (copy := self.copy.service) is not None and now_ns - self._heard_ns >= copy.settings.takeover_after_ns:
            self._stand()

    # Output.

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        """Make the frames that are due. All are control frames."""
        made = [] if self.serving is None else self.serving.make_frames(room_bytes)
        if self._datagrams:
            made += self._datagrams
            self._datagrams = []
        return made

    def _send(self, destination: Endpoint, kind: Kind, term: int, message: ControlMessage) -> None:
        sender = (0, 0) if self._client is None or self._client.member is None else self._client.member
        data = encode_control(kind, self._gate.domain, *sender, 0, term, self._now_ns, message)
        self._datagrams.append(Datagram(destination, data, Priority.CONTROL))
