"""State Machine Safety (paper, Figure 3): no two replicas apply different entries at one index.

So what replicas applied are prefixes of each other. Also that each applies without a hole, that the same commands got
the same answers, and that snapshots of one index hold the same state.
"""

from vivum.checkers.checker import Checker
from vivum.checkers.consensus.life_logs import Life
from vivum.observe.trace import BatchCommitted, CommandApplied, StateRestored, StateSaved


class StateMachineSafety(Checker):
    """Keeps the first record of every index."""

    name = "state_machine_safety"

    def __init__(self) -> None:
        super().__init__()
        self._batches: dict[tuple[int, int], BatchCommitted] = {}
        self._commands: dict[tuple[int, int], CommandApplied] = {}
        self._states: dict[tuple[int, int], StateSaved | StateRestored] = {}
        self._next: dict[Life, int] = {}

    def on_batch_committed(self, record: BatchCommitted) -> None:
        """Compare a batch with the one that was committed there first."""
        who = f"{record.node}.{record.incarnation}"
        life = (record.group, record.node, record.incarnation)
        first = self._batches.setdefault((record.group, record.index), record)
        if (first.stop, first.term, first.digest) != (record.stop, record.term, record.digest):
            self.report(
                f"{who} committed another entry {record.index} of group {record.group} than "
                f"{first.node}.{first.incarnation}",
                first,
                record,
            )
        expected = self._next.get(life, 1)
        if record.index != expected:
            self.report(f"{who} applied entry {record.index} of group {record.group} where {expected} is next", record)
        self._next[life] = record.stop

    def on_command_applied(self, record: CommandApplied) -> None:
        """Compare a command and its answer with the first that was applied there."""
        first = self._commands.setdefault((record.group, record.index), record)
        if (first.client, first.sequence, first.digest) != (record.client, record.sequence, record.digest):
            self.report(
                f"{record.node}.{record.incarnation} ran another command, or gave another answer, as entry "
                f"{record.index} of group {record.group} than {first.node}.{first.incarnation}",
                first,
                record,
            )

    def on_state_saved(self, record: StateSaved) -> None:
        """Compare snapshots of one index."""
        self._compare(record)

    def on_state_restored(self, record: StateRestored) -> None:
        """Go on behind a snapshot."""
        self._next[record.group, record.node, record.incarnation] = record.index + 1
        if record.index:
            self._compare(record)

    def _compare(self, record: StateSaved | StateRestored) -> None:
        first = self._states.setdefault((record.group, record.index), record)
        if first.digest != record.digest:
            self.report(
                f"{record.node}.{record.incarnation} has another state at entry {record.index} of group "
                f"{record.group} than {first.node}.{first.incarnation}",
                first,
                record,
            )
