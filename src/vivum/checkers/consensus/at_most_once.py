"""A session's command runs at most once, and whoever asks again gets its first answer (thesis, section 6.3)."""

from vivum.checkers.checker import Checker
from vivum.observe.trace import CommandAnswered, CommandApplied


class AtMostOnce(Checker):
    """Keeps where every command ran."""

    name = "at_most_once"

    def __init__(self) -> None:
        super().__init__()
        self._ran: dict[tuple[int, int, int], CommandApplied] = {}

    def on_command_applied(self, record: CommandApplied) -> None:
        """Compare the index with that of the first run."""
        first = self._ran.setdefault((record.group, record.client, record.sequence), record)
        if first.index != record.index:
            self.report(
                f"command {record.sequence} of client {record.client} in group {record.group} ran as entry "
                f"{first.index} and again as entry {record.index}",
                first,
                record,
            )

    def on_command_answered(self, record: CommandAnswered) -> None:
        """Compare the answer with that of the first run."""
        ran = self._ran.get((record.group, record.client, record.sequence))
        if ran is None or ran.digest != record.digest:
            self.report(
                f"client {record.client} got an answer to command {record.sequence} of group {record.group} that "
                + ("is not its first one" if ran else "nobody computed"),
                ran,
                record,
            )
