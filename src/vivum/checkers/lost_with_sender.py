"""Lost with its sender: a receiver is told that messages are lost only if their sender can no longer be asked.

At the time of a `MessagesLost` the sender's life must have ended, or have left the group, or the receiver must have
installed a view of the group without it. Not a promise of topics with a deadline, which give up earlier.
"""

from vivum.checkers.checker import Checker
from vivum.observe.trace import GroupJoined, GroupLeft, MessagesLost, NodeStarted, NodeStopped, ViewInstalled


class LostWithSender(Checker):
    """Finds losses whose sender lives and is a member. Witnesses: the report, the receiver's newest view."""

    name = "lost_with_sender"

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[int, int] = {}
        self._ended: set[tuple[int, int]] = set()
        self._left: set[tuple[int, int, int]] = set()
        self._views: dict[tuple[int, int, int], ViewInstalled] = {}

    def on_node_started(self, record: NodeStarted) -> None:
        """End the life before, of which no end may have been recorded."""
        before = self._alive.get(record.node)
        if before is not None and before != record.incarnation:
            self._ended.add((record.node, before))
        self._alive[record.node] = record.incarnation

    def on_node_stopped(self, record: NodeStopped) -> None:
        """End a life."""
        self._ended.add((record.node, record.incarnation))

    def on_group_joined(self, record: GroupJoined) -> None:
        """Note that a life is in a group; what it sent in an earlier stay is still gone."""
        self._views.pop((record.node, record.incarnation, record.group), None)

    def on_group_left(self, record: GroupLeft) -> None:
        """Note that a life left a group."""
        self._left.add((record.node, record.incarnation, record.group))

    def on_view_installed(self, record: ViewInstalled) -> None:
        """Note what a receiver knows."""
        self._views[record.node, record.incarnation, record.group] = record

    def on_messages_lost(self, record: MessagesLost) -> None:
        """Ask where the sender is."""
        sender = (record.sender, record.sender_incarnation)
        if sender in self._ended or (*sender, record.group) in self._left:
            return
        view = self._views.get((record.node, record.incarnation, record.group))
        if view is not None and f"{sender[0]}.{sender[1]}" not in view.members:
            return
        self.report(
            f"{record.node}.{record.incarnation} was told that messages {record.sequence} to {record.stop - 1} of "
            f"{sender[0]}.{sender[1]} in group {record.group} are lost, and their sender is there",
            record,
            view,
        )
