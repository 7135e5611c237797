"""The speaker of the configuration service: frames, time, and who was told what.

Design note: `docs/design/membership.md`. Decides nothing about membership but when a batch closes and when a suspect
counts as dead; the rest is `service`, on which it acts through a log that standbys repeat. Like every machine it notes
*that* something is due and makes the frame in `take_output`, so a configuration that is repeated tells the newest
epoch.

Invariants: every current life has a session; a configuration is repeated until the epoch that concerns its life is
acknowledged, and then no more; what a standby that counts does not have is told to nobody.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vivum.core.deadlines import Deadlines
from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.machine import Command, Datagram, Effect, Priority
from vivum.protocols.membership.assembly import cut, part_bytes
from vivum.protocols.membership.client.allegiance import ROUND_BITS
from vivum.protocols.membership.service.log import ServiceLog
from vivum.protocols.membership.service.replication import Replication
from vivum.protocols.membership.service.state import ConfigurationService, Life
from vivum.protocols.membership.service.suspicion import Suspicions, Verdict
from vivum.protocols.membership.settings import ServiceSettings
from vivum.wire.codec import Frame
from vivum.wire.control import encode_control
from vivum.wire.fields import ControlMessage
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind
from vivum.wire.membership import (
    Alive,
    ConfigurationAck,
    FailureReport,
    Join,
    Leave,
    Probe,
    Removal,
    Subscribe,
    Welcome,
    encode_changes,
)
from vivum.wire.standby import CopyAck, ServiceStatus, Succession

FIRST_TERM = 1
"""The term of the service that a domain begins with; later ones are made of a round and of the node that won it."""


@dataclass(slots=True, eq=False)
class Session:
    """What the service knows of its talk with one life. Lost with the machine, and then found out again."""

    life: Life
    heard_ns: int
    knows_term: bool = True
    """It has spoken to this service, and not only to the one before."""

    resend_ns: int = 0


Timer = tuple[str, Member | None]
"""What is due: "batch", "sweep" or "standbys" for all; "resend", "probe" or "status" for one life."""


ContentKey = tuple[int, int, tuple[tuple[int, int], ...]]
"""What decides the content of a configuration: region, base, region views that are over."""


class ServiceMachine:
    """The configuration service as a protocol that a node can compose."""

    kinds = frozenset({Kind.MEMBERSHIP, Kind.REPLICA})
    commands: frozenset[type[Command]] = frozenset()
    transport = ""
    has_data = False

    def __init__(
        self,
        member: Member,
        gate: Gate,
        settings: ServiceSettings | None = None,
        *,
        term: int = FIRST_TERM,
        service: ConfigurationService | None = None,
        position: int = 0,
    ) -> None:
        """Begin with nothing; or, as a standby that takes over, with a copy of the state at a position of the log."""
        self.member = member
        self.settings = settings or ServiceSettings()
        self.term = term
        self.service = service or ConfigurationService(self.settings)
        self.superseded_by: ServiceStatus | None = None
        """The service of a higher term that this one has met: this one has stepped down, and is silent."""

        self.effects: list[Effect] = []
        self._gate = gate
        self._now_ns = 0
        self._log = ServiceLog(self.service, self.settings.log_entries_max, position)
        # Of the last batch: what came of it is told when all standbys have it.
        self._batch_position = 0
        self._batch_waits = False
        self._former_services: dict[Endpoint, None] = {}
        self._announcements: list[Endpoint] = []
        # Since when less than half of the lives are heard.
        self._short_since_ns: int | None = None
        self._sessions: dict[Member, Session] = {}
        self._suspicions = Suspicions(self.settings)
        self._timers: Deadlines[Timer] = Deadlines()
        self._part_bytes = part_bytes(self.settings.frame_bytes_max)
        self._replication = Replication(self._log, self.settings, self._part_bytes, member)
        # Due now; dictionaries serve as ordered sets.
        self._answers: dict[Member, None] = {}
        self._configurations: dict[Member, None] = {}
        # Each with the position that standbys must have before it goes out.
        self._replies: list[tuple[int, Endpoint, ControlMessage]] = []
        self._on_timer_of: dict[str, Callable[..., None]] = {
            "batch": self._on_batch_due,
            "sweep": self._on_sweep_due,
            "resend": self._on_resend_due,
            "probe": self._on_probe_due,
            "status": self._on_status_due,
            "standbys": self._on_standbys_due,
        }

    def take_over(self, now_ns: int, round_: int, before: Endpoint, alive: frozenset[Endpoint]) -> None:
        """Take over from a silent service. Lives that did not show a sign of life are probed."""
        self._now_ns = now_ns
        self._log.take_over(round_)
        self._former_services[before] = None
        for life in self.service.lives.values():
            member = life.member
            self._sessions[member] = Session(life, now_ns, knows_term=False)
            self._timers.set(("status", member), now_ns)
            self._configurations[member] = None
            if life.endpoint not in alive:
                self._suspect(member)
        if self.service.has_changes:
            self._open_batch()
        self._timers.set(("sweep", None), now_ns + self.settings.silence_ns_max // 4)
        self._timers.set(("standbys", None), now_ns)

    def submit(self, now_ns: int, command: Command) -> None:  # noqa: ARG002
        """Refuse: the service takes its requests as frames."""
        raise UsageError(f"the configuration service takes no commands; {type(command).__name__} is for a node")

    # Frames.

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a frame of kind MEMBERSHIP: refuse what makes no sense now, answer former lives, then act."""
        self._now_ns = now_ns
        body = self._gate.decode(now_ns, source, frame)
        if body is None:
            return
        member = Member(NodeId(frame.sender), Incarnation(frame.incarnation))
        if self.superseded_by is not None:
            cause: str | None = "this service has stepped down"
        elif frame.kind == Kind.REPLICA:
            cause = self._on_replica(source, member, frame.view, body)
        elif frame.view > self.term:
            if self._is_successor(frame.view, member):
                self._step_down(ServiceStatus(frame.view, "", 0, (), ()))
                cause = "speaks of a later term than this one; stepped down"
            else:
                # It had its life from a service of another history; discovery tells which of the two stays.
                cause = "speaks of a service that knows nothing of this one"
        elif isinstance(body, Join):
            cause = self._on_join(source, body)
        elif frame.view < self.term:
            # The former service may have told it another history: first it must know us.
            self._reply_at_once(source, self._status())
            cause = "does not know this term; told so"
        else:
            cause = self._on_request(source, member, body)
        if cause is not None:
            self._gate.refuse_state(now_ns, source, frame, cause)

    def _on_replica(self, source: Endpoint, member: Member, term: int, body: ControlMessage) -> str | None:
        if isinstance(body, Succession) and self._is_successor(body.status.term, member):
            status = body.status
            host, port = (status.host, status.port) if status.host else source
            self._step_down(ServiceStatus(status.term, host, port, status.standbys, status.ends))
            return None
        if not isinstance(body, CopyAck) or term < self.term:
            return "not a word of a standby of this service"
        if source in self._former_services:
            del self._former_services[source]
            return None
        cause = self._replication.on_ack(self._now_ns, member, body.position)
        if self._batch_waits and self._is_settled:
            self._batch_waits = False
            self._on_batch_due(None)
        return cause

    def _is_successor(self, term: int, member: Member) -> bool:
        """Return whether a term continues this one: a later round, reported by a life of this service."""
        return term >> ROUND_BITS > self.term >> ROUND_BITS and self.service.knew(member)

    def _step_down(self, status: ServiceStatus) -> None:
        self.superseded_by = status
        self._replies.clear()
        self._configurations.clear()
        self._timers = Deadlines()

    @property
    def _is_settled(self) -> bool:
        """Every standby that counts has what came of the last batch."""
        return self._replication.committed >= self._batch_position

    def _status(self) -> ServiceStatus:
        return ServiceStatus(self.term, "", 0, self._replication.addresses, tuple(self.service.ends))

    def _reply(self, endpoint: Endpoint, message: ControlMessage) -> None:
        self._replies.append((self._log.position, endpoint, message))

    def _reply_at_once(self, endpoint: Endpoint, message: ControlMessage) -> None:
        self._replies.append((0, endpoint, message))

    def _on_join(self, source: Endpoint, body: Join) -> str | None:
        endpoint = Endpoint(body.host, body.port)
        if endpoint != source:
            # A join ends the former life on its endpoint: nobody may do that for another.
            return "joins with an endpoint that is not its own"
        if self._is_short and not self.service.has_endpoint(endpoint):
            # They would make a majority of those who are here, and the others may be one that goes on without us.
            return "this service hears less than half of its members, and takes no new ones"
        life = self._log.join(body)
        if self.service.has_changes:
            self._open_batch()
        if life is None:
            former = self.service.former_life(body.name)
            if former is None:
                return f"nodes_max={self.settings.nodes_max} nodes are in the domain"
            self._reply(endpoint, Removal(body.name, *former))
            return "the life of this process has ended"
        if life.member not in self._sessions:
            if not self._sessions:
                self._timers.set(("sweep", None), self._now_ns + self.settings.silence_ns_max // 4)
            self._sessions[life.member] = Session(life, self._now_ns)
            self._end_ended_sessions()
            self._timers.set_earlier(("standbys", None), self._now_ns)
        self._reply(life.endpoint, Welcome(body.name, *life.member))
        self._reply_at_once(life.endpoint, self._status())
        return None

    def _on_request(self, source: Endpoint, member: Member, body: ControlMessage) -> str | None:
        session = self._sessions.get(member)
        if session is None:
            self._reply(source, Removal(self.service.name_of_former(member), *member))
            return "not a current life; told so"
        if source != session.life.endpoint:
            return "not from the endpoint of its sender"
        session.heard_ns = self._now_ns
        session.knows_term = True
        if self._suspicions.clear(member):
            self._timers.cancel(("probe", member))
        match body:
            case Subscribe():
                return self._on_subscribe(session, body)
            case ConfigurationAck(epoch):
                return self._on_ack(session, epoch)
            case FailureReport(node, incarnation, _):
                return self._on_report(Member(NodeId(node), Incarnation(incarnation)), member)
            case Leave():
                self._end(session)
                self._reply(source, Removal(session.life.name, *member))
            case Alive():
                pass
        return None

    def _on_subscribe(self, session: Session, body: Subscribe) -> str | None:
        if not self._log.subscribe(session.life, body):
            return "a request out of order, or for too many ranges of groups"
        # The answer goes with the batch, also if nothing changed: it tells that the request was applied.
        self._answers[session.life.member] = None
        self._open_batch()
        return None

    def _on_ack(self, session: Session, epoch: int) -> str | None:
        if epoch > self.service.epoch:
            return "acknowledges an epoch that never was"
        member = session.life.member
        if not self._log.acknowledge(session.life, epoch):
            # A sign of life: it wants one of ours.
            self._reply_at_once(session.life.endpoint, self._status())
        if session.life.acknowledged >= self.service.concern_epoch(session.life):
            self._timers.cancel(("resend", member))
            session.resend_ns = 0
        elif ("resend", member) not in self._timers and member not in self._configurations:
            self._configurations[member] = None
        return None

    def _on_report(self, suspect: Member, reporter: Member) -> str | None:
        if suspect not in self._sessions:
            # It was dropped, and the reporter will learn it from its next configuration.
            return "reports a life that is not a current one"
        if suspect == reporter:
            return "reports itself, and so is alive"
        self._suspect(suspect)
        return None

    def _suspect(self, member: Member) -> None:
        if self._suspicions.begin(member, self._now_ns):
            self._timers.set(("probe", member), self._now_ns)

    def _drop(self, session: Session) -> None:
        """End a life that does not answer, and tell it so, in case it lives after all."""
        self._gate.counters.members_dropped += 1
        self._end(session)
        self._reply(session.life.endpoint, Removal(session.life.name, *session.life.member))

    def _end(self, session: Session) -> None:
        self._log.leave(session.life)
        self._open_batch()
        self._forget(session.life.member)

    def _forget(self, member: Member) -> None:
        del self._sessions[member]
        self._suspicions.clear(member)
        self._answers.pop(member, None)
        self._configurations.pop(member, None)
        for name in ("resend", "probe", "status"):
            self._timers.cancel((name, member))

    def _end_ended_sessions(self) -> None:
        """Forget sessions of lives that a new process on the same endpoint ended."""
        for member in [each for each in self._sessions if self.service.life_of(each) is None]:
            self._forget(member)

    def rouse(self, since_ns: int) -> None:
        """Ask all lives that were not heard since then for a sign of life."""
        for member, session in self._sessions.items():
            if session.heard_ns < since_ns:
                self._reply_at_once(session.life.endpoint, Probe(*member))

    def heard_since(self, since_ns: int) -> int:
        """Count the lives from which something was heard since then."""
        return sum(1 for session in self._sessions.values() if session.heard_ns >= since_ns)

    # Time.

    def next_deadline_ns(self) -> int | None:
        """Return when something will be due."""
        if self.superseded_by is not None:
            return None
        times = (self._timers.next_ns(), self._replication.next_deadline_ns(self._now_ns))
        return min((each for each in times if each is not None), default=None)

    def on_timer(self, now_ns: int) -> None:
        """Do what is due."""
        self._now_ns = now_ns
        for name, member in self._timers.take_due(now_ns):
            self._on_timer_of[name](member)

    def _open_batch(self) -> None:
        if ("batch", None) not in self._timers:
            self._timers.set(("batch", None), self._now_ns + self.settings.batch_ns)

    def _on_batch_due(self, _: None) -> None:
        if not self._is_settled:
            # What the last one changed was not told yet.
            self._batch_waits = True
            return
        concerned = self._log.close_batch()
        self._batch_position = self._log.position
        for life in self.service.overdue() if self._may_drop() else ():
            # It may speak and yet not take what it is told: others must not wait for it for ever.
            self._drop(self._sessions[life.member])
        for member in concerned:
            if member not in self._sessions:
                continue
            # A node that does not acknowledge is told the newest when its next repetition is due, not with each epoch.
            if self._sessions[member].resend_ns <= self.settings.resend_ns_min:
                self._configurations[member] = None
        self._configurations |= self._answers
        self._answers.clear()

    def _on_resend_due(self, member: Member) -> None:
        self._configurations[member] = None

    def _on_sweep_due(self, _: None) -> None:
        """Suspect those from which nothing was heard for long: nobody else may watch them."""
        for member, session in self._sessions.items():
            if self._now_ns - session.heard_ns > self.settings.silence_ns_max:
                self._suspect(member)
        if self._sessions:
            self._timers.set(("sweep", None), self._now_ns + self.settings.silence_ns_max // 4)

    def _on_probe_due(self, member: Member) -> None:
        session = self._sessions[member]
        verdict, next_ns = self._suspicions.on_probe_due(member, self._now_ns)
        if verdict is Verdict.DEAD and self._may_drop():
            self._drop(session)
            return
        if verdict is Verdict.DEAD:
            next_ns = self._now_ns + self.settings.probe_interval_ns
        self._reply_at_once(session.life.endpoint, Probe(*member))
        self._timers.set(("probe", member), next_ns)

    @property
    def _is_short(self) -> bool:
        """Less than half of the lives are heard: this may be the smaller side of a split."""
        return not self._replication.is_retired and 2 * len(self._suspicions) > len(self._sessions)

    def _may_drop(self) -> bool:
        """Return whether silent members may be dropped: not soon by a service that hears few.

        Else a standby of the smaller side could find itself in a majority there, and give numbers that the larger
        side gives too. When it has waited for long, the service goes on without standbys.
        """
        if not self._is_short:
            self._short_since_ns = None
            return True
        if self._short_since_ns is None:
            self._short_since_ns = self._now_ns
        if self._now_ns - self._short_since_ns < self.settings.minority_after_ns:
            return False
        self._replication.retire()
        return True

    def _on_status_due(self, member: Member) -> None:
        """Tell a life again that another service serves it now, until it answers."""
        session = self._sessions[member]
        if not session.knows_term:
            self._reply_at_once(session.life.endpoint, self._status())
            self._timers.set(("status", member), self._now_ns + self.settings.probe_interval_ns)

    def _on_standbys_due(self, _: None) -> None:
        self._replication.choose(self._now_ns)
        self._timers.set(("standbys", None), self._now_ns + self.settings.standby_beat_ns)
        self._announcements += self._former_services
        if self._batch_waits and self._is_settled:
            self._batch_waits = False
            self._on_batch_due(None)

    # Output.

    def make_frames(self, room_bytes: int) -> list[Datagram]:  # noqa: ARG002
        """Make the frames that are due. All is control: it does not wait for room."""
        output: list[Datagram] = []
        if self.superseded_by is not None:
            return output
        self._serve_standbys(output)
        if self._replies:
            committed = self._replication.committed
            held = []
            for reply in self._replies:
                if reply[0] <= committed:
                    self._send(output, reply[1], reply[2])
                else:
                    held.append(reply)
            self._replies = held
        if not self._is_settled or not self._configurations:
            return output
        due, self._configurations = self._configurations, {}
        # Members of one region at one epoch, with the same past, are told the same: made once.
        made: dict[ContentKey, bytes] = {}
        for member in due:
            self._send_configuration(output, self._sessions[member], made)
        return output

    def _send_configuration(self, output: list[Datagram], session: Session, made: dict[ContentKey, bytes]) -> None:
        service, settings, life = self.service, self.settings, session.life
        base = service.base_for(life)
        region = service.regions.region_of(life.member)
        passed = tuple(life.passed)
        key = (0 if region is None else region.region, base, tuple((each.region, each.view) for each in passed))
        content = made.get(key)
        if content is None:
            content = made[key] = encode_changes(service.changes_for(region, base, passed))
        if len(content) > settings.parts_max * self._part_bytes:
            return
        for part in cut(life.member, life.answered, base, service.epoch, content, self._part_bytes):
            self._send(output, life.endpoint, part)
        if life.acknowledged < service.concern_epoch(life):
            session.resend_ns = min(max(2 * session.resend_ns, settings.resend_ns_min), settings.resend_ns_max)
            self._timers.set(("resend", life.member), self._now_ns + session.resend_ns)

    def _serve_standbys(self, output: list[Datagram]) -> None:
        replication = self._replication
        for endpoint, message in replication.make_messages(self._now_ns):
            self._send(output, endpoint, message, Kind.REPLICA)
        for endpoint in self._announcements:
            self._send(output, endpoint, Succession(self._status()), Kind.REPLICA)
        self._announcements.clear()
        if replication.is_list_new:
            replication.is_list_new = False
            status = self._status()
            for session in self._sessions.values():
                self._send(output, session.life.endpoint, status)

    def _send(
        self, output: list[Datagram], endpoint: Endpoint, message: ControlMessage, kind: Kind = Kind.CONFIGURATION
    ) -> None:
        gate = self._gate
        data = encode_control(kind, gate.domain, *self.member, 0, self.term, self._now_ns, message)
        output.append(Datagram(endpoint, data, Priority.CONTROL))
