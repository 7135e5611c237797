"""What applications ask of a protocol, and what a protocol tells them, whatever its guarantee."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

from vivum.core.ids import Channel, GroupId, Member, NodeId
from vivum.core.machine import Command, Event

if TYPE_CHECKING:
    from vivum.protocols.layer import Layer


class SlowMembers(IntEnum):
    """What to do about members of a group that cannot keep up. Where groups share their fate, the highest counts."""

    ISOLATE = 0
    """The healthy members go on; a slow one is served from caches as far as these reach back."""
    DROP = 1
    """As ISOLATE; but who stays behind for too long starts a new life and is brought up to date."""
    WAIT = 2
    """All wait for the slowest, until it is dropped from the domain."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a node wishes for one group, of a transport that takes such wishes. None: as the node's settings say."""

    deadline_ns: int | None = None
    """After this time what is missing is given up and reported as lost; 0: never."""

    repair: tuple[int, int] | None = None
    """The (r, c) of lateral repair: of every r frames an XOR goes to c members."""


@dataclass(frozen=True, slots=True)
class JoinGroup(Command):
    """Take part in a group. A protocol without a membership service is told beforehand where and with whom.

    `slow` is for the messages that this node will send to the group. With `packed`, runs of messages may be delivered
    as `PackedRun`s, for readers that need no object for each message. `transport` and `layers` are those of the group's
    guarantee; without them the node's default transport serves.
    """

    group: GroupId
    channel: Channel
    nodes: Collection[NodeId]
    slow: SlowMembers = SlowMembers.ISOLATE
    packed: bool = False
    transport: str = ""
    layers: tuple["Layer", ...] = ()
    tuning: Tuning | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup(Command):
    """Take no messages of a group any more, and send none."""

    group: GroupId


class SendMessages(Command, msgspec.Struct, frozen=True, gc=False):
    """Send messages to a group, in this order. All of them are accepted, or none and a `LimitError` says why.

    A msgspec struct, because one is made for every message that is sent alone.
    """

    group: GroupId
    payloads: Sequence[bytes]
    measured: tuple[int, int] | None = None
    """Bytes of all and of the largest, from `codec.measure`, if the sender has measured already."""

    heads: Sequence[bytes] | None = None
    """Of a group with a layer that has heads: the head of each message; None if they have none of their own."""


class SendConfirmed(Event, msgspec.Struct, frozen=True, gc=False):
    """Own messages `first <= n < stop` are confirmed: each member of their view has delivered them, or has left, or was
    told that it will not get them. In a group of best effort: they were handed to the network.

    A msgspec struct, because one is made for every batch of every group.
    """

    group: GroupId
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class SendFailed(Event):
    """Own messages `first <= n < stop` may not have reached a node, or any if None; `cause` tells why."""

    group: GroupId
    first: int
    stop: int
    receiver: NodeId | None
    cause: str


@dataclass(frozen=True, slots=True)
class GapReported(Event):
    """Messages `first <= n < stop` of a sender can no longer be had; the stream goes on behind them."""

    group: GroupId
    sender: Member
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class MessagesLeftOut(Event):
    """A layer left out messages `first <= n < stop` of a sender: this node had others under the same keys before, or
    they could not be read."""

    group: GroupId
    sender: Member
    first: int
    stop: int
    are_repeated: bool


@dataclass(frozen=True, slots=True)
class LifeBegan(Event):
    """The node has a place in the domain from now on, as this member."""

    member: Member


@dataclass(frozen=True, slots=True)
class LifeEnded(Event):
    """The node was dropped or left: this life is over, with all its views and numbers."""

    member: Member


@dataclass(frozen=True, slots=True)
class GroupsEntered(Event):
    """This node is a member of these groups from now on; flat bounds of ranges."""

    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupsLeft(Event):
    """This node is no member of these groups any more; flat bounds of ranges."""

    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QueueGrew(Event):
    """A bounded queue reached a new high. For traces; an application need not look."""

    queue: str
    depth: int
    limit: int
    unit: str
