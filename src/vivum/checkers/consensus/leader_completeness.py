"""Leader Completeness (paper, Figure 3): a committed entry is present in the logs of the leaders of all higher terms.

This finds a committed entry that is lost, also where nobody commits another in its place. An entry was committed in a
term that is not higher than any elected so far; leaders of still higher terms must have it when they begin.
"""

from vivum.checkers.checker import Checker
from vivum.checkers.consensus.life_logs import LifeLogs
from vivum.observe.trace import BatchAppended, BatchCommitted, LeaderElected, StateRestored


class LeaderCompleteness(Checker):
    """Keeps all that was committed, with the highest term of then."""

    name = "leader_completeness"

    def __init__(self) -> None:
        super().__init__()
        self._logs = LifeLogs()
        self._terms: dict[int, int] = {}
        self._committed: dict[tuple[int, int], tuple[BatchCommitted, int]] = {}

    def on_state_restored(self, record: StateRestored) -> None:
        """Begin a log anew."""
        self._logs.restore(record)

    def on_batch_appended(self, record: BatchAppended) -> None:
        """Note what a log has."""
        self._logs.of(record).append(record)

    def on_batch_committed(self, record: BatchCommitted) -> None:
        """Note what was committed first."""
        self._committed.setdefault((record.group, record.index), (record, self._terms.get(record.group, 0)))

    def on_leader_elected(self, record: LeaderElected) -> None:
        """Look for all that was committed in the log of a new leader."""
        group, term = record.group, record.term
        self._terms[group] = max(term, self._terms.get(group, 0))
        log = self._logs.at((group, record.node, record.incarnation))
        for committed, highest in self._committed.values():
            if committed.group == group and highest < term and not log.has(committed.index, committed.digest):
                self.report(
                    f"{record.node}.{record.incarnation} leads term {term} of group {group} without entry "
                    f"{committed.index}, which {committed.node}.{committed.incarnation} had committed",
                    committed,
                    record,
                )
                return
