"""Views first: a member learns of a view before it is handed a message of that view.

At one life, a message that was sent in view v of a group is delivered only after the life installed view v of that
group or a later one. And the numbers of the views that a life installs in a group only grow, so that "later" has a
meaning. A message without a view (0) may come at any time.

Not seen here: whether a message comes too late, in a view behind its own (`virtual_synchrony`).
"""

from vivum.checkers.checker import Checker, describe, message_of
from vivum.observe.trace import MessageDelivered, ViewInstalled


class ViewsFirst(Checker):
    """Finds messages that overtake their view. Witnesses: the last view before, the message or the wrong view."""

    name = "views_first"

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[int, int, int], ViewInstalled] = {}

    def on_view_installed(self, record: ViewInstalled) -> None:
        """Compare a view with this life's view before."""
        life = (record.node, record.incarnation, record.group)
        before = self._last.get(life)
        if before is not None and record.view <= before.view:
            self.report(
                f"{record.node}.{record.incarnation} installed view {record.view} of group {record.group} after "
                f"view {before.view}",
                before,
                record,
            )
            return
        self._last[life] = record

    def on_message_delivered(self, record: MessageDelivered) -> None:
        """Compare the view of a message with the newest that the receiver knows."""
        if not record.view:
            return
        last = self._last.get((record.node, record.incarnation, record.group))
        if last is None or last.view < record.view:
            known = "it had installed none" if last is None else f"the last that it had installed was {last.view}"
            self.report(
                f"{record.node}.{record.incarnation} delivered {describe(message_of(record))} of view "
                f"{record.view}, but {known}",
                last,
                record,
            )
