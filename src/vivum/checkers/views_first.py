"""Views first: a member learns of a view before it is handed a message of that view.

At one life, a message that was sent in view v of a group is delivered only after the life installed view v of that
group or a later one. The numbers of the views that a life installs in a group only grow, so that "later" has a
meaning. And the views of the messages that it delivers from one sender's life never go back. A message without a view
(0) may come at any time.

Not seen here: whether a message comes too late, in a view behind its own (`virtual_synchrony`).
"""

from vivum.checkers.checker import Checker, describe, message_of
from vivum.observe.trace import MessageDelivered, ViewInstalled


class ViewsFirst(Checker):
    """Finds messages that overtake their view, and views that go back.

    Witnesses: the last view before, the message or the wrong view. Where a sender's views go back: the first delivery
    of its newest view, the late one.
    """

    name = "views_first"

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[int, int, int], ViewInstalled] = {}
        # For each receiver's life and stream of a sender: the first delivery of the newest view.
        self._newest: dict[tuple[int, int, int, int, int], MessageDelivered] = {}

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
        """Compare the view of a message with the newest of its receiver, and with the newest of its sender there."""
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
        stream = (record.node, record.incarnation, record.group, record.sender, record.sender_incarnation)
        newest = self._newest.get(stream)
        if newest is None or newest.view < record.view:
            self._newest[stream] = record
        elif record.view < newest.view:
            self.report(
                f"{record.node}.{record.incarnation} delivered {describe(message_of(record))} of view "
                f"{record.view} after one of view {newest.view} of the same sender",
                newest,
                record,
            )
