"""Log Matching (paper, Figure 3): logs that have an entry with the same index and term agree in all up to it.

By induction: such a batch has the same bytes everywhere, and the same batch stands in front of it.
"""

from vivum.checkers.checker import Checker
from vivum.checkers.consensus.life_logs import BatchEnd, LifeLogs
from vivum.observe.trace import BatchAppended, StateRestored


class LogMatching(Checker):
    """Keeps for every end of a batch what it was, and what stood in front."""

    name = "log_matching"

    def __init__(self) -> None:
        super().__init__()
        self._logs = LifeLogs()
        self._known: dict[tuple[int, int, int], tuple[BatchAppended, BatchEnd]] = {}

    def on_state_restored(self, record: StateRestored) -> None:
        """Begin a log anew."""
        self._logs.restore(record)

    def on_batch_appended(self, record: BatchAppended) -> None:
        """Compare with the first batch that ended there in that term."""
        who = f"{record.node}.{record.incarnation}"
        front = self._logs.of(record).append(record)
        if front is None:
            self.report(f"{who} has a hole in front of entry {record.index} of group {record.group}", record)
            return
        first, first_front = self._known.setdefault((record.group, record.stop, record.term), (record, front))
        if (first.index, first.digest, first_front) != (record.index, record.digest, front):
            self.report(
                f"{who} has other entries up to {record.stop - 1}, of term {record.term}, than "
                f"{first.node}.{first.incarnation} in group {record.group}",
                first,
                record,
            )
