"""Bounded queues: no queue is ever deeper than its own limit says. Only queues that report themselves are
seen.
"""

from vivum.checkers.checker import Checker
from vivum.observe.trace import QueueMeasured


class BoundedQueues(Checker):
    """Finds queues over their limit. Witness: the measurement."""

    name = "bounded_queues"

    def on_queue_measured(self, record: QueueMeasured) -> None:
        """Compare depth and limit."""
        if record.depth > record.limit:
            self.report(
                f"queue {record.queue} of {record.node}.{record.incarnation} held {record.depth} "
                f"{record.unit}, over its limit of {record.limit}",
                record,
            )
