"""The log in memory: batches behind a base, what of them is saved, and the configurations among them.

The base is the last entry in front of the batches: 0, or one that a snapshot has. Pure bookkeeping: decides nothing.

Invariants: batches follow each other without a gap; terms never fall; nothing at or below `commit_index` is cut.
"""

from bisect import bisect_left
from collections.abc import Iterable

from vivum.protocols.consensus.batch import BatchKind, EntryBatch
from vivum.protocols.consensus.configuration import ReplicaConfiguration, decode_configuration


class ReplicatedLog:
    """The entries of one replica."""

    __slots__ = (
        "_bytes",
        "_configurations",
        "_lasts",
        "base_index",
        "base_term",
        "batches",
        "commit_index",
        "saved_index",
        "unsaved_after",
    )

    def __init__(
        self,
        base_index: int = 0,
        base_term: int = 0,
        configuration: ReplicaConfiguration | None = None,
        batches: Iterable[EntryBatch] = (),
    ) -> None:
        """Begin behind an entry, with the configuration that holds there and with batches that are saved."""
        self.base_index = base_index
        self.base_term = base_term
        self.commit_index = base_index
        self.batches: list[EntryBatch] = []
        # The last index of each batch, to search in.
        self._lasts: list[int] = []
        self._bytes = 0
        self._configurations: list[tuple[int, ReplicaConfiguration]] = [
            (base_index, configuration or ReplicaConfiguration())
        ]
        for batch in batches:
            self.append(batch)
        self.saved_index = self.last_index
        self.unsaved_after: int | None = None
        """The record that is due cuts the saved log behind this entry; None if nothing is to be saved."""

    @property
    def last_index(self) -> int:
        """The index of the last entry."""
        return self._lasts[-1] if self._lasts else self.base_index

    @property
    def last_term(self) -> int:
        """The term of the last entry."""
        return self.batches[-1].term if self.batches else self.base_term

    @property
    def bytes(self) -> int:
        """Bytes of all batches."""
        return self._bytes

    @property
    def configuration(self) -> ReplicaConfiguration:
        """The latest configuration in the log, committed or not (paper, section 6)."""
        return self._configurations[-1][1]

    @property
    def configuration_index(self) -> int:
        """The index of that configuration."""
        return self._configurations[-1][0]

    @property
    def replaced_configuration(self) -> ReplicaConfiguration:
        """The configuration before the latest, while that is not known to be committed; then the latest."""
        is_open = self._configurations[-1][0] > self.commit_index and len(self._configurations) > 1
        return self._configurations[-2 if is_open else -1][1]

    def configuration_at(self, index: int) -> ReplicaConfiguration:
        """Return the configuration that holds at an entry, which is not in front of the base."""
        return next(each for at, each in reversed(self._configurations) if at <= index)

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry that is the last of its batch, or the base; None of any other."""
        if index == self.base_index:
            return self.base_term
        at = bisect_left(self._lasts, index)
        return self.batches[at].term if at < len(self._lasts) and self._lasts[at] == index else None

    def behind(self, index: int) -> int:
        """Return the place of the batch that has the entry behind this one; one past the last if there is none."""
        return bisect_left(self._lasts, index + 1)

    def between(self, index: int, stop_index: int) -> list[EntryBatch]:
        """Return the batches with entries behind one and up to another."""
        return self.batches[self.behind(index) : self.behind(stop_index)]

    def unsaved(self) -> list[EntryBatch]:
        """Return the batches that no record has."""
        return [] if self.unsaved_after is None else self.batches[self.behind(self.unsaved_after) :]

    def append(self, batch: EntryBatch) -> None:
        """Add a batch at the end. `must_save` says that it is not on disk."""
        assert batch.first == self.last_index + 1, f"{batch} does not follow entry {self.last_index}"
        assert batch.term >= self.last_term, f"{batch} is older than term {self.last_term}"
        if batch.kind is BatchKind.CONFIGURATION:
            self._configurations.append((batch.last, decode_configuration(batch.body)))
        self.batches.append(batch)
        self._lasts.append(batch.last)
        self._bytes += len(batch.data)

    def must_save(self, after: int) -> None:
        """Note that what stands behind an entry is not on disk."""
        if self.unsaved_after is None or after < self.unsaved_after:
            self.unsaved_after = after
        self.saved_index = min(self.saved_index, after)

    def cut(self, after: int) -> None:
        """Remove what conflicts with a leader: all behind an entry."""
        assert after >= self.commit_index, f"entry {after + 1} is committed and never removed"
        at = self.behind(after)
        self._bytes -= sum([len(each.data) for each in self.batches[at:]])
        del self.batches[at:], self._lasts[at:]
        while self._configurations[-1][0] > after:
            self._configurations.pop()
        self.must_save(after)

    def mark_saved(self) -> None:
        """Note that the record which is due has been made."""
        self.unsaved_after = None
        self.saved_index = self.last_index

    def drop_front(self, index: int) -> None:
        """Forget batches up to a committed entry that is the last of its batch: a snapshot has them."""
        term = self.term_at(index)
        assert term is not None
        assert index <= self.commit_index
        held = self.configuration_at(index)
        at = self.behind(index)
        self._bytes -= sum([len(each.data) for each in self.batches[:at]])
        del self.batches[:at], self._lasts[:at]
        self.base_index, self.base_term = index, term
        self._configurations = [(index, held), *[each for each in self._configurations if each[0] > index]]
