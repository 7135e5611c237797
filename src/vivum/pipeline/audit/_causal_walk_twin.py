"""The walk of `causal` in plain Python, by the checker itself: what `_causal_walk.pyx` is measured against.

It serves where the compiled one was not built, more slowly.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from vivum.checkers.causal import Causal
from vivum.checkers.clocks import in_causal_order
from vivum.observe.trace import GroupJoined, MessageDelivered, MessageSent, TraceRecord
from vivum.pipeline.audit.columns import CODES, DELIVERED, HALF, JOINED, SENT, G, K, P, Q, R, S, T, W

Place = tuple[int, int, int, int, int, int]
"""A delivery: writer's number, position, receiver's life, group, sender's life, sequence."""


def walk(blocks: Iterable[Any], hold: bool) -> tuple[int, list[tuple[Place, Place]]]:
    """Walk through blocks of records. Return how many violations there are, and the first: the dependent, the late.

    With `hold`, records are of several writers, and each delivery waits for its send.
    """
    checker = Causal()
    records = _records(blocks)
    deliver, send, join = checker.on_message_delivered, checker.on_message_sent, checker.on_group_joined
    # Told apart by hand: the lookup of a handler would cost as much again as the walk.
    for record in in_causal_order(records) if hold else records:
        if type(record) is MessageDelivered:
            deliver(record)
        elif type(record) is MessageSent:
            send(record)
        elif type(record) is GroupJoined:
            join(record)
    found = []
    for each in checker.finish():
        dependent, late = (record for record in each.witnesses if isinstance(record, MessageDelivered))
        found.append((_place(dependent), _place(late)))
    return checker.violation_count, found


def _records(blocks: Iterable[Any]) -> Iterator[TraceRecord]:
    """Make records again. Digest, view and time of sending do not count; there go writer and position."""
    sent, delivered, joined = CODES[SENT], CODES[DELIVERED], CODES[JOINED]
    for block in blocks:
        for kind, w, p, time_ns, group, life, sender, sequence in zip(
            *(block[row].tolist() for row in (K, W, P, T, G, R, S, Q)), strict=True
        ):
            node, incarnation = divmod(life, HALF)
            if kind == delivered:
                who, its_incarnation = divmod(sender, HALF)
                yield MessageDelivered(time_ns, node, incarnation, group, who, its_incarnation, sequence, 0, w, p)
            elif kind == sent:
                yield MessageSent(time_ns, node, incarnation, group, sequence, 0, w)
            elif kind == joined:
                yield GroupJoined(time_ns, node, incarnation, group)


def _place(record: MessageDelivered) -> Place:
    life = record.node * HALF + record.incarnation
    sender = record.sender * HALF + record.sender_incarnation
    return record.digest, record.sent_ns, life, record.group, sender, record.sequence
