"""Histories of several clocks: put into an order that could have been the true one.

The simulator records in the true order. Traces of real nodes are merged by clocks that differ, so a
delivery may seem to come before its send. The order made here keeps that of each life, and puts every
delivery behind its send; nothing else is moved further than that needs. Causal checkers then judge real
traces as they judge simulated ones.

What it cannot do: tell a message that was delivered before it was really sent. A delivery of what was
never sent holds back its life until the end of the input, where everything held back is released, earliest
first.

Cost: linear. Holds the range set of each stream sent, and what waits: little when clocks differ little.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from vivum.checkers.checker import message_of
from vivum.core.ranges import RangeSet
from vivum.observe.trace import MessageDelivered, MessageSent, TraceRecord

_Life = tuple[int, int]


class _Order:
    """The sends that have passed, and the lives that wait for each send."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int, int], RangeSet] = {}
        self.held: dict[_Life, deque[TraceRecord]] = {}
        self.waiting: dict[tuple[int, int, int, int], list[_Life]] = {}

    def may_pass(self, record: TraceRecord) -> bool:
        """Return whether a record can go on now; where it cannot, its life waits."""
        if isinstance(record, MessageDelivered):
            sent = self.sent.get((record.group, record.sender, record.sender_incarnation))
            if sent is None or record.sequence not in sent:
                self.waiting.setdefault(message_of(record), []).append((record.node, record.incarnation))
                return False
        return True

    def passed(self, record: TraceRecord) -> Iterator[TraceRecord]:
        """Pass a record, and all that waited for it."""
        free = [record]
        lives: deque[_Life] = deque()
        while free or lives:
            if free:
                record = free.pop()
                yield record
                if isinstance(record, MessageSent):
                    stream = self.sent.setdefault((record.group, record.node, record.incarnation), RangeSet())
                    stream.add(record.sequence)
                    lives.extend(self.waiting.pop(message_of(record), ()))
                continue
            life = lives[0]
            queue = self.held[life]
            # The head waited for this send: it passes now, and those behind it until the next that waits.
            free.append(queue.popleft())
            if not queue or not self.may_pass(queue[0]):
                lives.popleft()
                if not queue:
                    del self.held[life]


def in_causal_order(records: Iterable[TraceRecord]) -> Iterator[TraceRecord]:
    """Yield the same records, each delivery behind its send and each life's records in their own order."""
    order = _Order()
    for record in records:
        life = (record.node, record.incarnation)
        queue = order.held.get(life)
        if queue is not None:
            queue.append(record)
        elif order.may_pass(record):
            yield from order.passed(record)
        else:
            order.held[life] = deque([record])
    while order.held:
        life = min(order.held, key=lambda each: order.held[each][0].time_ns)
        head = order.held[life].popleft()
        # Never sent: it waits for nothing any more.
        order.waiting[message_of(head)].remove(life)  # type: ignore[arg-type]
        yield from order.passed(head)
        queue = order.held[life]
        while queue and order.may_pass(queue[0]):
            yield from order.passed(queue.popleft())
        if not queue:
            del order.held[life]
