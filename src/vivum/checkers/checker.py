"""What all checkers have in common: handlers by kind of record, and violations with witnesses.

A checker is fed every trace record of a run, in the true order of the run (`vivum.checkers.clocks` makes
such an order for traces of several clocks), and asked at the end what was wrong. It judges what was
recorded, not how a protocol works: it knows no frames, no timers and no settings.

    checker = NoDuplicate()
    for record in records:
        checker.on_record(record)
    violations = checker.finish()

Words that every checker uses. A *life* is `(node, incarnation)`; a new life starts with nothing. A *stay*
is one membership: of one life, in one group, from `GroupJoined` to `GroupLeft` or the end of the life;
without a `GroupJoined` it begins with what is recorded first. A *stream* is all messages of one sender's
life in one group. Promises are made to stays.

Invariants: verdicts are exact however long the run is; only the number of violations kept in full, and how
far back a witness is remembered, are bounded.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from vivum.observe.trace import RECORD_TYPES, MessageDelivered, MessageSent, Record, TraceRecord

VIOLATIONS_KEPT_MAX = 20
"""Violations that a checker keeps in full. Further ones are only counted: the first show what is broken."""

WITNESSES_RECENT_MAX = 65_536
"""Records remembered for use as witnesses. A violation whose other half is older names it in words alone."""

ENDS_FROM_OUTSIDE = frozenset({"crash", "closed"})
"""Causes of `NodeStopped` that the protocol has no hand in: the process died, or its user closed the node. With any
other cause the protocol ended the life: the life was *lost*."""

Handler = Callable[[Any], None]
"""Takes one record of the type that it is registered for."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: the checker, one sentence of what happened, and the records that prove it."""

    checker: str
    what: str
    witnesses: tuple[TraceRecord, ...]

    def __str__(self) -> str:
        return f"{self.checker}: {self.what}"


class Checker:
    """Base of all checkers. A subclass has a `name`, and an `on_<kind>` for each kind of record it wants."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.violation_count = 0
        self._concluded = False
        self.handlers: dict[type[Record], Handler] = {
            record_type: getattr(self, f"on_{kind}")
            for kind, record_type in RECORD_TYPES.items()
            if hasattr(self, f"on_{kind}")
        }

    def __init_subclass__(cls) -> None:
        """Refuse a handler for a kind of record that does not exist: it would never be called."""
        for name in vars(cls):
            if name.startswith("on_") and name.removeprefix("on_") not in RECORD_TYPES:
                raise TypeError(f"{cls.__name__}.{name} handles no kind of record; kinds are {', '.join(RECORD_TYPES)}")

    def on_record(self, record: TraceRecord) -> None:
        """Take one record of any kind. `CheckerSet` calls the handlers directly, which is faster."""
        handler = self.handlers.get(type(record))
        if handler is not None:
            handler(record)

    def finish(self) -> list[Violation]:
        """End the history and return the violations kept. `violation_count` has the number of all."""
        if not self._concluded:
            self._concluded = True
            self.conclude()
        return self.violations

    def conclude(self) -> None:
        """Find what can only be known at the end. Called once; most checkers have nothing to do here."""

    def report(self, what: str, *witnesses: TraceRecord | None) -> None:
        """Count a violation, and keep it if there is room. A witness no longer remembered is None."""
        self.violation_count += 1
        if self.has_room:
            kept = tuple(each for each in witnesses if each is not None)
            self.violations.append(Violation(self.name, what, kept))

    @property
    def has_room(self) -> bool:
        """Return whether another violation would be kept, so that its witnesses are worth looking for."""
        return len(self.violations) < VIOLATIONS_KEPT_MAX


class RecentDeliveries:
    """The last deliveries of all lives, so that a violation found later can show its other half."""

    __slots__ = ("_records", "remember")

    def __init__(self) -> None:
        self._records: deque[MessageDelivered] = deque(maxlen=WITNESSES_RECENT_MAX)
        self.remember = self._records.append

    def find(self, receiver: tuple[int, int], message: tuple[int, int, int, int]) -> MessageDelivered | None:
        """Find the last delivery of a message at a life, if it is remembered."""
        for record in reversed(self._records):
            if (record.node, record.incarnation) == receiver and message_of(record) == message:
                return record
        return None


def message_of(record: MessageDelivered | MessageSent) -> tuple[int, int, int, int]:
    """Return the identity of the message that was sent or delivered: group, sender, incarnation, sequence."""
    if isinstance(record, MessageSent):
        return record.group, record.node, record.incarnation, record.sequence
    return record.group, record.sender, record.sender_incarnation, record.sequence


def describe(message: tuple[int, int, int, int]) -> str:
    """Name a message for a person."""
    group, sender, incarnation, sequence = message
    return f"message {sequence} of {sender}.{incarnation} in group {group}"
