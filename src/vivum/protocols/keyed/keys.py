"""Keys of messages: what lets a topic with the guarantee KEYED hand each one over once, however often it is sent.

A key is (query, batch, position). Who publishes results may die between sending them and noting that it did; it then
sends the whole batch again, under the same keys and from another node. Who receives passes over what it had.

A query publishes its batches in order and begins one only when the one before is stable. So a receiver keeps, for each
query, the number of its last batch and the positions that it has of it, which are a few ranges: a lower batch is known
as a whole. Pure: knows neither sockets nor time.

In such a topic a message on the wire begins with a head: a byte 0, no key; or a byte 1 and the key. Readers get
messages without it; a recorder keeps it to replay messages (`Delivery.heads`).
"""

from collections import OrderedDict
from collections.abc import Iterator
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


def heads_of(query: bytes, batch: int, first: int, count: int) -> list[bytes]:
    """Make the heads of messages with the keys (query, batch, first), (query, batch, first + 1) and so on."""
    pack = _HEAD.pack
    return [pack(_KEYED, query, batch, position) for position in range(first, first + count)]


def head_bytes(payload: bytes) -> int:
    """Return how long the head of a message is; 0 if it has none that can be read."""
    if payload[:1] == PLAIN_HEAD:
        return len(PLAIN_HEAD)
    return HEAD_BYTES if len(payload) >= HEAD_BYTES and payload[0] == _KEYED else 0


class SeenKeys:
    """What a receiver had of each query. At most `QUERIES_MAX` are remembered."""

    def __init__(self) -> None:
        self.repeated = 0
        """Messages that came again, and were passed over."""

        self.malformed = 0
        """Payloads without a readable head; dropped."""

        self._queries: OrderedDict[bytes, tuple[int, RangeSet]] = OrderedDict()

    def is_new(self, query: bytes, batch: int, position: int) -> bool:
        """Note a key; return whether it is the first time."""
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

    def new_runs(self, delivery: Delivery) -> Iterator[Delivery]:
        """Take the heads off a run of messages, and leave out what came before: runs without a hole.

        Heads are on the messages, or in `heads` beside them.
        """
        run: list[bytes] = []
        heads: list[bytes] = []
        first = delivery.first_sequence
        headed = delivery.payloads
        if delivery.heads:
            headed = [head + payload for head, payload in zip(delivery.heads, delivery.payloads, strict=True)]
        for sequence, payload in enumerate(headed, delivery.first_sequence):
            size = head_bytes(payload)
            if self._is_left_out(payload, size):
                if run:
                    yield msgspec.structs.replace(delivery, first_sequence=first, payloads=run, heads=heads)
                run, heads, first = [], [], sequence + 1
            else:
                run.append(payload[size:])
                heads.append(payload[:size])
        if run:
            yield msgspec.structs.replace(delivery, first_sequence=first, payloads=run, heads=heads)

    def _is_left_out(self, payload: bytes, head_size: int) -> bool:
        if not head_size:
            self.malformed += 1
            return True
        if head_size < HEAD_BYTES:
            return False
        _, query, batch, position = _HEAD.unpack_from(payload)
        is_new = self.is_new(query, batch, position)
        self.repeated += not is_new
        return not is_new
