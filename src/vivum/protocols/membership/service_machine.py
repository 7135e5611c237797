"""The one who speaks for the configuration service: frames, time, and who was told what.

Design note: `docs/design/membership.md`. Decides nothing about membership but when a batch closes and when a suspect
counts as dead; the rest is `service`. Like every machine it notes *that* something is due and makes the frame in
`take_output`, so a configuration that is repeated tells the newest epoch.

Invariants: every current life has a session; a configuration is repeated until the epoch that concerns its life is
acknowledged, and then no more.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vivum.core.deadlines import Deadlines
from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.machine import EMPTY_OUTPUT, ROOM_BYTES_UNLIMITED, Command, Datagram, Output, Priority
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.assembly import cut, part_bytes
from vivum.protocols.membership.service import ConfigurationService, Life
from vivum.protocols.membership.settings import ServiceSettings
from vivum.protocols.membership.suspicion import Suspicions, Verdict
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


@dataclass(slots=True, eq=False)
class Session:
    """What the service knows of its talk with one life. Lost with the machine, and then found out again."""

    life: Life
    heard_ns: int
    acknowledged: int = 0
    resend_ns: int = 0


Timer = tuple[str, Member | None]
"""What is due: "batch" or "sweep" for all, "resend" or "probe" for one life."""


class ServiceMachine:
    """The configuration service as a protocol that a node can compose."""

    kinds = frozenset({Kind.MEMBERSHIP})
    commands: frozenset[type[Command]] = frozenset()
    has_data = False

    def __init__(self, member: Member, gate: Gate, settings: ServiceSettings | None = None) -> None:
        self.member = member
        self.settings = settings or ServiceSettings()
        self.service = ConfigurationService(self.settings)
        self._gate = gate
        self._now_ns = 0
        self._sessions: dict[Member, Session] = {}
        self._suspicions = Suspicions(self.settings)
        self._timers: Deadlines[Timer] = Deadlines()
        self._part_bytes = part_bytes(self.settings.frame_bytes_max)
        # Due now; dictionaries serve as ordered sets.
        self._answers: dict[Member, None] = {}
        self._configurations: dict[Member, None] = {}
        self._replies: list[tuple[Endpoint, ControlMessage]] = []
        self._on_timer_of: dict[str, Callable[..., None]] = {
            "batch": self._on_batch_due,
            "sweep": self._on_sweep_due,
            "resend": self._on_resend_due,
            "probe": self._on_probe_due,
        }

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
        if isinstance(body, Join):
            cause = self._on_join(source, body)
        else:
            cause = self._on_request(source, Member(NodeId(frame.sender), Incarnation(frame.incarnation)), body)
        if cause is not None:
            self._gate.refuse_state(now_ns, source, frame, cause)

    def _on_join(self, source: Endpoint, body: Join) -> str | None:
        endpoint = Endpoint(body.host, body.port)
        if endpoint != source:
            # A join ends the former life on its endpoint: nobody may do that for another.
            return "joins with an endpoint that is not its own"
        life = self.service.join(body.name, NodeId(body.wanted), endpoint)
        if self.service.has_changes:
            self._open_batch()
        if life is None:
            former = self.service.former_life(body.name)
            if former is None:
                return f"nodes_max={self.settings.nodes_max} nodes are in the domain"
            self._replies.append((endpoint, Removal(body.name, *former)))
            return "the life of this process has ended"
        if life.member not in self._sessions:
            if not self._sessions:
                self._timers.set(("sweep", None), self._now_ns + self.settings.silence_ns_max // 4)
            self._sessions[life.member] = Session(life, self._now_ns)
            self._end_ended_sessions()
        self._replies.append((life.endpoint, Welcome(body.name, *life.member)))
        return None

    def _on_request(self, source: Endpoint, member: Member, body: ControlMessage) -> str | None:
        session = self._sessions.get(member)
        if session is None:
            self._replies.append((source, Removal(self.service.name_of_former(member), *member)))
            return "not a current life; told so"
        if source != session.life.endpoint:
            return "not from the endpoint of its sender"
        session.heard_ns = self._now_ns
        if self._suspicions.clear(member):
            self._timers.cancel(("probe", member))
        match body:
            case Subscribe(request, add, remove):
                return self._on_subscribe(session, request, RangeSet.from_bounds(add), RangeSet.from_bounds(remove))
            case ConfigurationAck(epoch):
                return self._on_ack(session, epoch)
            case FailureReport(node, incarnation, _):
                return self._on_report(Member(NodeId(node), Incarnation(incarnation)), member)
            case Leave():
                self._end(session)
                self._replies.append((source, Removal(session.life.name, *member)))
            case Alive():
                pass
        return None

    def _on_subscribe(self, session: Session, request: int, add: RangeSet, remove: RangeSet) -> str | None:
        if not self.service.subscribe(session.life, request, add, remove):
            return "a request out of order, or for too many ranges of groups"
        # The answer goes with the batch, also if nothing changed: it tells that the request was applied.
        self._answers[session.life.member] = None
        self._open_batch()
        return None

    def _on_ack(self, session: Session, epoch: int) -> str | None:
        if epoch > self.service.epoch:
            return "acknowledges an epoch that never was"
        session.acknowledged = max(session.acknowledged, epoch)
        member = session.life.member
        if session.acknowledged >= self.service.concern_epoch(session.life):
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

    def _end(self, session: Session) -> None:
        self.service.leave(session.life)
        self._open_batch()
        self._forget(session.life.member)

    def _forget(self, member: Member) -> None:
        del self._sessions[member]
        self._suspicions.clear(member)
        self._answers.pop(member, None)
        self._configurations.pop(member, None)
        for name in ("resend", "probe"):
            self._timers.cancel((name, member))

    def _end_ended_sessions(self) -> None:
        """Forget sessions of lives that a new process on the same endpoint ended."""
        for member in [each for each in self._sessions if self.service.life_of(each) is None]:
            self._forget(member)

    def heard_since(self, since_ns: int) -> int:
        """Count the lives from which something was heard since then."""
        return sum(1 for session in self._sessions.values() if session.heard_ns >= since_ns)

    # Time.

    def next_deadline_ns(self) -> int | None:
        """Tell when something will be due."""
        return self._timers.next_ns()

    def on_timer(self, now_ns: int) -> None:
        """Do what is due."""
        self._now_ns = now_ns
        for name, member in self._timers.take_due(now_ns):
            self._on_timer_of[name](member)

    def _open_batch(self) -> None:
        if ("batch", None) not in self._timers:
            self._timers.set(("batch", None), self._now_ns + self.settings.batch_ns)

    def _on_batch_due(self, _: None) -> None:
        for member in self.service.close_batch():
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
        if verdict is Verdict.DEAD:
            self._gate.counters.members_dropped += 1
            self._end(session)
            # If it lives after all, it need not wait for its next word to learn this.
            self._replies.append((session.life.endpoint, Removal(session.life.name, *member)))
            return
        self._replies.append((session.life.endpoint, Probe(*member)))
        self._timers.set(("probe", member), next_ns)

    # Output.

    def take_output(self, room_bytes: int = ROOM_BYTES_UNLIMITED) -> Output:  # noqa: ARG002
        """Make the frames that are due. All is control: it does not wait for room."""
        if not self._replies and not self._configurations:
            return EMPTY_OUTPUT
        output = Output()
        for endpoint, message in self._replies:
            self._send(output, endpoint, message)
        self._replies.clear()
        due, self._configurations = self._configurations, {}
        # Members of one region at one epoch are told the same: made once.
        made: dict[tuple[int, int], bytes] = {}
        for member in due:
            self._send_configuration(output, self._sessions[member], made)
        return output if output else EMPTY_OUTPUT

    def _send_configuration(self, output: Output, session: Session, made: dict[tuple[int, int], bytes]) -> None:
        service, settings, life = self.service, self.settings, session.life
        base = service.base_for(life, session.acknowledged)
        region = service.regions.region_of(life.member)
        key = (0 if region is None else region.region, base)
        content = made.get(key)
        if content is None:
            content = made[key] = encode_changes(service.changes_for(region, base))
        if len(content) > settings.parts_max * self._part_bytes:
            return
        for part in cut(life.member, life.request, base, service.epoch, content, self._part_bytes):
            self._send(output, life.endpoint, part)
        if session.acknowledged < service.concern_epoch(life):
            session.resend_ns = min(max(2 * session.resend_ns, settings.resend_ns_min), settings.resend_ns_max)
            self._timers.set(("resend", life.member), self._now_ns + session.resend_ns)

    def _send(self, output: Output, endpoint: Endpoint, message: ControlMessage) -> None:
        gate = self._gate
        data = encode_control(Kind.CONFIGURATION, gate.domain, *self.member, 0, 0, self._now_ns, message)
        output.datagrams.append(Datagram(endpoint, data, Priority.CONTROL))
