"""The replicated state of a domain: the configuration service and the names of topics, as an application of the log.

Lives, groups, regions, epochs, names, types and guarantees are the result of applied commands and of nothing else: no
time, no randomness. Every replica has the same. Who speaks for it, the leader's `ServiceMachine`, reads what commands
came to from `applied`.

A history begins with a state of its own (`found`), or with a copy of another history's that lost its log (`fork`). Its
numbers then begin where no other history's are.
"""

from dataclasses import dataclass
from zlib import crc32

import msgspec

from vivum.core.errors import DecodeError
from vivum.core.ids import Endpoint, GroupId, Incarnation, Member, NodeId
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.service.snapshot import read_state, write_state
from vivum.protocols.membership.service.state import ConfigurationService, Life
from vivum.protocols.membership.service.topics import BLOCK, BLOCKS, TopicState, TopicTable
from vivum.protocols.membership.settings import ServiceSettings
from vivum.wire.membership import ConfigurationAck, Join, Leave, Subscribe
from vivum.wire.service_log import BatchClosed, LogAct, LogEntry, TopicsCreated, decode_entry, encode_entry


@dataclass(slots=True)
class Applied:
    """What a command came to."""

    member: Member
    act: LogAct
    life: Life | None = None
    """The life that it began, changed or ended."""

    concerned: list[Member] | None = None
    """Of a closed batch: whom the new epoch concerns."""


class _Image(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    founded_ns: int
    parent: int
    parent_epoch: int
    service: bytes
    topics: tuple[int, int, int, list[TopicState]]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Image).decode


def command(act: LogAct, member: tuple[int, int] = (0, 0)) -> bytes:
    """Make a command of the log."""
    return encode_entry(LogEntry(*member, act))


class ReplicatedDomain:
    """The application above the service's log (`consensus.state_machine.StateMachine`)."""

    def __init__(self, settings: ServiceSettings | None = None) -> None:
        self.service = ConfigurationService(settings)
        self.topics = TopicTable(self.service.settings.topics_max)
        self.founded_ns = 0
        """When the history began: what decides between two that never met, if they have as many members."""

        self.parent = 0
        """The history that this one went on from, 0 for none."""

        self.parent_epoch = 0
        """The last epoch of it that this one knows."""

        self.applied: list[Applied] = []
        """What commands came to, for the speaker: it takes them out. Kept only while `is_watched`."""

        self.is_watched = False

    # Beginnings of histories.

    @staticmethod
    def found(settings: ServiceSettings, now_ns: int, salt: int) -> "ReplicatedDomain":
        """Begin a history. `salt` decides where its numbers begin; 0 is for a domain that can have only one."""
        state = ReplicatedDomain(settings)
        state.founded_ns = now_ns
        if salt:
            state.service.begin_at(salt)
            state.topics = TopicTable(settings.topics_max, salt % BLOCKS * BLOCK + 1)
        return state

    def fork(self, history: int, now_ns: int, salt: int) -> "ReplicatedDomain":
        """Return the beginning of a history that goes on from this copy of another one, with higher numbers."""
        state = ReplicatedDomain()
        state.restore(self.snapshot())
        state.founded_ns, state.parent, state.parent_epoch = now_ns, history, state.service.epoch
        state.service.leap(salt)
        return state

    # Commands.

    def apply(self, index: int, command: bytes) -> bytes:  # noqa: ARG002
        """Run a command. What makes no sense changes nothing, here as at every other replica."""
        try:
            entry = decode_entry(command)
        except DecodeError:
            return b""
        done = self._run(Member(NodeId(entry.node), Incarnation(entry.incarnation)), entry.act)
        if self.is_watched and done is not None:
            self.applied.append(done)
        return b""

    def _run(self, member: Member, act: LogAct) -> Applied | None:
        service = self.service
        match act:
            case Join(name, wanted, host, port, replica):
                return Applied(member, act, service.join(name, NodeId(wanted), Endpoint(host, port), replica))
            case BatchClosed():
                return Applied(member, act, concerned=service.close_batch())
            case TopicsCreated(topics):
                self.topics.create(topics, self.has_members)
                return Applied(member, act)
        life = service.life_of(member)
        if life is None:
            return None
        match act:
            case Subscribe(request, add, remove):
                service.subscribe(life, request, RangeSet.from_bounds(add), RangeSet.from_bounds(remove))
            case ConfigurationAck(epoch):
                if epoch > service.epoch:
                    return None
                service.acknowledge(life, epoch)
            case Leave():
                service.leave(life)
        return Applied(member, act, life)

    def has_members(self, group: GroupId) -> bool:
        """Return whether a life is in a group."""
        return any(group in life.groups for life in self.service.lives.values())

    # Snapshots.

    def snapshot(self) -> bytes:
        """Return the whole state."""
        service = write_state(self.service)
        return _encode(_Image(self.founded_ns, self.parent, self.parent_epoch, service, self.topics.state()))

    def restore(self, data: bytes) -> None:
        """Replace the whole state by that of a snapshot; raises `DecodeError`, and changes nothing, if it is none."""
        try:
            image = _decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DecodeError(f"state of a domain: {error}") from None
        service = read_state(image.service)
        self.service = service
        self.topics = TopicTable.of(image.topics)
        self.founded_ns, self.parent, self.parent_epoch = image.founded_ns, image.parent, image.parent_epoch
        self.applied.clear()

    def digest(self) -> int:
        """Return a number that is the same at replicas that have the same state."""
        return crc32(self.snapshot())
