"""Election Safety (paper, Figure 3): at most one leader can be elected in a given term."""

from vivum.checkers.checker import Checker
from vivum.observe.trace import LeaderElected


class ElectionSafety(Checker):
    """Keeps the leader of every term."""

    name = "election_safety"

    def __init__(self) -> None:
        super().__init__()
        self._leaders: dict[tuple[int, int], LeaderElected] = {}

    def on_leader_elected(self, record: LeaderElected) -> None:
        """Compare with the leader of the same term. A life leads a term once."""
        first = self._leaders.setdefault((record.group, record.term), record)
        if first is not record:
            self.report(
                f"{record.node}.{record.incarnation} leads term {record.term} of group {record.group}, "
                f"which {first.node}.{first.incarnation} led",
                first,
                record,
            )
