"""What the reader of a topic gets: single events or whole batches, and views."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from vivum.core.ids import Member

T = TypeVar("T")


class TopicEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One message."""

    topic: str
    """The name of the topic."""

    value: T
    sender: Member
    """The life of the node that sent it: node id and incarnation."""

    sequence: int
    """Number of the message in the topic and in that life of its sender, from 0."""

    view: int
    """Number of the view in which it was sent."""

    time_ns: int
    """When it was sent by the sender's clock, in nanoseconds since 1970."""

    @property
    def time(self) -> float:
        """When it was sent by the sender's clock, in seconds since 1970."""
        return self.time_ns / 1e9


class Batch(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """Consecutive messages of one sender, as they arrived; for high rates (`Topic.batches`)."""

    topic: str
    payloads: Sequence[bytes]
    """The messages as bytes. Message i has the sequence `first_sequence + i`."""

    sender: Member
    first_sequence: int
    view: int
    time_ns: int
    """When they were sent by the sender's clock, in nanoseconds since 1970."""

    decode: Callable[[bytes], Any]

    def __len__(self) -> int:
        return len(self.payloads)

    def values(self) -> list[T]:
        """Decode all messages. Raises msgspec's error if the sender sent anything but the topic's type."""
        return list(map(self.decode, self.payloads))


class TopicView(msgspec.Struct, frozen=True):
    """The agreed membership of a topic, as this node learned it."""

    topic: str
    number: int
    members: tuple[Member, ...]
    """Oldest first: all members have the same order, so the first can lead without an election."""

    joined: tuple[Member, ...]
    left: tuple[Member, ...]
    """Members that joined and left since the view before."""
