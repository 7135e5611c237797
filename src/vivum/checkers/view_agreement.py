"""View agreement: who installs a view of a group sees the same members, in the same order, as all others
who install it.

Also: a life's views of a group have rising numbers, across leaving and joining again too; a life that
installs a view is a member of it; no member is listed twice. The order counts because rank by age elects
leaders.

Not seen here: two sides of a partition that install different views under different numbers.
"""

from vivum.checkers.checker import Checker
from vivum.observe.trace import ViewInstalled


class ViewAgreement(Checker):
    """Finds views that differ or go back. Witnesses: the earlier installation, the later one."""

    name = "view_agreement"

    def __init__(self) -> None:
        super().__init__()
        self._views: dict[tuple[int, int], ViewInstalled] = {}
        self._last: dict[tuple[int, int, int], ViewInstalled] = {}

    def on_view_installed(self, record: ViewInstalled) -> None:
        """Compare a view with the same view at others, and with this life's view before."""
        who = f"{record.node}.{record.incarnation}"
        which = f"view {record.view} of group {record.group}"
        first = self._views.setdefault((record.group, record.view), record)
        if first.members != record.members:
            other = "in another order" if sorted(first.members) == sorted(record.members) else "with other members"
            self.report(f"{who} installed {which} {other} than {first.node}.{first.incarnation} did", first, record)
        life = (record.node, record.incarnation, record.group)
        before = self._last.get(life)
        if record.view <= (0 if before is None else before.view):
            after = "no view" if before is None else f"view {before.view}"
            self.report(f"{who} installed {which} after {after}; numbers must rise", before, record)
        self._last[life] = record
        if who not in record.members:
            self.report(f"{who} installed {which}, of which it is not a member", record)
        if len(set(record.members)) != len(record.members):
            self.report(f"{who} installed {which}, which lists a member twice", record)
