"""The machine contract: how every protocol, and the node that composes them, is driven.

A machine is a pure state machine. It owns no socket, clock, thread or source of randomness; a driver (the
simulator, the asyncio runtime, a test) feeds it and carries out what it asks for:

    machine.on_datagram(now_ns, source, data)      bytes arrived
    machine.on_datagrams(now_ns, arrived)          several at once: the same, for less work
    machine.submit(now_ns, command)                the application wants something
    machine.on_timer(now_ns)                       the deadline passed
    machine.next_deadline_ns()                     when to call on_timer, or None
    machine.take_output(room_bytes)                what to send, deliver and tell; empties it

Rules for drivers: `now_ns` never goes back; after any batch of inputs call `take_output()` until it is empty of
datagrams, then ask for the deadline again; `on_timer` may come late or for nothing. Datagrams are sealed inside
`take_output()`, so a control frame made there carries the state of that instant (seed 004, section 6: act on fresh
state). New data is pulled: no more of it is sealed than `room_bytes`, what the network would take now. Control
frames, repairs, deliveries and events always come. While `has_data` is true, more data waits for room.

For who is in a hurry there is a short way in and out: `take_deliveries()` after a datagram, `send_now(now_ns, command)`
in the place of `submit`, and a shorter one before both, `hear_now` and `seal_now`, for what was expected. What else
they caused is had by `take_output()` as ever, which must follow soon.

Rules for machines: ignore with a counter, then assert, then act, then check invariants. Never assert on remote data.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
    """One datagram to send: to a node's endpoint, or to everybody who listens on a channel."""

    destination: Endpoint | Channel
    data: bytes
    priority: Priority = Priority.DATA


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A run of messages of one sender in one group, in order: `payloads[i]` has sequence `first_sequence + i`.

    Runs, not single messages, cross the boundary: per-message work stays out of interpreted loops. A msgspec
    struct, as `Datagram` is, because one is made for every frame: a tenth of the time of a frozen dataclass.
    """

    group: GroupId
    sender: Member
    first_sequence: int
    payloads: Sequence[bytes]
    view: ViewNumber
    sent_ns: int


class Command:
    """Base of what an application asks of a machine. Names are imperative: `JoinGroup`, `SendMessages`."""

    __slots__ = ()


class Event:
    """Base of what a machine tells. Names are past tense: `ViewInstalled`, `MessagesFailed`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ChannelOpened(Event):
    """The driver must listen on this channel from now on."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class ChannelClosed(Event):
    """The driver must no longer listen on this channel."""

    channel: Channel


@dataclass(slots=True)
class Output:
    """All that a machine wants done since the last `take_output()`."""

    datagrams: list[Datagram] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.datagrams or self.deliveries or self.events)


ROOM_BYTES_UNLIMITED = 1 << 62
"""Room of a network that takes everything, as in tests."""

EMPTY_OUTPUT = Output()
"""What a machine hands over when there is nothing: always this object, so that a driver may ask `is`. Never filled."""


class Machine(Protocol):
    """What a driver may call. See the module's text for the rules of both sides."""

    def on_datagram(self, now_ns: int, source: Endpoint, data: bytes) -> None:
        """Take bytes that arrived: one datagram, or several of one source that the kernel joined."""
        ...

    def on_datagrams(self, now_ns: int, arrived: Sequence[tuple[Endpoint, bytes]]) -> None:
        """Take what arrived together: the same as each of them by `on_datagram`, in this order."""
        ...

    def submit(self, now_ns: int, command: Command) -> None:
        """Take a command of the application. Raises `UsageError` if it cannot be accepted; then nothing changed."""
        ...

    def on_timer(self, now_ns: int) -> None:
        """Do what is due. Must be harmless when called early or late."""
        ...

    def next_deadline_ns(self) -> int | None:
        """Tell the earliest time at which something will be due, or None."""
        ...

    def take_output(self, room_bytes: int = ROOM_BYTES_UNLIMITED) -> Output:
        """Hand over, and forget, what to send, deliver and tell; seal at most this much new data.

        The output belongs to the caller until the next call. It may hold back data beyond a quantum: call again.
        """
        ...

    def take_deliveries(self) -> list[Delivery]:
        """Hand over, and forget, what to deliver, unless something must be told before; often nothing."""
        ...

    @property
    def hear_now(self) -> Callable[[int, Endpoint, bytes], Delivery | None]:
        """Take a datagram if it is exactly what was expected next, and return its message.

        None, and nothing changed, if it is not: then it must come by `on_datagram`. After it, and after `seal_now`,
        `take_deliveries` must follow soon.
        """
        ...

    @property
    def seal_now(self) -> Callable[[int, Command], list[Datagram] | None]:
        """As `send_now`, for messages that were expected; None, and nothing changed, if it is none of these."""
        ...

    def send_now(self, now_ns: int, command: Command) -> list[Datagram]:
        """Take a command as `submit` does. Return what it sends, if that can be sealed at once; often nothing."""
        ...

    @property
    def has_data(self) -> bool:
        """Tell whether new data could be sealed now if there were room: the driver comes back when there is."""
        ...
