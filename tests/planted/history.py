"""A short way to write histories: one method a record, time going on by a microsecond with each.

Lives are written as strings, `"1.1"` for the first life of node 1. The content of a message is its digest;
by default each message has its own.
"""

from dataclasses import dataclass
from typing import TypeVar
from zlib import crc32

from vivum.core.time import SECOND
from vivum.observe.faults import HEALED, Fault
from vivum.observe.trace import (
    FaultInjected,
    GroupJoined,
    GroupLeft,
    GroupNamed,
    KeyDelivered,
    MessageDelivered,
    MessageSent,
    MessagesFailed,
    MessagesLost,
    MessagesSkipped,
    MessagesStable,
    NodeStarted,
    NodeStopped,
    QueueMeasured,
    Record,
    TraceRecord,
    ViewInstalled,
)

STEP_NS = 1_000

_R = TypeVar("_R", bound=Record)


class History:
    """A list of records that grows by one with each call, which also returns the record."""

    def __init__(self) -> None:
        self.records: list[TraceRecord] = []
        self._waited_ns = 0

    def wait(self, seconds: int) -> None:
        """Let time go by."""
        self._waited_ns += seconds * SECOND

    def start(self, life: str) -> NodeStarted:
        return self._add(NodeStarted(*self._at(life)))

    def stop(self, life: str, cause: str = "crash") -> NodeStopped:
        return self._add(NodeStopped(*self._at(life), cause=cause))

    def join(self, life: str, group: int = 1) -> GroupJoined:
        return self._add(GroupJoined(*self._at(life), group=group))

    def leave(self, life: str, group: int = 1) -> GroupLeft:
        return self._add(GroupLeft(*self._at(life), group=group))

    def view(self, life: str, view: int, *members: str, group: int = 1) -> ViewInstalled:
        return self._add(ViewInstalled(*self._at(life), group=group, view=view, members=members))

    def send(self, life: str, sequence: int, *, group: int = 1, view: int = 0) -> MessageSent:
        digest = digest_of(group, life, sequence)
        return self._add(MessageSent(*self._at(life), group=group, sequence=sequence, view=view, digest=digest))

    def deliver(
        self,
        life: str,
        sender: str,
        sequence: int,
        *,
        group: int = 1,
        view: int = 0,
        digest: int | None = None,
    ) -> MessageDelivered:
        node, incarnation = parse(sender)
        return self._add(
            MessageDelivered(
                *self._at(life),
                group=group,
                sender=node,
                sender_incarnation=incarnation,
                sequence=sequence,
                view=view,
                digest=digest_of(group, sender, sequence) if digest is None else digest,
                sent_ns=0,
            )
        )

    def everywhere(self, lives: list[str], sender: str, *sequences: int, group: int = 1, view: int = 0) -> None:
        """Send messages and deliver each at once at all these lives."""
        for sequence in sequences:
            self.send(sender, sequence, group=group, view=view)
            for life in lives:
                self.deliver(life, sender, sequence, group=group, view=view)

    def lost(self, life: str, sender: str, first: int, stop: int, *, group: int = 1) -> MessagesLost:
        node, incarnation = parse(sender)
        record = MessagesLost(
            *self._at(life),
            group=group,
            sender=node,
            sender_incarnation=incarnation,
            sequence=first,
            stop=stop,
        )
        return self._add(record)

    def skipped(self, life: str, sender: str, first: int, stop: int, *, group: int = 1) -> MessagesSkipped:
        return self._add(
            MessagesSkipped(*self._at(life), group, *parse(sender), first, stop),
        )

    def key(self, life: str, sender: str, sequence: int, key: int, *, group: int = 1) -> KeyDelivered:
        return self._add(KeyDelivered(*self._at(life), group, *parse(sender), sequence, key))

    def named(self, life: str, group: int, guarantee: str) -> GroupNamed:
        return self._add(GroupNamed(*self._at(life), group, f"/topic/{group}", guarantee))

    def failed(self, life: str, first: int, stop: int, *, group: int = 1, receiver: int = 0) -> MessagesFailed:
        record = MessagesFailed(
            *self._at(life), group=group, sequence=first, stop=stop, receiver=receiver, cause="silent"
        )
        return self._add(record)

    def stable(self, life: str, first: int, stop: int, *, group: int = 1) -> MessagesStable:
        return self._add(MessagesStable(*self._at(life), group=group, sequence=first, stop=stop))

    def fault(self, kind: str, *nodes: int, seconds: int = 0) -> FaultInjected:
        """Begin a fault at these nodes (none: at all), for a time (0: for ever), as the simulator tells of it."""
        return self._add(FaultInjected(*self._at("0.0"), cause=str(Fault(kind, nodes, (), seconds * SECOND))))

    def heal(self) -> FaultInjected:
        return self._add(FaultInjected(*self._at("0.0"), cause=HEALED))

    def queue(self, life: str, depth: int, limit: int) -> QueueMeasured:
        return self._add(QueueMeasured(*self._at(life), queue="pending", depth=depth, limit=limit, unit="messages"))

    def _at(self, life: str) -> tuple[int, int, int]:
        return (len(self.records) * STEP_NS + self._waited_ns, *parse(life))

    def _add(self, record: _R) -> _R:
        self.records.append(record)  # type: ignore[arg-type]
        return record


def parse(life: str) -> tuple[int, int]:
    """Read `"node.incarnation"`."""
    node, incarnation = life.split(".")
    return int(node), int(incarnation)


def digest_of(group: int, sender: str, sequence: int) -> int:
    """Make up the digest of a message."""
    return crc32(f"{group} {sender} {sequence}".encode())


@dataclass(frozen=True)
class Planted:
    """A history and what must be found in it."""

    records: list[TraceRecord]
    checker: str | None = None
    witnesses: tuple[TraceRecord, ...] = ()
    also: frozenset[str] = frozenset()

    @property
    def caught_by(self) -> frozenset[str]:
        """All checkers that must find something."""
        return self.also if self.checker is None else self.also | {self.checker}


def started(*lives: str, group: int = 1) -> History:
    history = History()
    for life in lives:
        history.start(life)
    for life in lives:
        history.join(life, group)
    return history
