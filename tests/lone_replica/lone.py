"""Replica 1 of three; the test speaks for replicas 2 and 3, and sees in which order records and messages come."""

from collections.abc import Sequence
from random import Random
from typing import Any

from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.machine import Command, Datagram, Effect, Event, Persist
from vivum.core.time import MILLISECOND, SECOND
from vivum.node.node import Node
from vivum.observe.counters import Counters
from vivum.protocols.consensus.batch import BatchKind, EntryBatch, pack_commands, seal_batch
from vivum.protocols.consensus.commands import CommandsAnswered, OpenSession, SessionOpened
from vivum.protocols.consensus.configuration import Replica, ReplicaConfiguration
from vivum.protocols.consensus.machine import ReplicaMachine
from vivum.protocols.consensus.records import founding_record, read_stored_record, recover
from vivum.protocols.consensus.settings import ConsensusSettings
from vivum.wire.codec import split
from vivum.wire.consensus import AppendEntries, AppendReply, HeartbeatReply, LeaderHeartbeat, Vote
from vivum.wire.control import CONTROL_TYPES, decode_control, encode_control
from vivum.wire.fields import ControlMessage
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind

DOMAIN, GROUP = 5, 1
FOUNDERS = ReplicaConfiguration(Replica(number, f"replica-{number}", 1) for number in (1, 2, 3))
FOUNDATION = recover([founding_record(FOUNDERS)]).foundation


class Journal:
    """An application that keeps all commands."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    def apply(self, index: int, command: bytes) -> bytes:
        self.commands.append(command)
        return b"%d:%b" % (index, command)

    def snapshot(self) -> bytes:
        return b"\n".join(self.commands)

    def restore(self, data: bytes) -> None:
        self.commands = data.split(b"\n") if data else []


def batch(first: int, term: int, *commands: bytes, **more: int) -> EntryBatch:
    """Seal commands, or a no-op."""
    if not commands:
        return seal_batch(BatchKind.NOOP, first, term, 0)
    return seal_batch(BatchKind.COMMANDS, first, term, 0, pack_commands(commands), len(commands), **more)


class Lone:
    """The replica, its disk and its clock."""

    def __init__(self, founders: ReplicaConfiguration | None = FOUNDERS, **settings: Any) -> None:
        self.now_ns = 10 * SECOND
        self.settings = ConsensusSettings(**settings)
        self.disk: list[bytes] = [] if founders is None else [founding_record(founders)]
        self.starts = 0
        self.start()

    def start(self) -> None:
        """Begin a life with what is on the disk."""
        self.starts += 1
        self.counters, self.journal = Counters(), Journal()
        member = Member(NodeId(1), Incarnation(self.starts))
        gate = Gate(DOMAIN, self.counters, member)
        self.replica = ReplicaMachine(
            NodeId(1),
            GROUP,
            recover(self.disk),
            self.journal,
            gate,
            Random(self.starts),
            self.settings,
            now_ns=self.now_ns,
            incarnation=self.starts,
        )
        self.node = Node(member, gate, [self.replica], self.counters)

    # In.

    def tell(self, sender: int, *messages: ControlMessage, foundation: int = FOUNDATION, group: int = GROUP) -> None:
        """Let a peer send messages that arrive together."""
        arrived = [
            (
                Endpoint(f"replica-{sender}", 1),
                encode_control(kind_of(each), DOMAIN, sender, 1, group, foundation, self.now_ns, each),
            )
            for each in messages
        ]
        self.node.on_datagrams(self.now_ns, arrived)

    def submit(self, command: Command) -> None:
        self.node.submit(self.now_ns, command)

    def wait(self, duration_ns: int) -> list[Any]:
        """Let time pass; return all that comes of it."""
        until_ns, seen = self.now_ns + duration_ns, self.take()
        while (at_ns := self.node.next_deadline_ns()) is not None and at_ns <= until_ns:
            self.now_ns = max(self.now_ns, at_ns)
            self.node.on_timer(self.now_ns)
            seen += self.take()
        self.now_ns = until_ns
        return seen

    # Out.

    def take(self) -> list[Any]:
        """Carry out what is due; return records, messages as (receiver, message) and events, in their order."""
        seen: list[Any] = []
        while effects := self.node.take_output():
            seen += [self._carry_out(each) for each in effects]
        return seen

    def _carry_out(self, effect: Effect) -> Any:
        if isinstance(effect, Persist):
            self.disk.append(effect.record)
            return read_stored_record(effect.record)
        if isinstance(effect, Datagram):
            assert isinstance(effect.destination, Endpoint)
            (frame,) = split(effect.data)
            return int(effect.destination.host.removeprefix("replica-")), decode_control(frame)
        assert isinstance(effect, Event)
        return effect

    # What tests often need.

    def lead(self) -> int:
        """Let it be elected by replica 2, and its no-op be committed; return the term."""
        self.wait(2 * self.settings.election_ns)
        term = self.replica.term
        self.tell(2, Vote(term + 1, is_pre=True, is_granted=True))
        self.take()
        term = self.replica.term
        self.tell(2, Vote(term, is_pre=False, is_granted=True))
        self.take()
        assert self.replica.leads
        self.acknowledge(2)
        return term

    def acknowledge(self, *peers: int) -> list[Any]:
        """Let peers have everything, as of the latest round."""
        log = self.replica.log
        round_ = getattr(self.replica.role, "round", 0)
        for peer in peers:
            self.tell(peer, AppendReply(self.replica.term, round_, log.last_index, 0, 0, 0))
        return self.take()

    def answer_round(self, *peers: int) -> list[Any]:
        """Let peers answer the latest round of heartbeats."""
        for peer in peers:
            self.tell(peer, HeartbeatReply(self.replica.term, getattr(self.replica.role, "round", 0), 0, 0))
        return self.take()

    def follow(self, leader: int, term: int) -> None:
        """Let a peer lead."""
        self.tell(leader, LeaderHeartbeat(term, 1, 0))
        self.take()

    def append(
        self, leader: int, term: int, previous: tuple[int, int], *batches: EntryBatch, commit: int = 0
    ) -> list[Any]:
        """Let a leader send batches."""
        content = b"".join([each.data for each in batches])
        self.tell(leader, AppendEntries(term, 1, *previous, commit, 0, 0, content))
        return self.take()

    def session(self) -> int:
        """Open a session at this leader."""
        self.submit(OpenSession(1))
        self.take()
        (opened,) = [each for each in self.acknowledge(2) if isinstance(each, SessionOpened)]
        return opened.client


def kind_of(message: ControlMessage) -> Kind:
    return next(kind for kind in (Kind.CONSENSUS, Kind.ENTRIES) if type(message) in CONTROL_TYPES[kind])


def messages(seen: Sequence[Any], kind: type, to: int = 0) -> list[Any]:
    """Return the messages of a type, to one or to all."""
    return [
        each[1]
        for each in seen
        if isinstance(each, tuple) and len(each) == 2 and isinstance(each[1], kind) and to in (0, each[0])
    ]


def answers(seen: Sequence[Any]) -> list[bytes]:
    """Return the answers that the application gave."""
    return [answer for each in seen if isinstance(each, CommandsAnswered) for answer in each.answers]


ELECTION_NS = 400 * MILLISECOND
