"""What a log drives: the application above, and the interpreter that hands committed entries to it."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable
from zlib import crc32

from vivum.observe.trace import BatchCommitted, CommandApplied, Tracer
from vivum.protocols.consensus.batch import BatchKind, EntryBatch
from vivum.protocols.consensus.sessions import CommandStatus, Sessions
from vivum.protocols.consensus.settings import ConsensusSettings


class StateMachine(Protocol):
    """The application above a log. Deterministic: the same commands in the same order make the same state."""

    def apply(self, index: int, command: bytes) -> bytes:
        """Run a command, which is the entry of this index, and return its answer. Must not raise."""
        ...

    def snapshot(self) -> bytes:
        """Return the whole state."""
        ...

    def restore(self, data: bytes) -> None:
        """Replace the whole state by that of a snapshot."""
        ...


@runtime_checkable
class KeepsTime(StateMachine, Protocol):
    """An application that does something in log time, as to end what was not renewed."""

    def on_time(self, index: int, term: int, time_ns: int) -> None:
        """Note the log time at an entry, before the commands that begin there. Told of every batch.

        Within a term it advances at the pace of one clock, the leader's. Between two terms it says nothing.
        """
        ...

    def due_ns(self, term: int) -> int | None:
        """Return at what log time of this term an entry is wanted, or None: the leader then appends one."""
        ...


@runtime_checkable
class AnswersQueries(StateMachine, Protocol):
    """An application that clients can read from, and whose changes they can follow. Changes nothing by it."""

    def read(self, query: bytes) -> bytes:
        """Answer a query from the state as it is. Must not raise."""
        ...

    def follow(self, query: bytes, after: int) -> tuple[int, bytes | None]:
        """Return what changed behind a position, and up to which it was looked at; None if nothing did."""
        ...


class AppliedBatch:
    """What a batch of commands came to: an answer for each, and what became of each (None: all are done)."""

    __slots__ = ("answers", "batch", "statuses")

    def __init__(self, batch: EntryBatch, answers: list[bytes], statuses: list[CommandStatus] | None) -> None:
        self.batch = batch
        self.answers = answers
        self.statuses = statuses


class Applier:
    """Applies committed batches in order."""

    def __init__(
        self,
        group: int,
        life: tuple[int, int],
        application: StateMachine,
        settings: ConsensusSettings,
        trace: Tracer | None,
    ) -> None:
        self.sessions = Sessions(settings)
        self.applied_index = 0
        self.time_ns = 0
        """Log time: when the leader made the last batch that was applied."""

        self._group = group
        self._life = life
        self._application = application
        self._on_time = application.on_time if isinstance(application, KeepsTime) else None
        self._trace = trace

    def apply(self, now_ns: int, batch: EntryBatch) -> AppliedBatch | None:
        """Apply the next batch; return the answers of commands."""
        assert batch.first == self.applied_index + 1, f"{batch} is not the next behind {self.applied_index}"
        if self._trace is not None:
            self._trace(
                BatchCommitted(
                    now_ns, *self._life, self._group, batch.term, batch.first, batch.last + 1, batch.checksum
                )
            )
        self.time_ns = max(self.time_ns, batch.time_ns)
        if self._on_time is not None:
            self._on_time(batch.first, batch.term, self.time_ns)
        applied = None
        if batch.kind is BatchKind.COMMANDS:
            applied = self._run(now_ns, batch)
        elif batch.kind is BatchKind.OPEN_SESSION:
            self.sessions.open(batch.last, self.time_ns)
        self.applied_index = batch.last
        return applied

    def _run(self, now_ns: int, batch: EntryBatch) -> AppliedBatch:
        commands = batch.commands()

        def apply(fresh: Sequence[bytes]) -> list[bytes]:
            run = self._application.apply
            first = batch.last + 1 - len(fresh)
            answers = [run(index, command) for index, command in enumerate(fresh, first)]
            if self._trace is not None:
                self._trace_applied(self._trace, now_ns, batch, first, answers)
            return answers

        answers, statuses = self.sessions.run(batch.client, batch.sequence, batch.heard, self.time_ns, commands, apply)
        return AppliedBatch(batch, answers, statuses)

    def _trace_applied(self, trace: Tracer, now_ns: int, batch: EntryBatch, first: int, answers: list[bytes]) -> None:
        for index, answer in enumerate(answers, first):
            sequence = batch.sequence + index - batch.first
            trace(CommandApplied(now_ns, *self._life, self._group, index, batch.client, sequence, crc32(answer)))

    # Snapshots.

    def take_snapshot(self) -> tuple[bytes, bytes]:
        """Return sessions and application as they are."""
        return self.sessions.encode(), self._application.snapshot()

    def restore(self, index: int, time_ns: int, sessions: bytes, application: bytes) -> None:
        """Go on from a snapshot."""
        self._application.restore(application)
        self.sessions.decode(sessions)
        self.applied_index, self.time_ns = index, time_ns
