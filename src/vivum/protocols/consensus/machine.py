"""One replica of a log, after Raft: elections, replication, commit, snapshots, membership, reads.

Design note: `docs/design/consensus.md`. Inputs change the state and note what is due; `make_frames` makes the frames,
and at most one record in front of all that depends on it. So everything that came in between two outputs shares a
record: a group commit.

Knows no socket, disk or clock, and nothing of what the entries mean.

Invariants: term and vote never go back; nothing is acknowledged, granted or counted before the record that has it; a
committed entry is never cut; there is one role, and `become_*` alone change it.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate
from random import Random
from typing import Any, Literal, NamedTuple
from zlib import crc32

from vivum.core.errors import DecodeError, LimitError, NotNowError, UsageError
from vivum.core.ids import Endpoint, NodeId
from vivum.core.machine import Command, Datagram, Effect, Persist, Priority
from vivum.observe.trace import BatchAppended, LeaderElected, StateRestored, StateSaved, TraceRecord
from vivum.protocols.consensus.batch import (
    COMMANDS_MAX,
    BatchKind,
    EntryBatch,
    pack_commands,
    packed_bytes,
    seal_batch,
    split_batches,
)
from vivum.protocols.consensus.commands import (
    AddLearner,
    AdvanceTime,
    CommandsAnswered,
    LeaderChanged,
    NotLeaderError,
    OpenSession,
    PromoteLearner,
    Propose,
    ReadIndex,
    ReadsAllowed,
    Recorded,
    RemoveReplica,
    ReplicaHealed,
    ReplicasChanged,
    RequestsRefused,
    SessionOpened,
    TransferLeadership,
)
from vivum.protocols.consensus.configuration import Replica, ReplicaConfiguration, decode_configuration
from vivum.protocols.consensus.log import ReplicatedLog
from vivum.protocols.consensus.parts import PartsBuffer
from vivum.protocols.consensus.progress import Progress, ProgressState
from vivum.protocols.consensus.records import (
    NOBODY,
    StoredState,
    entries_record,
    snapshot_record,
)
from vivum.protocols.consensus.roles import Following, Leading, Standing, Transfer, WaitingRead
from vivum.protocols.consensus.settings import ConsensusSettings
from vivum.protocols.consensus.snapshot import SnapshotImage, decode_snapshot, encode_snapshot
from vivum.protocols.consensus.state_machine import Applier, StateMachine
from vivum.wire.codec import HEADER_BYTES, Frame
from vivum.wire.consensus import (
    AppendEntries,
    AppendReply,
    HeartbeatReply,
    InstallSnapshot,
    LeaderHeartbeat,
    SnapshotReply,
    TimeoutNow,
    Vote,
    VoteRequest,
)
from vivum.wire.control import encode_control
from vivum.wire.fields import ControlMessage
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind

MESSAGE_BYTES_MAX = 96
"""What a message has besides its content: a tag and at most seven numbers."""

OF_LEADERS = (AppendEntries, LeaderHeartbeat, InstallSnapshot)
"""Messages that only the leader of their term sends."""


class Came(NamedTuple):
    """Where a message came from."""

    sender: NodeId
    source: Endpoint
    frame: Frame


class ReplicaMachine:
    """One replica. A protocol of a node (`protocols/contract.py`) that persists."""

    kinds = frozenset({Kind.CONSENSUS, Kind.ENTRIES})
    commands: frozenset[type[Command]] = frozenset(
        {OpenSession, Propose, ReadIndex, AdvanceTime, AddLearner, PromoteLearner, RemoveReplica, TransferLeadership}
    )
    transport = ""
    persists: Literal[True] = True

    def __init__(
        self,
        node: NodeId,
        group: int,
        stored: StoredState,
        application: StateMachine,
        gate: Gate,
        rng: Random,
        settings: ConsensusSettings | None = None,
        *,
        now_ns: int,
        incarnation: int = 0,
        trace: bool = False,
    ) -> None:
        """Go on from what was stored; from an empty state, wait to be taken in by a leader.

        With `trace`, records for checkers come among the effects (`Recorded`).

        `node` is the replica's id. It belongs to its disk: without one, every start needs another id.
        """
        self.node = node
        self.group = group
        self.settings = settings or ConsensusSettings()
        self.effects: list[Effect] = []
        self._life = (int(node), incarnation)
        self._gate = gate
        self._rng = rng
        self._is_traced = trace
        self._now_ns = now_ns
        self._application = application
        self._applier = Applier(group, self._life, application, self.settings, self._record if trace else None)
        self._content_max = self.settings.frame_bytes_max - HEADER_BYTES - MESSAGE_BYTES_MAX
        image = stored.image
        self._foundation = stored.foundation
        self._promises = stored.promises
        self._saved_promises = stored.promises
        self._snapshot = b""
        self._snapshot_index = 0
        if image is None:
            self.log = ReplicatedLog(batches=stored.batches)
        else:
            self.log = ReplicatedLog(image.index, image.term, image.configuration, stored.batches)
            self._snapshot, self._snapshot_index = encode_snapshot(image), image.index
            self._applier.restore(image.index, image.time_ns, image.sessions, image.application)
        if trace:
            self._trace_restored(image)
            for batch in stored.batches:
                self._trace_appended(batch)
        # Snapshot that the next record has.
        self._unsaved_snapshot = b""
        self._applied_bytes = 0
        self._parts = PartsBuffer()
        self._snapshot_parts = PartsBuffer()
        # What is to be sent; replies of one kind to one place share a datagram, and the newest counts.
        self._behind_record: list[Effect] = []
        self._allowed_reads: list[int] = []
        self._replies: dict[tuple[Endpoint, type[ControlMessage], bool], ControlMessage] = {}
        self._requests: list[tuple[NodeId, ControlMessage]] = []
        self._role: Following | Standing | Leading = Following(NOBODY, now_ns)
        self._told: tuple[int, NodeId] = (0, NOBODY)
        self._election_at_ns = 0
        self._handlers: dict[type[ControlMessage], Callable[[Came, Any], None]] = {
            VoteRequest: self._on_vote_request,
            Vote: self._on_vote,
            LeaderHeartbeat: self._on_heartbeat,
            HeartbeatReply: self._on_heartbeat_reply,
            AppendEntries: self._on_append,
            AppendReply: self._on_append_reply,
            InstallSnapshot: self._on_snapshot,
            SnapshotReply: self._on_snapshot_reply,
            TimeoutNow: self._on_timeout_now,
        }
        self._wait_for_leader()
        if self._may_stand() and self.log.configuration.voters == {node}:
            # Nobody else could lead.
            self._election_at_ns = now_ns

    # What others may know.

    @property
    def term(self) -> int:
        """The latest term that it knows."""
        return self._promises.term

    @property
    def role(self) -> Following | Standing | Leading:
        """What it is now."""
        return self._role

    @property
    def leader(self) -> NodeId:
        """Who leads the term, 0 if nobody is known."""
        return self._role.leader

    @property
    def leads(self) -> bool:
        """Whether it leads."""
        return type(self._role) is Leading

    @property
    def is_impaired(self) -> bool:
        """Whether it lost what it had acknowledged, and must not vote."""
        return self._promises.impairment is not None

    @property
    def applied_index(self) -> int:
        """The last entry that was applied."""
        return self._applier.applied_index

    def local_ns(self, log_time_ns: int) -> int:
        """Return when, by the own clock, entries of this leader have a log time."""
        role = self._role
        return log_time_ns - (role.ahead_ns if type(role) is Leading else 0)

    @property
    def configuration(self) -> ReplicaConfiguration:
        """The latest configuration in the log."""
        return self.log.configuration

    @property
    def session_count(self) -> int:
        """How many sessions there are."""
        return len(self._applier.sessions)

    @property
    def held_bytes(self) -> int:
        """Bytes of the log in memory, and of the snapshot."""
        return self.log.bytes + len(self._snapshot)

    # Roles. Only these methods change the role.

    def become_follower(self, term: int, leader: NodeId) -> None:
        """Follow a leader in a term, or nobody yet."""
        was = self._role
        if term > self._promises.term:
            self._promises = self._promises._replace(term=term, vote=NOBODY)
        self._role = Following(leader, self._now_ns)
        self._requests.clear()
        self._parts.clear()
        if type(was) is Leading:
            self._refuse_waiting(was)
        self._wait_for_leader()
        self._tell_leader()

    def become_pre_candidate(self) -> None:
        """Ask what the voters would do: who cannot win disturbs nobody (thesis, section 9.6)."""
        self._role = Standing(self.node, is_pre=True, is_transfer=False)
        self._tell_leader()
        self._wait_for_leader()
        self._count_votes(self._role)

    def become_candidate(self, *, is_transfer: bool = False) -> None:
        """Begin a term and vote for itself (paper, section 5.2)."""
        self._promises = self._promises._replace(term=self._promises.term + 1, vote=self.node)
        self._role = Standing(self.node, is_pre=False, is_transfer=is_transfer)
        self._tell_leader()
        self._wait_for_leader()
        self._count_votes(self._role)

    def become_leader(self) -> None:
        """Lead the term: begin with an entry of it, so that everything before can be committed."""
        now_ns, log = self._now_ns, self.log
        role = self._role = Leading(self.node, log.last_index + 1, now_ns, self.settings)
        role.ahead_ns = max(0, self._newest_ns() - now_ns)
        self._requests.clear()
        if self._is_traced:
            # Behind the record of its vote, which may be due.
            self._behind_record.append(Recorded(LeaderElected(now_ns, *self._life, self.group, self.term)))
        role.set_replicas(log.configuration, log.last_index + 1, now_ns)
        role.pending_bytes = sum([len(each.data) for each in log.between(log.commit_index, log.last_index)])
        self._append_own(role, BatchKind.NOOP)
        self._tell_leader()

    def _wait_for_leader(self) -> None:
        """Stand after a time that differs from replica to replica, and from time to time (paper, section 5.2)."""
        election_ns = self.settings.election_ns
        self._election_at_ns = self._now_ns + self._rng.randrange(election_ns, 2 * election_ns)

    def _may_stand(self) -> bool:
        """Return whether to stand for election.

        One that is removed still stands until that is committed: it may be the only one that has the entry (thesis,
        section 4.2.2). Its own vote does not count.
        """
        if self._promises.impairment is not None:
            return False
        return self.node in self.log.configuration.voters or self.node in self.log.replaced_configuration.voters

    def _tell_leader(self) -> None:
        told = (self._promises.term, self._role.leader)
        if told != self._told:
            self._told = told
            self.effects.append(LeaderChanged(*told))

    def _refuse_waiting(self, was: Leading) -> None:
        reads = [*was.early_reads, *[each.request for each in was.reads]]
        if reads or was.opening:
            self.effects.append(RequestsRefused(reads, list(was.opening.values())))

    # Commands.

    def submit(self, now_ns: int, command: Command) -> None:
        """Take a command. Raises `NotLeaderError` where another replica leads."""
        self._now_ns = now_ns
        role = self._role
        if type(role) is not Leading:
            raise self._not_leader()
        match command:
            case Propose():
                self._propose(role, command)
            case OpenSession():
                self._check_room(role, 0)
                role.opening[self._append_own(role, BatchKind.OPEN_SESSION)] = command.request
            case ReadIndex():
                self._read(role, command)
            case AdvanceTime():
                self._check_room(role, 0)
                self._append_own(role, BatchKind.NOOP)
            case TransferLeadership():
                self._begin_transfer(role, command.to)
            case _:
                self._change_replicas(role, command)

    def _not_leader(self) -> NotLeaderError:
        leader = self.log.configuration.replicas.get(self._role.leader)
        where = "no leader is known; try again soon" if leader is None else f"ask {leader.id} at {leader.endpoint}"
        return NotLeaderError(f"replica {self.node} does not lead: {where}", leader)

    def _check_room(self, role: Leading, size: int) -> None:
        if role.transfer is not None:
            raise NotNowError(f"replica {self.node} is handing over to {role.transfer.to}; try again soon")
        limit = self.settings.pending_bytes_max
        if role.pending_bytes and role.pending_bytes + size > limit:
            raise NotNowError(f"pending_bytes_max: {role.pending_bytes:,} of {limit:,} bytes wait to be committed")

    def _propose(self, role: Leading, command: Propose) -> None:
        commands = command.commands
        if not commands:
            raise UsageError("no commands to propose")
        size = packed_bytes(commands)
        largest = max(map(len, commands))
        if largest > self.settings.command_bytes_max:
            raise LimitError(
                f"a command of {largest:,} bytes is over command_bytes_max={self.settings.command_bytes_max:,}"
            )
        self._check_room(role, size)
        at = 0
        for stop in self._stops(commands, size):
            part = commands if (at, stop) == (0, len(commands)) else commands[at:stop]
            sequence = command.sequence + at
            body = pack_commands(part)
            self._append_own(role, BatchKind.COMMANDS, body, len(part), command.client, sequence, command.heard)
            at = stop

    def _stops(self, commands: Any, size: int) -> list[int]:
        """Return where commands are cut into batches: as many as fit one, at least one."""
        limit = self.settings.batch_bytes_max
        if size <= limit and len(commands) <= COMMANDS_MAX:
            return [len(commands)]
        head = packed_bytes(())
        sums = list(accumulate([len(each) + 4 for each in commands], initial=0))
        stops, at = [], 0
        while at < len(commands):
            fits = bisect_right(sums, sums[at] + limit - head) - 1
            at = min(max(fits, at + 1), at + COMMANDS_MAX, len(commands))
            stops.append(at)
        return stops

    def _append_own(
        self,
        role: Leading,
        kind: BatchKind,
        body: bytes = b"",
        count: int = 1,
        client: int = 0,
        sequence: int = 0,
        heard: int = 0,
    ) -> int:
        """Append a batch of this term; return the index of its first entry."""
        log = self.log
        time_ns = max(self._now_ns + role.ahead_ns, self._newest_ns())
        first = log.last_index + 1
        batch = seal_batch(kind, first, self.term, time_ns, body, count, client, sequence, heard)
        role.pending_bytes += len(batch.data)
        self._append(batch)
        return first

    def _newest_ns(self) -> int:
        """Return the log time at the end of the log."""
        batches = self.log.batches
        return batches[-1].time_ns if batches else self._applier.time_ns

    def _append(self, batch: EntryBatch) -> None:
        self.log.must_save(self.log.last_index)
        self.log.append(batch)
        if self._is_traced:
            self._trace_appended(batch)

    def _read(self, role: Leading, command: ReadIndex) -> None:
        if len(role.reads) + len(role.early_reads) >= self.settings.reads_max:
            raise NotNowError(f"reads_max: {self.settings.reads_max:,} reads wait for a round of heartbeats")
        if self.log.commit_index < role.first_index:
            role.early_reads.append(command.request)
        else:
            role.reads.append(WaitingRead(role.round + 1, self.log.commit_index, command.request))
            role.is_round_due = True

    def _begin_transfer(self, role: Leading, to: NodeId) -> None:
        if to not in self.log.configuration.voters:
            raise UsageError(f"replica {to} does not vote; leadership goes to a voter")
        if to == self.node:
            return
        if role.transfer is not None:
            raise NotNowError(f"replica {self.node} is handing over to {role.transfer.to} already")
        role.transfer = Transfer(to, self._now_ns + self.settings.election_ns)
        self._go_on_with_transfer(role)

    def _change_replicas(self, role: Leading, command: Command) -> None:
        log, configuration = self.log, self.log.configuration
        if log.commit_index < max(role.first_index, log.configuration_index):
            raise NotNowError(
                "the replicas change one at a time: another change, or the leader's term, is not committed"
            )
        match command:
            case AddLearner(replica):
                if replica.id in configuration.replicas or not replica.id:
                    raise UsageError(f"replica {replica.id} is there already; every replica has an id of its own")
                if len(configuration.replicas) >= self.settings.replicas_max:
                    raise LimitError(
                        f"replicas_max: there are {len(configuration.replicas)} replicas; remove one first"
                    )
                changed = configuration.with_replica(Replica(replica.id, replica.host, replica.port, votes=False))
            case PromoteLearner(node):
                learner = configuration.replicas.get(node)
                if learner is None or learner.votes:
                    raise UsageError(f"replica {node} is no learner")
                matched = role.peers[node].matched
                lag = log.last_index - matched
                if matched < role.first_index or lag > self.settings.promote_lag_max:
                    raise NotNowError(f"promote_lag_max: replica {node} lacks {lag:,} entries; try again soon")
                changed = configuration.with_replica(Replica(learner.id, learner.host, learner.port))
            case RemoveReplica(node):
                if node not in configuration.replicas:
                    raise UsageError(f"there is no replica {node}")
                changed = configuration.without(node)
                if not changed.voters:
                    raise UsageError(f"replica {node} is the last that votes; add another one first")
            case _:
                raise UsageError(f"a replica takes no {type(command).__name__}")
        self._append_own(role, BatchKind.CONFIGURATION, changed.encode())
        role.set_replicas(changed, log.last_index, self._now_ns)

    # Frames.

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a well-formed frame: refuse what is of another log, mind the term, then act by message."""
        self._now_ns = now_ns
        came = Came(NodeId(frame.sender), source, frame)
        if frame.region != self.group:
            self._refuse(came, f"of group {frame.region}; this replica is one of group {self.group}")
            return
        body = self._gate.decode(now_ns, source, frame)
        if body is None:
            return
        cause = self._fault_of_sender(came, body)
        if cause is not None:
            self._refuse(came, cause)
        elif self._mind_term(came, body):
            self._handlers[type(body)](came, body)

    def _fault_of_sender(self, came: Came, body: ControlMessage) -> str | None:
        sender, frame = came.sender, came.frame
        if sender in (NOBODY, self.node):
            return f"from replica {sender}, which is nobody else"
        if frame.view != self._foundation:
            # One without a log votes, and belongs to the first that takes it in; its answers say that it has none.
            is_of_blank = not frame.view and isinstance(body, Vote | HeartbeatReply | AppendReply | SnapshotReply)
            if self._foundation and not is_of_blank:
                return f"of the log {frame.view:08x}, ours is {self._foundation:08x}"
        return None

    def _mind_term(self, came: Came, body: Any) -> bool:
        """Compare terms (paper, section 5.1); return whether the message is to be handled."""
        term: int = body.term
        own = self._promises.term
        if isinstance(body, VoteRequest):
            if term > own and not body.is_transfer and self._hears_leader():
                # Whoever asks was cut off, or removed: the others hear the leader (paper, section 6).
                return False
            if term > own and not body.is_pre:
                self.become_follower(term, NOBODY)
            elif term < own:
                self._reply(came.source, Vote(own, body.is_pre, is_granted=False))
            return term >= own
        if isinstance(body, Vote) and body.is_pre and body.is_granted:
            return term == own + 1
        if term < own:
            if isinstance(body, OF_LEADERS):
                # It must learn that its term is over. One that was cut off comes back into the group that way too.
                self._reply(came.source, HeartbeatReply(own, 0, 0, 0))
            return False
        if isinstance(body, OF_LEADERS):
            if term > own or type(self._role) is Standing:
                self.become_follower(term, came.sender)
        elif term > own:
            if came.sender not in self.log.configuration.replicas:
                return False
            self.become_follower(term, NOBODY)
        return True

    def _hears_leader(self) -> bool:
        role = self._role
        if type(role) is Following:
            return role.leader != NOBODY and self._now_ns - role.heard_ns < self.settings.election_ns
        return type(role) is Leading

    def _refuse(self, came: Came, cause: str) -> None:
        self._gate.refuse_state(self._now_ns, came.source, came.frame, cause)

    def _reply(self, to: Endpoint, message: ControlMessage, kind: bool = False) -> None:
        self._replies[to, type(message), kind] = message

    # Elections.

    def _on_vote_request(self, came: Came, body: VoteRequest) -> None:
        promises, log, role = self._promises, self.log, self._role
        # Paper, section 5.4.1: the voter denies its vote if its own log is more up-to-date.
        is_up_to_date = (body.last_term, body.last_index) >= (log.last_term, log.last_index)
        is_free = promises.vote in (NOBODY, came.sender) and role.leader == NOBODY
        if body.is_pre:
            is_free = is_free or body.term > promises.term
        is_granted = is_up_to_date and is_free and promises.impairment is None
        if is_granted and not body.is_pre:
            self._promises = promises._replace(vote=came.sender)
            self._wait_for_leader()
        self._reply(came.source, Vote(body.term if is_granted else promises.term, body.is_pre, is_granted), body.is_pre)

    def _on_vote(self, came: Came, body: Vote) -> None:
        role = self._role
        if type(role) is Standing and body.is_pre == role.is_pre and body.is_granted:
            role.votes.add(came.sender)
            self._count_votes(role)

    def _count_votes(self, role: Standing) -> None:
        if not self.log.configuration.has_quorum(role.votes):
            if role.votes == {self.node}:
                self._ask_for_votes(role)
        elif role.is_pre:
            self.become_candidate()
        else:
            self.become_leader()

    def _ask_for_votes(self, role: Standing) -> None:
        log = self.log
        term = self.term + 1 if role.is_pre else self.term
        request = VoteRequest(term, log.last_index, log.last_term, role.is_pre, role.is_transfer)
        self._requests = [(node, request) for node in sorted(log.configuration.voters - {self.node})]

    def _on_timeout_now(self, came: Came, body: TimeoutNow) -> None:  # noqa: ARG002
        role = self._role
        if type(role) is not Following or role.leader != came.sender:
            self._refuse(came, "hands over what it does not lead")
        elif self._may_stand():
            self.become_candidate(is_transfer=True)

    # As a follower.

    def _hear(self, came: Came) -> Following | None:
        """Note that the leader of the term lives; refuse a second one."""
        role = self._role
        if type(role) is not Following or role.leader not in (NOBODY, came.sender):
            self._refuse(came, f"a second leader in term {self.term}; {role.leader} leads it")
            return None
        role.heard_ns = self._now_ns
        if role.leader == NOBODY:
            role.leader = came.sender
            self._tell_leader()
        self._wait_for_leader()
        return role

    def _on_heartbeat(self, came: Came, body: LeaderHeartbeat) -> None:
        role = self._hear(came)
        if role is None:
            return
        log, agreed = self.log, role.agreed_index
        self._commit(self._last_of_batch(min(body.commit, agreed)))
        # Entries that were not compared with this leader's may be others, whatever it believes.
        lost = agreed + 1 if body.commit > agreed else 0
        self._reply(came.source, HeartbeatReply(self.term, body.round, lost, log.last_index))

    def _on_append(self, came: Came, body: AppendEntries) -> None:
        role = self._hear(came)
        if role is None:
            return
        log, previous = self.log, body.previous_index
        if previous < log.commit_index:
            # What is committed agrees. The leader goes on behind it.
            role.agreed_index = max(role.agreed_index, log.commit_index)
            self._acknowledge(came.source, body.round, log.commit_index)
            return
        if log.term_at(previous) != body.previous_term:
            self._reply(
                came.source, AppendReply(self.term, body.round, 0, previous, self._hint(previous), 0), kind=True
            )
            return
        content = body.content
        if body.total:
            if body.total > self.settings.command_bytes_max + self.settings.batch_bytes_max:
                self._refuse(came, f"a batch of {body.total:,} bytes; no command is that large")
                return
            whole = self._parts.take((previous, self.term), body.offset, body.total, content)
            if whole is None:
                self._acknowledge(came.source, body.round, previous, self._parts.received((previous, self.term)))
                return
            content = whole
        try:
            batches = list(split_batches(content))
            cause = self._fault_of_batches(body, batches)
        except DecodeError as error:
            cause = str(error)
        if cause is not None:
            self._refuse(came, cause)
            return
        self._take_batches(batches)
        matched = batches[-1].last
        role.agreed_index = max(role.agreed_index, matched)
        self._heal_if_whole(matched, batches[-1].term)
        self._commit(self._last_of_batch(min(body.commit, matched)))
        self._acknowledge(came.source, body.round, matched)

    def _acknowledge(self, source: Endpoint, round_: int, matched: int, offset: int = 0) -> None:
        """Say what is here, once the record that is due has it."""
        due = self._replies.get((source, AppendReply, False))
        if not isinstance(due, AppendReply) or (due.term, due.matched, due.offset) <= (self.term, matched, offset):
            self._reply(source, AppendReply(self.term, round_, matched, 0, 0, offset))

    def _hint(self, previous: int) -> int:
        """Return behind which entry the logs may agree: in front of the whole term that conflicts (section 5.3)."""
        log = self.log
        if previous > log.last_index:
            return log.last_index
        at = log.behind(previous - 1)
        term = log.batches[at].term
        while at > 0 and log.batches[at - 1].term == term:
            at -= 1
        return min(previous, max(log.commit_index, log.batches[at].first - 1))

    def _fault_of_batches(self, body: AppendEntries, batches: list[EntryBatch]) -> str | None:
        """Return what about batches cannot be, or None. Nothing was changed yet."""
        last, term = body.previous_index, body.previous_term
        for batch in batches:
            if batch.first != last + 1:
                return f"{batch} does not follow entry {last}"
            if not term <= batch.term <= body.term:
                return f"{batch} stands between terms {term} and {body.term}"
            if batch.kind is BatchKind.CONFIGURATION:
                decode_configuration(batch.body)
            if batch.first == 1 and self._foundation not in (0, batch.checksum):
                return f"{batch} is the foundation of another log"
            last, term = batch.last, batch.term
        return None

    def _take_batches(self, batches: Iterable[EntryBatch]) -> None:
        """Append what is new; what conflicts with it, and all behind, goes (paper, section 5.3)."""
        log = self.log
        for batch in batches:
            if batch.last <= log.last_index and log.term_at(batch.last) == batch.term:
                continue
            if batch.first <= log.last_index:
                log.cut(batch.first - 1)
            if batch.first == 1:
                self._foundation = batch.checksum
            self._append(batch)

    def _last_of_batch(self, index: int) -> int:
        """Return the last entry of a batch up to an index: commits name such, but a peer may name any number."""
        log = self.log
        index = min(index, log.last_index)
        if index <= log.commit_index or log.term_at(index) is not None:
            return index
        return log.batches[log.behind(index - 1)].first - 1

    def _heal_if_whole(self, matched: int, term: int) -> None:
        """End the impairment when all that could have been lost is here again.

        All that earlier terms committed stands in front of the entries of the leader's term; what this replica had
        acknowledged in that very term is known by its index.
        """
        impairment = self._promises.impairment
        if impairment is None or term != self.term:
            return
        if self.term > impairment.term or matched >= impairment.last_index:
            self._promises = self._promises._replace(impairment=None)
            self.effects.append(ReplicaHealed(matched))

    def _on_snapshot(self, came: Came, body: InstallSnapshot) -> None:
        role = self._hear(came)
        if role is None:
            return
        if body.total > self.settings.snapshot_bytes_max:
            self._refuse(came, f"a snapshot of {body.total:,} bytes is over snapshot_bytes_max")
            return
        if body.index <= self.log.commit_index:
            self._acknowledge(came.source, body.round, self.log.commit_index)
            return
        key = (body.index, self.term)
        whole = self._snapshot_parts.take(key, body.offset, body.total, body.content)
        if whole is None:
            received = self._snapshot_parts.received(key)
            self._reply(came.source, SnapshotReply(self.term, body.round, body.index, received))
            return
        try:
            image = decode_snapshot(whole)
        except DecodeError as error:
            self._refuse(came, str(error))
            return
        if image.index != body.index or image.term > self.term or self._foundation not in (0, image.foundation):
            self._refuse(came, f"a snapshot of entry {image.index}, term {image.term}, that is not ours")
            return
        self._install(image, whole)
        role.agreed_index = image.index
        self._heal_if_whole(image.index, image.term)
        self._acknowledge(came.source, body.round, image.index)

    def _install(self, image: SnapshotImage, data: bytes) -> None:
        """Replace what the snapshot has; keep the log behind it where it agrees (paper, Figure 13)."""
        log = self.log
        agrees = log.term_at(image.index) == image.term
        kept = log.between(image.index, log.last_index) if agrees else []
        self._foundation = image.foundation
        self.log = ReplicatedLog(image.index, image.term, image.configuration, kept)
        self._applier.restore(image.index, image.time_ns, image.sessions, image.application)
        self._snapshot, self._snapshot_index = data, image.index
        self._unsaved_snapshot = data
        self._applied_bytes = 0
        self._parts.clear()
        if self._is_traced:
            self._trace_restored(image)
            for batch in kept:
                self._trace_appended(batch)
        self.effects.append(ReplicasChanged(image.index, image.configuration))

    # As a leader.

    def _peer(self, came: Came, round_: int) -> tuple[Leading, Progress] | None:
        """Find the peer that answers this leader, and note its round."""
        role = self._role
        if type(role) is not Leading:
            return None
        peer = role.peers.get(came.sender)
        if peer is None:
            return None
        if round_ > role.round:
            self._refuse(came, f"answers round {round_}; the last one was {role.round}")
            return None
        peer.heard_ns = self._now_ns
        peer.round = max(peer.round, round_)
        return role, peer

    def _on_heartbeat_reply(self, came: Came, body: HeartbeatReply) -> None:
        found = self._peer(came, body.round)
        if found is not None:
            role, peer = found
            if body.lost:
                peer.on_lost(body.lost - 1, min(body.last_index + 1, self.log.last_index))
            self._allow_reads(role)

    def _on_append_reply(self, came: Came, body: AppendReply) -> None:
        found = self._peer(came, body.round)
        if found is None:
            return
        role, peer = found
        log = self.log
        if body.refused:
            if body.refused > log.last_index:
                self._refuse(came, f"refuses entry {body.refused}; the log ends with {log.last_index}")
                return
            peer.on_refused(body.refused, body.hint)
        else:
            if body.matched > log.base_index and log.term_at(body.matched) is None:
                self._refuse(came, f"acknowledges entry {body.matched}, which ends no batch here")
                return
            peer.on_matched(self._now_ns, body.matched, body.offset)
            self._advance_commit(role)
        if self._role is role:
            self._allow_reads(role)
            if role.transfer is not None:
                self._go_on_with_transfer(role)

    def _on_snapshot_reply(self, came: Came, body: SnapshotReply) -> None:
        found = self._peer(came, body.round)
        if found is not None:
            found[1].on_snapshot_received(self._now_ns, body.index, body.offset)

    def _advance_commit(self, role: Leading) -> None:
        index = role.commit_index(self.log, self.term)
        if index > self.log.commit_index:
            self._commit(index)

    def _allow_reads(self, role: Leading) -> None:
        """Allow the reads whose round a majority has answered: nobody else led when they came (thesis, 6.4)."""
        if not role.reads:
            return
        confirmed = role.confirmed_round(self.log.configuration)
        allowed = self._allowed_reads
        while role.reads and role.reads[0].round <= confirmed and role.reads[0].read_index <= self.applied_index:
            allowed.append(role.reads.popleft().request)

    def _go_on_with_transfer(self, role: Leading) -> None:
        transfer = role.transfer
        assert transfer is not None
        if role.peers[transfer.to].matched == self.log.last_index:
            self._requests.append((transfer.to, TimeoutNow(self.term)))

    # Commit and apply.

    def _commit(self, index: int) -> None:
        """Commit and apply up to an entry that is the last of its batch."""
        log, role = self.log, self._role
        if index <= log.commit_index:
            return
        batches = log.between(log.commit_index, index)
        log.commit_index = index
        leads = type(role) is Leading
        for batch in batches:
            applied = self._applier.apply(self._now_ns, batch)
            self._applied_bytes += len(batch.data)
            if leads:
                assert type(role) is Leading
                role.pending_bytes -= len(batch.data)
                if applied is not None:
                    self.effects.append(
                        CommandsAnswered(batch.client, batch.sequence, batch.first, applied.answers, applied.statuses)
                    )
                elif batch.kind is BatchKind.OPEN_SESSION and batch.last in role.opening:
                    self.effects.append(SessionOpened(role.opening.pop(batch.last), batch.last))
            if batch.kind is BatchKind.CONFIGURATION:
                self.effects.append(ReplicasChanged(batch.last, decode_configuration(batch.body)))
        if leads:
            assert type(role) is Leading
            if role.early_reads and index >= role.first_index:
                role.reads.extend([WaitingRead(role.round + 1, index, each) for each in role.early_reads])
                role.early_reads = []
                role.is_round_due = True
            self._leave_if_removed()

    def _leave_if_removed(self) -> None:
        """Step down when the configuration without this replica is committed (paper, section 6)."""
        log = self.log
        if self.node not in log.configuration.replicas and log.configuration_index <= log.commit_index:
            self.become_follower(self.term, NOBODY)

    def _take_snapshot_if_due(self) -> None:
        if self._applied_bytes < self.settings.snapshot_log_bytes:
            return
        log, index = self.log, self.applied_index
        term = log.term_at(index)
        assert term is not None
        sessions, application = self._applier.take_snapshot()
        replicas = log.configuration_at(index).encode()
        time_ns = self._applier.time_ns
        image = SnapshotImage(index, term, self._foundation, time_ns, replicas, sessions, application)
        self._snapshot, self._snapshot_index = encode_snapshot(image), index
        self._unsaved_snapshot = self._snapshot
        self._applied_bytes = 0
        if self._is_traced:
            digest = crc32(application)
            self._record(StateSaved(self._now_ns, *self._life, self.group, term, index, digest))

    def _drop_front(self) -> None:
        """Forget the log in front of the snapshot, but for a tail that slow peers may ask for."""
        log = self.log
        left = sum([len(each.data) for each in log.between(log.base_index, self._snapshot_index)])
        front = log.base_index
        for batch in log.batches:
            if batch.last > self._snapshot_index or left <= self.settings.log_tail_bytes:
                break
            left -= len(batch.data)
            front = batch.last
        if front > log.base_index:
            log.drop_front(front)

    # Timers.

    def next_deadline_ns(self) -> int | None:
        """Return when it stands for election, or when the next heartbeat is due."""
        role = self._role
        if type(role) is Leading:
            return role.heartbeat_at_ns
        return self._election_at_ns if self._may_stand() else None

    def on_timer(self, now_ns: int) -> None:
        """Stand for election; or as a leader, look after the peers."""
        self._now_ns = now_ns
        role = self._role
        if type(role) is not Leading:
            if now_ns >= self._election_at_ns and self._may_stand():
                self.become_pre_candidate()
            return
        if now_ns < role.heartbeat_at_ns:
            return
        role.heartbeat_at_ns = now_ns + self.settings.heartbeat_ns
        role.is_round_due = True
        if now_ns - role.began_ns >= self.settings.election_ns and not role.has_quorum(now_ns, self.configuration):
            # Check-quorum: who cannot commit must not look like a leader (thesis, section 6.2).
            self.become_follower(self.term, NOBODY)
            return
        if role.transfer is not None:
            if now_ns >= role.transfer.until_ns:
                role.transfer = None
            else:
                self._go_on_with_transfer(role)
        for peer in role.peers.values():
            peer.go_back(now_ns)

    # Output.

    @property
    def has_data(self) -> bool:
        """Whether entries could be sent now if there were room."""
        role = self._role
        if type(role) is not Leading:
            return False
        log = self.log
        for peer in role.peers.values():  # noqa: SIM110 - asked after every arrival
            if peer.has_more(log):
                return True
        return False

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        """Make what is due: new entries, then the record that all else waits for, then all else."""
        role, made = self._role, list[Datagram]()
        if type(role) is Leading:
            entries = self._make_entries(role, room_bytes)
            if self._promises == self._saved_promises:
                # The leader's disk works while those of its peers do (thesis, section 10.2.1).
                self._gate.counters.datagrams_sent += len(entries)
                self._gate.counters.bytes_sent += sum([len(each.data) for each in entries])
                self.effects += entries
            else:
                made += entries
        self._persist()
        self.effects += self._behind_record
        self._behind_record.clear()
        if type(role) is Leading:
            self._advance_commit(role)
            self._take_snapshot_if_due()
            self._persist()
            if type(self._role) is Leading and role.is_round_due:
                self._send_round(role)
                self._allow_reads(role)
        else:
            self._take_snapshot_if_due()
            self._persist()
        endpoints = self.log.configuration.replicas
        for node, message in self._requests:
            if node in endpoints:
                made.append(self._frame(endpoints[node].endpoint, Kind.CONSENSUS, message, Priority.CONTROL))
        self._requests.clear()
        for (endpoint, _, _), message in self._replies.items():
            made.append(self._frame(endpoint, Kind.CONSENSUS, message, Priority.CONTROL))
        self._replies.clear()
        if self._allowed_reads:
            # Behind all else: what the application shows by then rests on records that are written.
            self.effects.append(ReadsAllowed(self._allowed_reads, self.applied_index))
            self._allowed_reads = []
        return made

    def _persist(self) -> None:
        """Put the record that is due into the effects: what comes behind it may depend on it."""
        log, promises = self.log, self._promises
        if self._unsaved_snapshot:
            batches = log.between(self._snapshot_index, log.last_index)
            record = snapshot_record(promises, self._snapshot_index, self._unsaved_snapshot, batches)
            self._unsaved_snapshot = b""
            log.mark_saved()
            self._drop_front()
        elif log.unsaved_after is not None:
            record = entries_record(promises, log.unsaved_after, log.unsaved())
            log.mark_saved()
        elif promises != self._saved_promises:
            record = entries_record(promises, log.last_index, ())
        else:
            return
        self._saved_promises = promises
        self.effects.append(Persist(record))

    def _make_entries(self, role: Leading, room_bytes: int) -> list[Datagram]:
        log, made, term = self.log, list[Datagram](), self.term
        replicas = log.configuration.replicas
        for node, peer in role.peers.items():
            if not peer.has_more(log):
                continue
            endpoint = replicas[node].endpoint
            if peer.next_index <= log.base_index and peer.state is not ProgressState.SNAPSHOT:
                if len(self._snapshot) > self.settings.snapshot_bytes_max:
                    continue
                peer.become_snapshot(self._snapshot_index, self._snapshot)
            if peer.state is ProgressState.SNAPSHOT:
                for part in peer.snapshot_pieces(self._now_ns, self._content_max, room_bytes):
                    install = InstallSnapshot(term, role.round, *part)
                    made.append(self._frame(endpoint, Kind.ENTRIES, install, Priority.DATA))
                    room_bytes -= len(part.content)
                continue
            for piece in peer.pieces(self._now_ns, log, self._content_max, room_bytes):
                previous_index, previous_term, offset, total, content = piece
                append = AppendEntries(
                    term, role.round, previous_index, previous_term, log.commit_index, offset, total, content
                )
                made.append(self._frame(endpoint, Kind.ENTRIES, append, Priority.DATA))
                room_bytes -= len(content)
        return made

    def _send_round(self, role: Leading) -> None:
        role.round += 1
        role.is_round_due = False
        for node, peer in role.peers.items():
            commit = min(peer.matched, self.log.commit_index)
            self._requests.append((node, LeaderHeartbeat(self.term, role.round, commit)))

    def _frame(self, to: Endpoint, kind: Kind, message: ControlMessage, priority: Priority) -> Datagram:
        data = encode_control(
            kind, self._gate.domain, self.node, self._life[1], self.group, self._foundation, self._now_ns, message
        )
        return Datagram(to, data, priority)

    # Traces.

    def _record(self, record: TraceRecord) -> None:
        self.effects.append(Recorded(record))

    def _trace_appended(self, batch: EntryBatch) -> None:
        self._record(
            BatchAppended(
                self._now_ns, *self._life, self.group, batch.term, batch.first, batch.last + 1, batch.checksum
            )
        )

    def _trace_restored(self, image: SnapshotImage | None) -> None:
        place = (0, 0, 0) if image is None else (image.term, image.index, crc32(image.application))
        self._record(StateRestored(self._now_ns, *self._life, self.group, *place))
