"""The machine contract: how every protocol, and the node that composes them, is driven.

A machine is a pure state machine. It owns no socket, clock, thread or source of randomness; a driver (the simulator,
the asyncio runtime, a test) feeds it and carries out what it asks for, through five calls:

    machine.on_datagrams(now_ns, arrived)          bytes arrived, with where they came from
    machine.submit(now_ns, command)                the application wants something
    machine.on_timer(now_ns)                       the deadline passed
    machine.next_deadline_ns()                     when to call on_timer, or None
    machine.take_output(room_bytes)                what to do now: effects, in order

Output is one list of effects in the order of their causes: a `Delivery` to hand over, an `InstallView`, a record to
`Persist`, a `Datagram` to send, an `Event` to report. A driver carries them out in that order. Nothing is sent before
the records in front of it are on disk; a view is installed where the protocol put it among the messages; an effect
that raises (a socket, a callback) loses no other. Frames made at the moment of sending come last, the most urgent
first.

Rules for drivers: `now_ns` never goes back; after any batch of inputs call `take_output()` until it is empty, then ask
for the deadline again; `on_timer` may come late or early. Control frames made in `take_output()` carry the state of
that instant (seed 004, section 6: act on fresh state). New data is pulled: at most `room_bytes` of it are sealed, what
the network would take now; all else is always returned. While `has_data` is true, more data waits for room. With
`NO_FRAMES` for room, no frame is made and only what inputs have caused is returned: ask for the rest soon.

One optional fast call: `send_now(now_ns, command)` submits messages and returns the frames that can leave at once,
before control frames are made. `take_output()` must follow soon. A transport that persists has no fast call: its frames
would leave before the record on which they rest, which comes with that output. A node asserts this when it is built.

A transport may also tell how many bytes of messages it is sure to take (`protocols.contract.TellsRoom`), so that an
application's messages can be accepted before it gets them. `on_datagrams` is told how long the last datagram waited in
this host, which is no delay of the network.

Rules for machines: ignore with a counter, then assert, then act, then check invariants. Never assert on remote data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import msgspec

from vivum.core.ids import Channel, Endpoint, GroupId, Member, ViewNumber


class Priority(IntEnum):
    """Strict order of handling, both ways: a lower number always goes first.

    Seed 004, section 5.3: repairs at equal priority with tokens doubled the time of a token round.
    """

    CONTROL = 0
    REPAIR = 1
    DATA = 2


class Datagram(msgspec.Struct, frozen=True, gc=False):
    """Effect: send a datagram, or a train of them, to an endpoint or to everybody who listens on a channel."""

    destination: Endpoint | Channel
    data: bytes
    priority: Priority = Priority.DATA
    segment: int = 0
    """Of a train: bytes of each of its datagrams but the last, which may be shorter. 0: `data` is one datagram."""

    @property
    def count(self) -> int:
        """Number of datagrams in `data`."""
        return -(-len(self.data) // self.segment) if self.segment else 1

    def cut(self) -> "Sequence[Datagram]":
        """Return the datagrams of a train."""
        data, segment = self.data, self.segment
        if not segment:
            return (self,)
        pieces = [data[at : at + segment] for at in range(0, len(data), segment)]
        return [Datagram(self.destination, piece, self.priority) for piece in pieces]


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """Effect: hand over a run of messages of one sender in one group; `payloads[i]` has `first_sequence + i`.

    Runs, not single messages, cross the boundary: per-message work stays out of interpreted loops. A msgspec struct,
    like `Datagram`, because one is made for every frame: it takes a tenth of the time of a frozen dataclass.
    """

    group: GroupId
    sender: Member
    first_sequence: int
    payloads: Sequence[bytes]
    view: ViewNumber
    sent_ns: int
    heads: Sequence[bytes] = ()
    """Where a layer puts heads before messages: the head of each message, which recorders keep and send again. One
    byte, then the message's key, if it has one."""


class InstallView(msgspec.Struct, frozen=True):
    """Effect: install a view of groups that have the same members.

    A view change is one effect, not one for each group.
    """

    groups: tuple[int, ...]
    """Flat bounds of ranges of groups (`RangeSet.from_bounds`)."""

    number: ViewNumber
    members: tuple[Member, ...]
    """Oldest first."""


class Persist(msgspec.Struct, frozen=True):
    """Effect: append a record to stable storage before any later effect is carried out."""

    record: bytes


class Command:
    """Base of what an application asks a machine to do. Names are imperative: `JoinGroup`, `SendMessages`."""

    __slots__ = ()


class Event:
    """Base of what a machine reports. Names are past tense: `ServiceFound`, `SendFailed`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ChannelOpened(Event):
    """The driver must listen on this channel from now on."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class ChannelClosed(Event):
    """The driver must no longer listen on this channel."""

    channel: Channel


Effect = Datagram | Delivery | InstallView | Persist | Event

ROOM_BYTES_UNLIMITED = 1 << 62
"""The room of a network that takes everything, as in tests."""

NO_FRAMES = -(1 << 62)
"""The room to pass for what inputs have caused alone, without any frames yet."""


class Machine(Protocol):
    """The calls that a driver may make. The module's docstring has the rules for both sides."""

    def on_datagrams(self, now_ns: int, arrived: Sequence[tuple[Endpoint, bytes]], waited_ns: int = 0) -> None:
        """Take what arrived together, in this order; each is one datagram, or several that the kernel joined.

        `waited_ns` is how long the last data among them had waited in this host's buffers, or less: that is not the
        network's delay.
        """
        ...

    def submit(self, now_ns: int, command: Command) -> None:
        """Take a command of the application. Raises `UsageError` if it is refused; then nothing has changed."""
        ...

    def on_timer(self, now_ns: int) -> None:
        """Do what is due. Must be harmless when called early or late."""
        ...

    def next_deadline_ns(self) -> int | None:
        """Return the earliest time at which something will be due, or None."""
        ...

    def take_output(self, room_bytes: int = ROOM_BYTES_UNLIMITED) -> list[Effect]:
        """Return the effects that are due, and forget them; seal at most this much new data.

        Data beyond a quantum may be held back: call again until the list is empty.
        """
        ...

    def send_now(self, now_ns: int, command: Command) -> list[Datagram]:
        """Take a command as `submit` does; return those of its frames that can leave at once, often none."""
        ...

    @property
    def has_data(self) -> bool:
        """Whether new data could be sealed now if there were room. The driver calls again when there is."""
        ...
