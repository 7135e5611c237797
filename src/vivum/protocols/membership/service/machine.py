"""The speaker of the configuration service, at the leader of its log: frames, time, and who was told what.

Design note: `docs/design/membership.md`. It decides when a batch closes and when a suspect counts as dead, and proposes
that as commands; what members ask for it proposes too. It tells what commands came to when they are applied, and so
committed: nothing else is ever published. All that it keeps besides is soft: the next leader finds it out again.

Like every machine it notes *that* something is due and makes the frame in `make_frames`, so a configuration that is
repeated tells the newest epoch.

Invariants: every current life has a session; a configuration is repeated until the epoch that concerns its life is
acknowledged, and then no more.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vivum.core.deadlines import Deadlines
from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.machine import Datagram, Priority
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.assembly import cut, part_bytes
from vivum.protocols.membership.service.application import Applied, ReplicatedDomain, command
from vivum.protocols.membership.service.state import ConfigurationService, Life
from vivum.protocols.membership.service.suspicion import Suspicions, Verdict
from vivum.wire.codec import Frame
from vivum.wire.control import encode_control
from vivum.wire.directory import TopicEntry
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
from vivum.wire.service_log import BatchClosed, LogAct, ReplicaAddress, ServiceStatus, TopicsCreated

GREETINGS_MAX = 3
"""A life that has not answered the first word of a new leader after this many is put to the test."""


@dataclass(slots=True, eq=False)
class Session:
    """What the speaker knows of its talk with one life."""

    life: Life
    heard_ns: int
    knows_term: bool = True
    """It has spoken to this leader, and not only to the one before."""

    greetings: int = 0
    acknowledged: int = 0
    """The epoch up to which its acknowledgement was proposed."""

    request: int = 0
    """The number of its last request that was proposed."""

    is_ending: bool = False
    """Its end was proposed."""

    resend_ns: int = 0


Timer = tuple[str, Member | None]
"""What is due: "batch" or "sweep" for all; "resend", "probe" or "greet" for one life."""


ContentKey = tuple[int, int, tuple[tuple[int, int], ...]]
"""What decides the content of a configuration: region, base, region views that are over."""


class ServiceMachine:
    """Speaks for the replicated state while its replica leads a term."""

    def __init__(
        self,
        now_ns: int,
        member: Member,
        gate: Gate,
        state: ReplicatedDomain,
        history: int,
        term: int,
        replicas: Callable[[], tuple[ReplicaAddress, ...]],
    ) -> None:
        """Begin, with a state that has all that was committed before this term; greet everybody in it.

        `member` names the speaker in headers. `replicas` tells where the replicas are.
        """
        self.member = member
        self.state = state
        self.settings = state.service.settings
        self.history = history
        self.term = term
        self.proposals: list[bytes] = []
        """Commands to be appended to the log, in this order. The owner takes them out."""

        self.creations_applied = 0
        """How many of the commands that `create_topics` proposed are applied."""

        self.gone_replicas: set[int] = set()
        """Replicas whose life ended in this term."""

        self._gate = gate
        self._replicas = replicas
        self._now_ns = now_ns
        self._sessions: dict[Member, Session] = {}
        self._joining: set[str] = set()
        # Who left while its replica was one of the log: told when it is not any more.
        self._departing: dict[Member, Life] = {}
        self._suspicions = Suspicions(self.settings)
        self._timers: Deadlines[Timer] = Deadlines()
        self._part_bytes = part_bytes(self.settings.frame_bytes_max)
        self._is_closing = False
        self._creations = 0
        # Due now; dictionaries serve as ordered sets.
        self._answers: dict[Member, None] = {}
        self._configurations: dict[Member, None] = {}
        self._replies: list[tuple[Endpoint, ControlMessage]] = []
        self._on_timer_of: dict[str, Callable[..., None]] = {
            "batch": self._on_batch_due,
            "sweep": self._on_sweep_due,
            "resend": self._on_resend_due,
            "probe": self._on_probe_due,
            "greet": self._on_greeting_due,
        }
        for life in self.service.lives.values():
            self._begin_session(life, knows_term=False)
            self._timers.set(("greet", life.member), now_ns)
            self._configurations[life.member] = None
        if self.service.has_changes:
            self._open_batch()

    @property
    def service(self) -> ConfigurationService:
        """The committed state."""
        return self.state.service

    def _propose(self, act: LogAct, member: tuple[int, int] = (0, 0)) -> None:
        self.proposals.append(command(act, member))

    def _begin_session(self, life: Life, *, knows_term: bool) -> None:
        if not self._sessions:
            self._timers.set(("sweep", None), self._now_ns + self.settings.silence_ns_max // 4)
        self._sessions[life.member] = Session(
            life, self._now_ns, knows_term, acknowledged=life.acknowledged, request=life.request
        )

    # Frames.

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a frame of kind MEMBERSHIP: refuse what makes no sense now, answer former lives, then act."""
        self._now_ns = now_ns
        body = self._gate.decode(now_ns, source, frame)
        if body is None:
            return
        member = Member(NodeId(frame.sender), Incarnation(frame.incarnation))
        cause: str | None
        if isinstance(body, Join) and frame.region in (0, self.history):
            cause = self._on_join(source, body)
        elif frame.region != self.history:
            # If this history went on from that one, the node learns so.
            self._reply(source, self.status())
            cause = "of another history than this service; told so"
        elif frame.view > self.term:
            cause = "follows a later leader than this one"
        elif frame.view < self.term:
            self._reply(source, self.status())
            cause = "does not know this term; told so"
        else:
            cause = self._on_request(source, member, body)
        if cause is not None:
            self._gate.refuse_state(now_ns, source, frame, cause)

    def status(self) -> ServiceStatus:
        """Return the word by which this leader makes itself known."""
        return ServiceStatus("", 0, self._replicas(), self.state.parent, self.state.parent_epoch)

    def _reply(self, endpoint: Endpoint, message: ControlMessage) -> None:
        self._replies.append((endpoint, message))

    def _on_join(self, source: Endpoint, body: Join) -> str | None:
        endpoint = Endpoint(body.host, body.port)
        if endpoint != source:
            # A join ends the former life on its endpoint: nobody may do that for another.
            return "joins with an endpoint that is not its own"
        life = self.service.life_named(body.name)
        if life is not None:
            self._welcome(life)
            return None
        former = self.service.former_life(body.name)
        if former is not None:
            self._reply(endpoint, Removal(body.name, *former))
            return "the life of this process has ended"
        if len(self.service.lives) >= self.settings.nodes_max and not self.service.has_endpoint(endpoint):
            return f"nodes_max={self.settings.nodes_max} nodes are in the domain"
        if body.name not in self._joining:
            self._joining.add(body.name)
            self._propose(body)
        return None

    def _welcome(self, life: Life) -> None:
        self._reply(life.endpoint, Welcome(life.name, *life.member))
        self._reply(life.endpoint, self.status())

    def _on_request(self, source: Endpoint, member: Member, body: ControlMessage) -> str | None:
        session = self._sessions.get(member)
        if session is None:
            if member in self._departing:
                return "has left; told when its replica is out of the log"
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
                self._propose_end(session)
            case Alive():
                pass
        return None

    def _on_subscribe(self, session: Session, body: Subscribe) -> str | None:
        life = session.life
        if body.request <= life.request:
            # The answer goes with a batch: it tells that the request was applied.
            self._answers[life.member] = None
            self._open_batch()
        elif body.request > session.request:
            add, remove = RangeSet.from_bounds(body.add), RangeSet.from_bounds(body.remove)
            if not self.service.takes(life, body.request, add, remove):
                return "a request out of order, or for too many ranges of groups"
            session.request = body.request
            self._propose(body, life.member)
        return None

    def _on_ack(self, session: Session, epoch: int) -> str | None:
        if epoch > self.service.epoch:
            return "acknowledges an epoch that never was"
        if epoch > session.acknowledged:
            session.acknowledged = epoch
            self._propose(ConfigurationAck(epoch), session.life.member)
        elif epoch <= session.life.acknowledged:
            # A sign of life: it wants one of ours.
            self._reply(session.life.endpoint, self.status())
        self._look_whether_told(session)
        return None

    def _look_whether_told(self, session: Session) -> None:
        """Stop repeating what a life has acknowledged; begin again where it stays behind."""
        member = session.life.member
        if session.acknowledged >= self.service.concern_epoch(session.life):
            self._timers.cancel(("resend", member))
            session.resend_ns = 0
        elif ("resend", member) not in self._timers and member not in self._configurations:
            self._configurations[member] = None

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
        """Propose the end of a life that does not answer."""
        if not session.is_ending:
            self._gate.counters.members_dropped += 1
        self._propose_end(session)

    def _propose_end(self, session: Session) -> None:
        if not session.is_ending:
            session.is_ending = True
            self._propose(Leave(), session.life.member)

    def _forget(self, member: Member) -> None:
        self._sessions.pop(member, None)
        self._suspicions.clear(member)
        self._answers.pop(member, None)
        self._configurations.pop(member, None)
        for name in ("resend", "probe", "greet"):
            self._timers.cancel((name, member))

    # What others ask of it.

    def rouse(self, since_ns: int) -> None:
        """Ask all lives that were not heard since then for a sign of life."""
        for member, session in self._sessions.items():
            if session.heard_ns < since_ns:
                self._reply(session.life.endpoint, Probe(*member))

    def heard_since(self, since_ns: int) -> int:
        """Count the lives from which something was heard since then."""
        return sum(1 for session in self._sessions.values() if session.heard_ns >= since_ns)

    def on_refused(self, now_ns: int, endpoint: Endpoint) -> None:
        """Drop the life at an endpoint that no process has: its computer says so."""
        self._now_ns = now_ns
        for session in [each for each in self._sessions.values() if each.life.endpoint == endpoint]:
            self._drop(session)

    def answers(self, life: Life) -> bool:
        """Return whether a life is not under test, and has spoken to this leader lately."""
        session = self._sessions.get(life.member)
        if session is None or not session.knows_term or life.member in self._suspicions:
            return False
        return self._now_ns - session.heard_ns < self.settings.replica_silence_ns

    def create_topics(self, entries: tuple[TopicEntry, ...]) -> int:
        """Propose topics. Return what `creations_applied` is when that is applied."""
        self._propose(TopicsCreated(entries))
        self._creations += 1
        return self._creations

    # What was applied.

    def on_applied(self, now_ns: int, applied: list[Applied]) -> None:
        """Tell what commands came to, whoever proposed them."""
        self._now_ns = now_ns
        for each in applied:
            match each.act:
                case Join():
                    self._on_joined(each.act, each.life)
                case Subscribe():
                    self._answers[each.member] = None
                    self._open_batch()
                case ConfigurationAck():
                    if each.member in self._sessions:
                        self._look_whether_told(self._sessions[each.member])
                case Leave():
                    assert each.life is not None
                    self._on_ended(each.life)
                case TopicsCreated():
                    self.creations_applied += 1
                case BatchClosed():
                    self._on_closed(each.concerned or [])

    def _on_joined(self, body: Join, life: Life | None) -> None:
        self._joining.discard(body.name)
        if self.service.has_changes:
            self._open_batch()
        if life is None:
            return
        if life.member not in self._sessions:
            self._begin_session(life, knows_term=True)
            # A new process on an endpoint has ended the life that was there.
            for former in [each.life for each in self._sessions.values() if each.life.endpoint == life.endpoint]:
                if former is not life:
                    self.gone_replicas.add(former.replica)
                    self._forget(former.member)
        self._welcome(life)

    def _on_ended(self, life: Life) -> None:
        self.gone_replicas.add(life.replica)
        self._open_batch()
        self._forget(life.member)
        self._departing[life.member] = life

    def tell_departed(self, replicas: set[int]) -> None:
        """Tell those who left or were dropped, except who must stay until its replica is out of the log."""
        for member, life in [pair for pair in self._departing.items() if pair[1].replica not in replicas]:
            del self._departing[member]
            self._reply(life.endpoint, Removal(life.name, *member))

    def _on_closed(self, concerned: list[Member]) -> None:
        self._is_closing = False
        if self.service.has_changes:
            self._open_batch()
        for life in self.service.overdue():
            # It may speak and yet not take what it is told: others must not wait for it for ever.
            if life.member in self._sessions:
                self._drop(self._sessions[life.member])
        for member in concerned:
            # A node that does not acknowledge is told the newest when its next repetition is due, not with each epoch.
            if member in self._sessions and self._sessions[member].resend_ns <= self.settings.resend_ns_min:
                self._configurations[member] = None
        self._configurations |= {member: None for member in self._answers if member in self._sessions}
        self._answers.clear()

    # Time.

    def next_deadline_ns(self) -> int | None:
        """Return when something will be due."""
        return self._timers.next_ns()

    def on_timer(self, now_ns: int) -> None:
        """Do what is due."""
        self._now_ns = now_ns
        for name, member in self._timers.take_due(now_ns):
            self._on_timer_of[name](member)

    def _open_batch(self) -> None:
        if not self._is_closing and ("batch", None) not in self._timers:
            self._timers.set(("batch", None), self._now_ns + self.settings.batch_ns)

    def _on_batch_due(self, _: None) -> None:
        self._is_closing = True
        self._propose(BatchClosed())

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
        if verdict is Verdict.DEAD:
            self._drop(session)
            next_ns = self._now_ns + self.settings.probe_interval_ns
        self._reply(session.life.endpoint, Probe(*member))
        self._timers.set(("probe", member), next_ns)

    def _on_greeting_due(self, member: Member) -> None:
        """Tell a life that this replica leads now, until it answers."""
        session = self._sessions[member]
        if session.knows_term:
            return
        if session.greetings == GREETINGS_MAX:
            self._suspect(member)
        session.greetings += 1
        self._reply(session.life.endpoint, self.status())
        self._timers.set(("greet", member), self._now_ns + self.settings.probe_interval_ns)

    # Output.

    @property
    def has_output(self) -> bool:
        """Whether there is something to propose or to send."""
        return bool(self.proposals or self._replies or self._configurations)

    def make_frames(self, now_ns: int) -> list[Datagram]:
        """Make the frames that are due. All are control frames."""
        self._now_ns = now_ns
        output: list[Datagram] = []
        for endpoint, message in self._replies:
            self._send(output, endpoint, message)
        self._replies.clear()
        if not self._configurations:
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
        if session.acknowledged < service.concern_epoch(life):
            session.resend_ns = min(max(2 * session.resend_ns, settings.resend_ns_min), settings.resend_ns_max)
            self._timers.set(("resend", life.member), self._now_ns + session.resend_ns)

    def _send(self, output: list[Datagram], endpoint: Endpoint, message: ControlMessage) -> None:
        data = encode_control(
            Kind.CONFIGURATION, self._gate.domain, *self.member, self.history, self.term, self._now_ns, message
        )
        output.append(Datagram(endpoint, data, Priority.CONTROL))
