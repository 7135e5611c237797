"""Keys of messages: what lets a topic with the guarantee `KEYED` hand each one over once, however often it is sent.

A key is (query, batch, position). Who publishes results may die between sending them and noting that it did; it then
sends the whole batch again, under the same keys and from another node. Who receives passes over what it had.

A query publishes its batches in order and begins one only when the one before is stable. So a receiver keeps, for each
query, the number of its last batch and the positions that it has of it, which are a few ranges: a lower batch is known
as a whole. Pure: knows neither sockets nor time.

In such a topic a payload begins with a head: a byte 0, no key; or a byte 1 and the key. Other topics have none of that.
Readers get payloads without it; who keeps messages to send them again keeps it.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from struct import Struct

import msgspec

from vivum.core.machine import Delivery
from vivum.core.ranges import RangeSet

QUERY_BYTES = 16
_HEAD = Struct(f">B{QUERY_BYTES}sQQ")
HEAD_BYTES = _HEAD.size
PLAIN_HEAD = b"\0"
"""The head of a message that has no key."""

_KEYED = 1

QUERIES_MAX = 1024
"""Queries that a receiver remembers for each topic. Past it, the one that was silent for longest is forgotten."""

RANGES_MAX = 4096
"""Ranges of positions that are kept of a batch; a sender makes few. Past it, the lowest hole counts as had."""


def without_keys(payloads: Sequence[bytes]) -> list[bytes]:
    """Mark payloads that have no key."""
    return [PLAIN_HEAD + payload for payload in payloads]


def with_keys(query: bytes, batch: int, first: int, payloads: Sequence[bytes]) -> list[bytes]:
    """Give payloads the keys (query, batch, first), (query, batch, first + 1) and so on."""
    pack = _HEAD.pack
    return [pack(_KEYED, query, batch, position) + payload for position, payload in enumerate(payloads, first)]


def bare_run(run: Delivery) -> Delivery:
    """Take the heads off a run of messages that all have one."""
    return msgspec.structs.replace(
        run, payloads=[each[1:] if each[:1] == PLAIN_HEAD else each[HEAD_BYTES:] for each in run.payloads]
    )


class SeenKeys:
    """What a receiver had of each query. At most `QUERIES_MAX` are remembered."""

    def __init__(self) -> None:
        self.repeated = 0
        """Messages that came again, and were passed over."""

        self.malformed = 0
        """Payloads without a readable head; dropped."""

        self._queries: OrderedDict[bytes, tuple[int, RangeSet]] = OrderedDict()

    def is_new(self, query: bytes, batch: int, position: int) -> bool:
        """Note a key; tell whether it is the first time."""
        known = self._queries.get(query)
        if known is None or batch > known[0]:
            self._queries[query] = known = (batch, RangeSet())
            if len(self._queries) > QUERIES_MAX:
                self._queries.popitem(last=False)
        elif batch < known[0]:
            return False
        self._queries.move_to_end(query)
        had = known[1]
        is_new = had.add(position)
        if had.range_count > RANGES_MAX:
            bounds = had.bounds()
            had.add_range(bounds[1], bounds[2])
        return is_new

    def runs_of(self, delivery: Delivery) -> Iterator[Delivery]:
        """Take the heads off a run of messages, and leave out what came before: runs without a hole."""
        return map(bare_run, self.new_runs(delivery))

    def new_runs(self, delivery: Delivery) -> Iterator[Delivery]:
        """Leave out of a run of messages what came before: runs without a hole, with their heads."""
        run: list[bytes] = []
        first = delivery.first_sequence
        for sequence, payload in enumerate(delivery.payloads, delivery.first_sequence):
            if self._is_left_out(payload):
                if run:
                    yield msgspec.structs.replace(delivery, first_sequence=first, payloads=run)
                run, first = [], sequence + 1
            else:
                run.append(payload)
        if run:
            yield msgspec.structs.replace(delivery, first_sequence=first, payloads=run)

    def _is_left_out(self, payload: bytes) -> bool:
        if payload[:1] == PLAIN_HEAD:
            return False
        if len(payload) < HEAD_BYTES or payload[0] != _KEYED:
            self.malformed += 1
            return True
        _, query, batch, position = _HEAD.unpack_from(payload)
        is_new = self.is_new(query, batch, position)
        self.repeated += not is_new
        return not is_new
