"""What a program asks of a replica, and what a replica tells."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from vivum.core.errors import NotNowError
from vivum.core.ids import NodeId
from vivum.core.machine import Command, Event
from vivum.observe.trace import TraceRecord
from vivum.protocols.consensus.configuration import Replica, ReplicaConfiguration
from vivum.protocols.consensus.sessions import CommandStatus


class NotLeaderError(NotNowError):
    """This replica does not lead. `leader` is who does as far as it knows, or None: ask there, or later."""

    def __init__(self, message: str, leader: Replica | None) -> None:
        super().__init__(message)
        self.leader = leader


class OpenSession(Command, msgspec.Struct, frozen=True):
    """Open a session; `SessionOpened` has its id. A number of the caller's tells requests apart."""

    request: int


class Propose(Command, msgspec.Struct, frozen=True):
    """Append commands of a session, numbered from `sequence` on; `CommandsAnswered` has their answers.

    Numbers of a session begin at 0. All answers below `heard` have reached the client.
    """

    client: int
    sequence: int
    commands: Sequence[bytes]
    heard: int = 0


class ReadIndex(Command, msgspec.Struct, frozen=True):
    """Ask when the application's state may be read: it then has all that was answered before now."""

    request: int


class AdvanceTime(Command, msgspec.Struct, frozen=True):
    """Append an entry that has nothing but its time, for applications that act in log time."""


@dataclass(frozen=True, slots=True)
class AddLearner(Command):
    """Add a replica that gets the log and does not vote."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class PromoteLearner(Command):
    """Let a learner vote."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class RemoveReplica(Command):
    """Remove a replica. A leader may remove itself: it then leads until that is committed."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class TransferLeadership(Command):
    """Hand leadership over to a voter. No commands are taken meanwhile; if it does not work, the leader goes on."""

    to: NodeId


@dataclass(frozen=True, slots=True)
class SessionOpened(Event):
    """The session is open; `client` is its id."""

    request: int
    client: int


class CommandsAnswered(Event, msgspec.Struct, frozen=True):
    """Commands are committed: an answer for each, and what became of each (None: all are done).

    Told by the leader alone. `index` is the entry of the first one, of this try.
    """

    client: int
    sequence: int
    index: int
    answers: list[bytes]
    statuses: list[CommandStatus] | None


class ReadsAllowed(Event, msgspec.Struct, frozen=True):
    """The application's state, as it is now or later, may be read for these requests."""

    requests: list[int]
    index: int


@dataclass(frozen=True, slots=True)
class RequestsRefused(Event):
    """This replica does not lead any more: reads and sessions that waited get no answer here. Ask the next leader."""

    reads: list[int]
    sessions: list[int]


@dataclass(frozen=True, slots=True)
class LeaderChanged(Event):
    """This replica follows or leads now; 0 for a leader that it does not know. Commands that it had proposed and that
    were not answered may or may not be committed: their clients ask again."""

    term: int
    leader: NodeId


@dataclass(frozen=True, slots=True)
class ReplicasChanged(Event):
    """A configuration is committed."""

    index: int
    configuration: ReplicaConfiguration


class Recorded(Event, msgspec.Struct, frozen=True):
    """A trace record, among the effects in its place: what a replica that dies did not come to is not recorded."""

    record: TraceRecord


@dataclass(frozen=True, slots=True)
class ReplicaHealed(Event):
    """All that a damaged disk had lost is back: this replica votes again."""

    index: int
