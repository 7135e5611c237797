"""What a protocol inside a node looks like: the machine contract, with frames in place of datagrams.

The node opens datagrams at one gate and hands each frame to the protocol that registered its kind, so a protocol
never sees bytes that do not decode. All else is as in `vivum.core.machine`.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from vivum.core.ids import Endpoint
from vivum.core.machine import ROOM_BYTES_UNLIMITED, Command, Datagram, Delivery, Output
from vivum.wire.codec import Frame
from vivum.wire.kinds import Kind


class ProtocolMachine(Protocol):
    """A protocol that a node can compose."""

    kinds: frozenset[Kind]
    commands: frozenset[type[Command]]

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
        """Tell the earliest time at which something will be due, or None."""
        ...

    def take_output(self, room_bytes: int = ROOM_BYTES_UNLIMITED) -> Output:
        """Hand over, and forget, what to send, deliver and tell; seal at most this much new data."""
        ...

    @property
    def has_data(self) -> bool:
        """Tell whether new data could be sealed now if there were room."""
        ...


@runtime_checkable
class KeepsMemory(Protocol):
    """A protocol that keeps messages or frames, and tells how much."""

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
class AnswersAtOnce(Protocol):
    """A protocol with a short way in and out for single messages (`vivum.core.machine`)."""

    @property
    def hear_now(self) -> Callable[[int, Endpoint, bytes], Delivery | None]:
        """Take a datagram at once, if it is one that was expected; None, and nothing changed, if it is not."""
        ...

    @property
    def seal_now(self) -> Callable[[int, Command], list[Datagram] | None]:
        """As `send_now`, for what was expected; None, and nothing changed, if it was not."""
        ...

    def take_deliveries(self) -> list[Delivery]:
        """Hand over, and forget, what to deliver, unless something must be told before; often nothing."""
        ...

    def send_now(self, now_ns: int, command: Command) -> list[Datagram]:
        """Take one of `commands`, as `submit` does. Return what it sends, if that can be sealed at once."""
        ...
