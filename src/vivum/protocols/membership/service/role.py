"""A node's part in the configuration service: its replica of the log, and the speaker while that replica leads.

Every node has a replica. It is blank, and silent, until the node founds a history or a leader takes it in. A node whose
replica does not lead tells those who take it for the leader where that is. Design note: `docs/design/membership.md`.

Invariants: `serving` is there exactly while the replica leads a term and its state has all that was committed before;
a replica is of one history, and its id belongs to that.
"""

from contextlib import suppress
from random import Random

from vivum.core.errors import DecodeError, NotNowError, UsageError
from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.machine import Command, Datagram, Effect, Event, Persist, Priority
from vivum.protocols.consensus.commands import (
    AddLearner,
    CommandsAnswered,
    LeaderChanged,
    OpenSession,
    PromoteLearner,
    Propose,
    SessionOpened,
    TransferLeadership,
)
from vivum.protocols.consensus.configuration import Replica, ReplicaConfiguration
from vivum.protocols.consensus.machine import ReplicaMachine
from vivum.protocols.consensus.records import NOBODY, Promises, StoredState
from vivum.protocols.consensus.roles import Following, Leading
from vivum.protocols.consensus.sessions import Sessions
from vivum.protocols.consensus.settings import ConsensusSettings
from vivum.protocols.consensus.snapshot import SnapshotImage
from vivum.protocols.membership.client.client import MembershipClient
from vivum.protocols.membership.service.application import ReplicatedDomain
from vivum.protocols.membership.service.machine import ServiceMachine
from vivum.protocols.membership.service.replicas import next_change
from vivum.protocols.membership.settings import ServiceSettings
from vivum.wire.codec import Frame
from vivum.wire.control import encode_control
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind
from vivum.wire.membership import Join, Leave
from vivum.wire.service_log import ReplicaAddress

SERVICE_NODE = NodeId(1_000_000)
"""The node id of a configuration service in a process of its own, in simulated worlds."""

SERVICE_GROUP = 1
"""The group of the service's log among all logs of a domain."""

ENTRIES_FRAME_BYTES_MIN = 1_200
"""Frames of the log are at least this long, however short others are to be."""


def consensus_settings(settings: ServiceSettings) -> ConsensusSettings:
    """Return how replicas of the service are set."""
    frame_bytes = max(settings.frame_bytes_max, ENTRIES_FRAME_BYTES_MIN)
    return ConsensusSettings(
        election_ns=settings.election_ns,
        heartbeat_ns=settings.replica_beat_ns,
        resend_ns=settings.replica_beat_ns,
        frame_bytes_max=frame_bytes,
        batch_bytes_max=frame_bytes,
        # A leader has one session in its term, and a domain may be quiet for months.
        session_idle_ns=1 << 62,
        sessions_max=64,
        snapshot_log_bytes=4 * 1024 * 1024,
        log_tail_bytes=512 * 1024,
    )


class ServiceRole:
    """The replica of a node, and the speaker of the service."""

    kinds = frozenset({Kind.MEMBERSHIP, Kind.CONSENSUS, Kind.ENTRIES})
    commands: frozenset[type[Command]] = frozenset()
    transport = ""

    def __init__(
        self,
        gate: Gate,
        endpoint: Endpoint,
        rng: Random,
        client: MembershipClient | None = None,
        settings: ServiceSettings | None = None,
        *,
        survives: bool = True,
    ) -> None:
        """Begin with a blank replica. A node without a `client` has a replica that it founds itself, or none.

        With `survives` a copy in a domain with a single vote goes on by itself when that vote is gone.
        """
        self.settings = settings or ServiceSettings()
        self.serving: ServiceMachine | None = None
        self.effects: list[Effect] = []
        self._gate = gate
        self._endpoint = endpoint
        self._rng = rng
        self._client = client
        self._survives = survives
        self._now_ns = 0
        self._deadline_ns: int | None = None
        self._patient_until_ns = 0
        self._step_ns = 0
        self._is_handing_over = False
        # Whether an input may have made something due.
        self._is_due = False
        self._session = self._sequence = 0
        self._strays: list[Datagram] = []
        # Replicas of the log of which it is certain that they are gone for ever.
        self._dead: set[NodeId] = set()
        self._bereft_ns = self._leaderless_ns = 0
        self._become_blank(self._new_id())

    # The replica.

    def _become_blank(self, replica: NodeId) -> None:
        """Have a replica of no history: it has no promises to keep."""
        self._state = ReplicatedDomain(self.settings)
        self._make_replica(replica, StoredState())

    def _new_id(self) -> NodeId:
        return NodeId(self._rng.randrange(1, 1 << 32))

    def _make_replica(self, replica: NodeId, stored: StoredState) -> None:
        self.serving = None
        self._session = 0
        self._dead.clear()
        self._heard_of = 0
        self.replica = ReplicaMachine(
            replica,
            SERVICE_GROUP,
            stored,
            self._state,
            self._gate,
            self._rng,
            consensus_settings(self.settings),
            now_ns=self._now_ns,
        )
        if self._client is not None:
            self._client.replica = replica

    @property
    def history(self) -> int:
        """The history that its replica is of; 0 while it is blank."""
        return self.replica.foundation

    @property
    def state(self) -> ReplicatedDomain:
        """The state that the replica has applied."""
        return self._state

    @property
    def replica_endpoints(self) -> list[Endpoint]:
        """Where the replicas of the history are, as far as this one knows."""
        return [each.endpoint for each in self.replica.configuration.replicas.values()]

    @property
    def voters(self) -> list[Endpoint]:
        """Where those of them are that vote."""
        return [each.endpoint for each in self.replica.configuration.replicas.values() if each.votes]

    @property
    def is_bereft(self) -> bool:
        """Whether it has a replica of a history, and knows no leader."""
        return self.history != 0 and not self.replica.leader

    def begin(self, now_ns: int, *, is_only: bool = False) -> None:
        """Found a history, and lead it. With `is_only` the domain can have no other: its numbers begin with 1."""
        salt = 0 if is_only else self._rng.randrange(1, 1 << 60)
        self._found(now_ns, ReplicatedDomain.found(self.settings, now_ns, salt))

    def _found(self, now_ns: int, state: ReplicatedDomain) -> None:
        self._now_ns = now_ns
        self._is_due = True
        replica = self._new_id()
        self._state = state
        self.settings = state.service.settings
        if self._client is not None and self._client.member is not None:
            own = state.service.life_of(self._client.member)
            if own is not None:
                own.replica = replica
        members = ReplicaConfiguration([Replica(replica, *self._endpoint)])
        sessions = Sessions(consensus_settings(self.settings)).encode()
        history = self._rng.randrange(1, 1 << 32)
        image = SnapshotImage(1, 0, history, now_ns, members.encode(), sessions, state.snapshot())
        self._make_replica(replica, StoredState(Promises(), image))
        self.replica.on_timer(now_ns)
        self._follow_replica()

    def forget(self) -> None:
        """Leave the history: the node follows another one, with another life, and under another id.

        Should it come back to this history, its promises there are forgotten.
        """
        self._is_handing_over = False
        if self.history or self.replica.term:
            self._become_blank(self._new_id())

    def service(self) -> ServiceMachine | None:
        """Return the speaker, if it is here."""
        return self.serving

    def heard_since(self, since_ns: int) -> int:
        """Return how many lives the service has heard from since a time."""
        return 0 if self.serving is None else self.serving.heard_since(since_ns)

    def rouse(self, since_ns: int) -> None:
        """Ask lives that were silent since a time for a sign of life."""
        if self.serving is not None:
            self.serving.rouse(since_ns)

    def hand_over(self) -> None:
        """Let another replica lead, since this node is about to leave."""
        self._is_handing_over = True
        self._step_ns = 0

    @property
    def has_heir(self) -> bool:
        """Whether this node leads, and another one could."""
        return self.serving is not None and (len(self.replica.configuration.replicas) > 1 or bool(self._willing()))

    def _willing(self) -> list[Replica]:
        """List those that could have a replica, the oldest first."""
        serving = self.serving
        assert serving is not None
        lives = sorted(self._state.service.lives.values(), key=lambda life: life.age)
        return [
            Replica(life.replica, *life.endpoint)
            for life in lives
            if life.replica and life.endpoint != self._endpoint and serving.answers(life)
        ]

    def submit(self, now_ns: int, command: Command) -> None:  # noqa: ARG002
        """Refuse: the service takes its requests as frames."""
        raise UsageError(f"the configuration service takes no commands; {type(command).__name__} is for a node")

    # Frames.

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a frame: for the replica, for the speaker, or astray."""
        self._now_ns = now_ns
        self._is_due = True
        if frame.kind is not Kind.MEMBERSHIP:
            self._on_replica_frame(source, frame)
        elif self.serving is not None:
            self.serving.on_frame(now_ns, source, frame)
        else:
            self._on_stray(source, frame)

    def _on_replica_frame(self, source: Endpoint, frame: Frame) -> None:
        client = self._client
        if not self.history and (client is None or client.member is None or frame.view != client.history):
            self._gate.refuse_state(self._now_ns, source, frame, "of a log that this node has no part in")
            return
        if not self.history and frame.view != self._heard_of:
            # It may have promised something to another history, which it did not come to be a part of.
            self._become_blank(self.replica.node)
            self._heard_of = frame.view
        try:
            self.replica.on_frame(self._now_ns, source, frame)
        except DecodeError as error:
            # A snapshot that this version cannot read.
            self._gate.refuse_state(self._now_ns, source, frame, str(error))
        self._follow_replica()

    def _on_stray(self, source: Endpoint, frame: Frame) -> None:
        """Answer a node that takes this one for the leader: tell it where that is, if it is known and speaks."""
        body = self._gate.decode(self._now_ns, source, frame)
        if body is None:
            return
        if isinstance(body, Join) and source == (body.host, body.port):
            self._note_dead(source, NodeId(body.replica))
        cause = "this node is not the configuration service, and does not know where that is"
        client = self._client
        if client is not None and client.member is not None and not client.is_service_silent(self._now_ns):
            status = client.service_status
            if status is not None and Endpoint(status.host, status.port) not in (source, self._endpoint):
                cause = "this node is not the configuration service; told where that is"
                data = encode_control(
                    Kind.CONFIGURATION,
                    self._gate.domain,
                    *client.member,
                    client.history,
                    client.term,
                    self._now_ns,
                    status,
                )
                self._strays.append(Datagram(source, data, Priority.CONTROL))
        self._gate.refuse_state(self._now_ns, source, frame, cause)

    # Who is gone for ever.

    def on_refused(self, now_ns: int, endpoint: Endpoint) -> None:
        """Note that no process has this endpoint: its computer says so."""
        self._now_ns = now_ns
        self._is_due = True
        self._note_dead(endpoint, NOBODY)
        if self.serving is not None:
            self.serving.on_refused(now_ns, endpoint)

    def _note_dead(self, endpoint: Endpoint, successor: NodeId) -> None:
        """Note that replicas at an endpoint are gone: another process has it, or none. They were in memory."""
        for node, each in self.replica.configuration.replicas.items():
            if each.endpoint == endpoint and node not in (successor, self.replica.node, *self._dead):
                self._dead.add(node)
                self._bereft_ns = self._now_ns

    # Following the own replica.

    def _follow_replica(self) -> None:
        """Begin or end to speak as the replica leads or does not; hand on what was applied."""
        replica = self.replica
        for effect in replica.effects:
            match effect:
                case LeaderChanged(_, leader):
                    if not leader:
                        self._leaderless_ns = self._now_ns
                    self.serving = None
                    self._session = 0
                    self._state.is_watched = False
                    if replica.leads:
                        replica.submit(self._now_ns, OpenSession(replica.term))
                case SessionOpened(request, client) if request == replica.term and replica.leads:
                    self._become_serving(client)
                case CommandsAnswered(statuses=list()) if replica.leads:
                    # The session is gone from the log: begin another, and speak again when it is there.
                    self.serving = None
                    replica.submit(self._now_ns, OpenSession(replica.term))
                case CommandsAnswered() | Event() | Persist():
                    # In memory: what is persisted dies with the process, and so does its id.
                    pass
                case _:
                    self.effects.append(effect)
        replica.effects.clear()
        applied = self._state.applied
        if applied:
            if self.serving is not None:
                self.serving.on_applied(self._now_ns, applied)
                if any(isinstance(each.act, Join | Leave) for each in applied):
                    self._step_ns = min(self._step_ns, self._now_ns + self.settings.batch_ns)
            applied.clear()

    def _become_serving(self, session: int) -> None:
        self._session, self._sequence = session, 0
        self._state.applied.clear()
        self._state.is_watched = True
        self._step_ns = self._now_ns
        self.serving = ServiceMachine(
            self._now_ns,
            Member(self.replica.node, Incarnation(0)),
            self._gate,
            self._state,
            self.history,
            self.replica.term,
            lambda: tuple(ReplicaAddress(*each.endpoint) for each in self.replica.configuration.replicas.values()),
        )

    def _propose(self) -> bool:
        """Hand what the speaker proposes to the replica; return whether there was anything."""
        serving = self.serving
        if serving is None or not serving.proposals:
            return False
        commands = serving.proposals
        try:
            self.replica.submit(self._now_ns, Propose(self._session, self._sequence, commands, self._sequence))
        except NotNowError:
            # Handing over, or too much under way: they wait.
            return False
        self._sequence += len(commands)
        serving.proposals = []
        return True

    # Who the replicas are.

    def _look_after_replicas(self) -> None:
        """Take the next step towards the replicas that should be; or towards another leader."""
        replica, serving = self.replica, self.serving
        role = replica.role
        assert serving is not None
        assert type(role) is Leading
        serving.tell_departed({int(node) for node in replica.configuration.replicas} - {int(replica.node)})
        caught_up = {
            node
            for node, peer in role.peers.items()
            if peer.matched >= role.first_index
            and replica.log.last_index - peer.matched <= 1024
            # One that is dead by now would be needed for a majority of two.
            and peer.heard_ns >= self._now_ns - 2 * self.settings.replica_beat_ns
        }
        if self._is_handing_over:
            command = self._handing_over(caught_up)
        else:
            since_ns = self._now_ns - self.settings.replica_silence_ns
            lost = {node for node, peer in role.peers.items() if peer.heard_ns < since_ns}
            lost |= replica.configuration.replicas.keys() & serving.gone_replicas
            command = next_change(
                replica.node, replica.configuration, self._willing(), lost, caught_up, self.settings.replicas
            )
        if command is not None:
            self._step_ns = self._now_ns + self.settings.batch_ns
            # Not yet, if the change before it is not committed.
            with suppress(NotNowError):
                replica.submit(self._now_ns, command)

    def _handing_over(self, caught_up: set[NodeId]) -> Command | None:
        replica = self.replica
        others = replica.configuration.voters & caught_up
        if others:
            return TransferLeadership(min(others))
        learners, willing = sorted(caught_up), self._willing()
        if learners:
            return PromoteLearner(learners[0])
        if len(replica.configuration.replicas) == 1 and willing:
            return AddLearner(willing[0])
        return None

    # Time.

    def next_deadline_ns(self) -> int | None:
        """Return when something will be due."""
        self._deadline_ns = self._earliest_ns()
        return self._deadline_ns

    def _earliest_ns(self) -> int | None:
        times = [self._replica_deadline_ns(), self._fork_due_ns()]
        if self.serving is not None:
            times += [self.serving.next_deadline_ns(), self._step_ns]
        return min((each for each in times if each is not None), default=None)

    def _replica_deadline_ns(self) -> int | None:
        return None if self._is_retired else self.replica.next_deadline_ns()

    @property
    def _is_retired(self) -> bool:
        """Whether the leader that the node hears has removed this replica: it must not stand any more."""
        client = self._client
        if client is None or client.member is None or client.history != self.history or self.replica.leader:
            return False
        status = client.service_status
        if status is None or client.is_service_silent(self._now_ns):
            return False
        return all(Endpoint(each.host, each.port) != self._endpoint for each in status.replicas)

    def _fork_due_ns(self) -> int | None:
        """Return when this copy goes on in a history of its own; None if it is not its place to do so.

        Where so many voters are gone for ever that no majority of them can be anywhere: at once, those with a vote
        first. Where there are so few votes that one cannot be spared: after a while, the only voter's copy if there
        is one vote, a voter if there are two.
        """
        replica, role, client = self.replica, self.replica.role, self._client
        if not self._survives or not self.history or self.serving is not None:
            return None
        configuration = replica.configuration
        voters, others = configuration.voters, configuration.replicas.keys() - self._dead
        if replica.node not in others or not replica.applied_index:
            return None
        if client is not None and client.history not in (0, self.history):
            return None
        if len(voters - self._dead) < configuration.quorum:
            heirs = sorted(others, key=lambda node: (node not in voters, node))
            return self._bereft_ns + heirs.index(replica.node) * self.settings.election_ns
        if len(voters) == 1 and others - voters == {replica.node} and type(role) is Following:
            return max(role.heard_ns + self.settings.fork_after_ns, self._patient_until_ns)
        if len(voters) == 2 and replica.node in voters and not replica.leader:
            # Two votes are there only in passing. Longer than any election takes.
            return max(self._leaderless_ns + 2 * self.settings.fork_after_ns, self._patient_until_ns)
        return None

    def on_timer(self, now_ns: int) -> None:
        """Do what is due."""
        late_ns = 0 if self._deadline_ns is None else now_ns - self._deadline_ns
        self._now_ns = now_ns
        self._is_due = True
        client = self._client
        if client is not None and self.history and self.serving is None and client.history not in (0, self.history):
            # The node's life goes on in another history.
            self._become_blank(self.replica.node)
        if late_ns > self.settings.election_ns:
            # This node slept: words of the leader lie unread in its socket.
            self._patient_until_ns = now_ns + self.settings.fork_after_ns // 2
        if not self._is_retired:
            self.replica.on_timer(now_ns)
        self._follow_replica()
        fork_ns = self._fork_due_ns()
        if fork_ns is not None and now_ns >= fork_ns:
            self._fork()
        if self.serving is not None:
            self.serving.on_timer(now_ns)
            if now_ns >= self._step_ns:
                pace_ns = self.settings.batch_ns if self._is_handing_over else self.settings.replica_step_ns
                self._step_ns = now_ns + pace_ns
                self._look_after_replicas()

    def _fork(self) -> None:
        """Go on in a new history: nobody else can decide, as far as this node can know. Drop those who are gone."""
        voters = self.replica.configuration.voters
        gone = self._dead | (voters - {self.replica.node} if len(voters) <= 2 else frozenset())
        state = self._state.fork(self.history, self._now_ns, self._rng.randrange(1, 1 << 60))
        for life in [each for each in state.service.lives.values() if each.replica in gone]:
            state.service.leave(life)
        self._found(self._now_ns, state)

    # Output.

    @property
    def has_data(self) -> bool:
        """Whether entries could be sent now if there were room."""
        return self.replica.has_data

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        """Make the frames that are due: of the log, then of the speaker about what is committed by then."""
        made: list[Datagram] = []
        serving = self.serving
        if not self._is_due and not self.replica.has_data and (serving is None or not serving.has_output):
            # Asked with each output of the node.
            return made
        self._is_due = False
        while True:
            has_proposed = self._propose()
            made += self.replica.make_frames(room_bytes)
            self._follow_replica()
            if not has_proposed or self.serving is None or not self.serving.proposals:
                break
        if self.serving is not None:
            made += self.serving.make_frames(self._now_ns)
        made += self._strays
        self._strays.clear()
        return made
