"""Watchers see every revision once and in order, and all see the same; a write's revision is what they see there."""

from vivum.checkers.checker import Checker
from vivum.observe.trace import KeyChangeSeen, KeyOperationAnswered, KeyOperationIssued, WatchBegan


class WatchOrder(Checker):
    """Keeps what each revision changed."""

    name = "watch_order"

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[int, int], KeyChangeSeen] = {}
        self._next: dict[tuple[int, int], int] = {}
        self._issued: dict[tuple[int, int, int], KeyOperationIssued] = {}
        self._written: dict[tuple[int, int], tuple[KeyOperationIssued, KeyOperationAnswered]] = {}

    def on_watch_began(self, record: WatchBegan) -> None:
        """Note what comes first."""
        self._next[record.group, record.client] = record.revision + 1

    def on_key_change_seen(self, record: KeyChangeSeen) -> None:
        """Compare with what is next, and with what others saw."""
        expected = self._next.get((record.group, record.client))
        if expected is not None and record.revision != expected:
            self.report(
                f"watcher {record.client} of group {record.group} saw revision {record.revision} where {expected} is "
                "next",
                record,
            )
        self._next[record.group, record.client] = record.revision + 1
        first = self._seen.setdefault((record.group, record.revision), record)
        if (first.key, first.value) != (record.key, record.value):
            self.report(
                f"watchers {first.client} and {record.client} of group {record.group} saw different changes as "
                f"revision {record.revision}",
                first,
                record,
            )

    def on_key_operation_issued(self, record: KeyOperationIssued) -> None:
        """Keep what is written."""
        if record.operation in ("put", "swap"):
            self._issued[record.group, record.client, record.sequence] = record

    def on_key_operation_answered(self, record: KeyOperationAnswered) -> None:
        """Note which revision a write was told to be."""
        issued = self._issued.pop((record.group, record.client, record.sequence), None)
        if issued is None or record.outcome != "done" or not issued.value:
            return
        place = (record.group, record.revision)
        if place in self._written:
            self.report(f"two writes were told to be revision {record.revision}", self._written[place][1], record)
        self._written[place] = (issued, record)

    def conclude(self) -> None:
        """Compare what was written with what was seen."""
        for place, (issued, answered) in self._written.items():
            seen = self._seen.get(place)
            if seen is not None and (seen.key, seen.value) != (issued.key, issued.value):
                self.report(
                    f"client {issued.client} was told that it wrote revision {answered.revision} of group "
                    f"{issued.group}, and watchers saw another change there",
                    answered,
                    seen,
                )
