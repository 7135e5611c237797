"""What a protocol inside a node looks like: the machine contract, with frames in place of datagrams.

The node opens datagrams at one gate and hands each frame to the protocol that registered its kind, so a protocol
never sees bytes that do not decode. Output comes in two halves. What inputs cause, a protocol appends to `effects`,
and the node takes it from there after every call, so that the order of causes holds across protocols. Frames are made
in `make_frames`, from the state of that moment.
"""

from typing import Literal, Protocol, runtime_checkable

from vivum.core.ids import Endpoint, GroupId, ViewNumber
from vivum.core.machine import Command, Datagram, Effect
from vivum.protocols.commands import Tuning
from vivum.wire.codec import Frame
from vivum.wire.kinds import Kind


class ProtocolMachine(Protocol):
    """A protocol that a node can compose."""

    kinds: frozenset[Kind]
    commands: frozenset[type[Command]]
    transport: str
    """The name by which guarantees call for it, if it is a transport of messages; else empty."""

    effects: list[Effect]
    """What inputs have caused, in order. The caller takes and clears it."""

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a frame of one of `kinds`. It is well formed; whether it makes sense now is for the protocol to say."""
        ...

    def submit(self, now_ns: int, command: Command) -> None:
        """Take one of `commands`. Raises `UsageError` if it cannot be accepted; then nothing changed."""
        ...

    def on_timer(self, now_ns: int) -> None:
        """Do what is due."""
        ...

    def next_deadline_ns(self) -> int | None:
        """Return the earliest time at which something will be due, or None."""
        ...

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        """Make the frames that are due, with at most this much new data. May append to `effects`."""
        ...

    @property
    def has_data(self) -> bool:
        """Whether new data could be sealed now if there were room."""
        ...


@runtime_checkable
class NumbersMessages(Protocol):
    """A transport: it numbers the own messages of a group, in each life from 0, in the order in which it takes them."""

    def next_sequence(self, group: GroupId) -> int:
        """Return the number that the next own message of a group gets."""
        ...

    def view_of(self, group: GroupId) -> ViewNumber:
        """Return the view in which the next own message of a group is sent; 0 where there are no views."""
        ...


@runtime_checkable
class TellsRoom(Protocol):
    """A transport that knows how much it would take, so that messages can be accepted before it gets them."""

    def room_bytes(self, group: GroupId) -> int:
        """Return how many bytes of messages of a group are sure to be accepted, until the next input; 0 if unknown.

        In one message or in many, so never more than one message may have.
        """
        ...


@runtime_checkable
class KeepsMemory(Protocol):
    """A protocol that keeps messages or frames, and knows how much."""

    @property
    def held_bytes(self) -> int:
        """Bytes that are kept now."""
        ...


@runtime_checkable
class TakesRuns(Protocol):
    """A protocol that takes frames which arrived together at once: the same as one after the other, for less work."""

    def on_frames(self, now_ns: int, source: Endpoint, frames: list[Frame]) -> None:
        """Take frames of one of `kinds`, all of one kind and from one place, in the order in which they arrived."""
        ...


@runtime_checkable
class SendsNow(Protocol):
    """A protocol with the optional fast call of `vivum.core.machine`. Not for those that persist."""

    def send_now(self, now_ns: int, command: Command) -> list[Datagram]:
        """Take one of `commands`; return frames of it that can leave before all else."""
        ...


@runtime_checkable
class TakesTuning(Protocol):
    """A transport that takes wishes for single groups."""

    def tune(self, group: GroupId, tuning: Tuning | None) -> None:
        """Take the wishes for a group, or none. Raises `UsageError` for those that cannot be; then nothing changed."""
        ...


@runtime_checkable
class Persists(Protocol):
    """A protocol that appends `Persist` records to its effects, and so must have no fast call."""

    persists: Literal[True]
