"""What a node tells of itself when others ask: its load, and how many messages it has sent to a topic."""

from typing import TYPE_CHECKING

from vivum.observe.counters import Counters
from vivum.wire.directory import LoadReport, SendingReport, TopicLoad

if TYPE_CHECKING:
    from vivum.live.handle import NodeHandle

LOAD_TOPICS_MAX = 32
"""Topics that a report of a node's load names."""


class Reporter:
    """Answers for one node."""

    def __init__(self, node: "NodeHandle", counters: Counters) -> None:
        self._node = node
        self._counters = counters

    def report_load(self, request: int) -> LoadReport | None:
        """Tell what the node does; nothing while it has no life."""
        life, counters = self._node.member, self._counters
        if life is None:
            return None
        busiest = sorted(self._node.seats, key=lambda seat: -seat.sent - seat.delivered)[:LOAD_TOPICS_MAX]
        return LoadReport(
            request,
            *life,
            self._node.name,
            counters.messages_accepted,
            counters.messages_delivered,
            counters.bytes_sent,
            counters.bytes_received,
            counters.repairs_received,
            counters.messages_failed,
            tuple(TopicLoad(seat.name, seat.sent, seat.delivered) for seat in busiest if seat.holders),
        )

    def report_sending(self, request: int, topic: str) -> SendingReport | None:
        """Tell how many messages this life has sent to a topic, and in which view of it the node is.

        What is numbered after the view was noted belongs to that view or a later one, whether it is counted or not.
        """
        life = self._node.member
        if life is None:
            return None
        seat = self._node.seat_of(topic)
        view = None if seat is None else seat.view
        return SendingReport(request, *life, 0 if view is None else view.number, 0 if seat is None else seat.accepted)
