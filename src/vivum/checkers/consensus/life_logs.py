"""The logs of all replicas, as their records tell: what each life has at every moment."""

from typing import NamedTuple

from vivum.observe.trace import BatchAppended, StateRestored

Life = tuple[int, int, int]
"""Group, node, incarnation."""


class BatchEnd(NamedTuple):
    """The end of a batch, or of what a snapshot has: one past its last entry, and its term."""

    stop: int
    term: int


class LifeLog:
    """The log of one life: batches behind a base."""

    __slots__ = ("_digests", "base", "batches")

    def __init__(self, base: BatchEnd = BatchEnd(1, 0)) -> None:  # noqa: B008 - a tuple
        self.base = base
        self.batches: list[BatchAppended] = []
        self._digests: dict[int, int] = {}

    def append(self, record: BatchAppended) -> BatchEnd | None:
        """Add a batch, in place of what stood there; return what stands in front of it, or None for a hole."""
        batches = self.batches
        while batches and batches[-1].stop > record.index:
            del self._digests[batches.pop().index]
        front = BatchEnd(batches[-1].stop, batches[-1].term) if batches else self.base
        batches.append(record)
        self._digests[record.index] = record.digest
        return front if front.stop == record.index else None

    def has(self, index: int, digest: int) -> bool:
        """Return whether the batch that begins at an index is here, or in front of the base."""
        return index < self.base.stop or self._digests.get(index) == digest


class LifeLogs:
    """The logs of all lives."""

    __slots__ = ("_logs",)

    def __init__(self) -> None:
        self._logs: dict[Life, LifeLog] = {}

    def of(self, record: BatchAppended | StateRestored) -> LifeLog:
        """Return the log of the life that a record is of."""
        return self.at((record.group, record.node, record.incarnation))

    def at(self, life: Life) -> LifeLog:
        """Return the log of a life."""
        found = self._logs.get(life)
        if found is None:
            found = self._logs[life] = LifeLog()
        return found

    def restore(self, record: StateRestored) -> None:
        """Begin the log of a life anew."""
        self._logs[record.group, record.node, record.incarnation] = LifeLog(BatchEnd(record.index + 1, record.term))
