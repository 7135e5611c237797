"""Linearizability: every operation takes effect at one moment between its call and its answer (paper, section 8).

The log is the witness: a command takes effect at its index, a read behind the index whose state it returned. It must
hold that an operation comes behind all that were answered before it was called, and that a read returns what the log
has there. Exact, and linear in the number of operations.
"""

from vivum.checkers.checker import Checker
from vivum.observe.trace import CommandAnswered, CommandApplied, CommandIssued, ReadAnswered, ReadIssued

Operation = tuple[int, str, int, int]
"""Group, what it is, client, number."""


class Linearizable(Checker):
    """Keeps, for each operation that is on, the highest index that was answered before."""

    name = "linearizable"

    def __init__(self) -> None:
        super().__init__()
        self._answers: dict[tuple[int, int], int] = {}
        self._places: dict[tuple[int, int, int], int] = {}
        self._floors: dict[int, tuple[int, CommandAnswered | ReadAnswered | None]] = {}
        self._called: dict[Operation, tuple[int, CommandAnswered | ReadAnswered | None]] = {}

    def on_command_applied(self, record: CommandApplied) -> None:
        """Note where a command took effect."""
        self._answers.setdefault((record.group, record.index), record.digest)
        self._places.setdefault((record.group, record.client, record.sequence), record.index)

    def on_command_issued(self, record: CommandIssued) -> None:
        """Note what was answered before."""
        floor = self._floors.get(record.group, (0, None))
        self._called[record.group, "command", record.client, record.sequence] = floor

    def on_read_issued(self, record: ReadIssued) -> None:
        """Note what was answered before."""
        floor = self._floors.get(record.group, (0, None))
        self._called[record.group, "read", record.client, record.sequence] = floor

    def on_command_answered(self, record: CommandAnswered) -> None:
        """Compare the place of a command with what was answered before its call."""
        place = self._places.get((record.group, record.client, record.sequence))
        called = self._called.pop((record.group, "command", record.client, record.sequence), None)
        if place is None or called is None:
            # `at_most_once` judges answers that nobody computed; a second answer says nothing new.
            return
        if place <= called[0]:
            self.report(
                f"command {record.sequence} of client {record.client} in group {record.group} ran as entry {place}, "
                f"in front of entry {called[0]}, which was answered before it was called",
                called[1],
                record,
            )
        self._raise_floor(record, place)

    def on_read_answered(self, record: ReadAnswered) -> None:
        """Compare what a read saw with what was answered before its call, and with the log."""
        called = self._called.pop((record.group, "read", record.client, record.sequence), None)
        if called is not None and record.index < called[0]:
            self.report(
                f"read {record.sequence} of client {record.client} in group {record.group} saw entry {record.index}; "
                f"entry {called[0]} was answered before it was called",
                called[1],
                record,
            )
        if record.index and self._answers.get((record.group, record.index)) != record.digest:
            self.report(
                f"read {record.sequence} of client {record.client} in group {record.group} saw a state that entry "
                f"{record.index} did not leave",
                record,
            )
        self._raise_floor(record, record.index)

    def _raise_floor(self, record: CommandAnswered | ReadAnswered, index: int) -> None:
        if index > self._floors.get(record.group, (0, None))[0]:
            self._floors[record.group] = (index, record)
