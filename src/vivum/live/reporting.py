"""Answer other nodes: this node's load, and how many messages it has sent to a topic."""

from typing import TYPE_CHECKING

from vivum.observe.counters import Counters
from vivum.wire.directory import LoadReport, SendingReport, TopicLoad

if TYPE_CHECKING:
    from vivum.live.handle import NodeHandle

LOAD_TOPICS_MAX = 32
"""The most topics that a load report names."""


class Reporter:
    """Answers for one node."""

    def __init__(self, node: "NodeHandle", counters: Counters) -> None:
        self._node = node
        self._counters = counters

    def report_load(self, request: int) -> LoadReport | None:
        """Return the node's load; None while it has no life."""
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
        """Return how many messages this life has sent to a topic, and the topic's view here.

        Messages numbered after the view was read belong to that view or a later one, whether they are counted or not.
        """
        life = self._node.member
        if life is None:
            return None
        seat = self._node.seat_of(topic)
        view = None if seat is None else seat.view
        return SendingReport(request, *life, 0 if view is None else view.number, 0 if seat is None else seat.numbered)
