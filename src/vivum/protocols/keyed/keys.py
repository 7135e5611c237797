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
from enum import Enum
from itertools import groupby
from struct import Struct

from msgspec.structs import replace

from vivum.core.machine import Delivery, Effect
from vivum.core.ranges import RangeSet
from vivum.protocols.commands import MessagesLeftOut

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


class _Fate(Enum):
    NEW = "new"
    REPEATED = "repeated"
    UNREADABLE = "unreadable"


class SeenKeys:
    """What a receiver had of each query. At most `QUERIES_MAX` are remembered."""

    def __init__(self) -> None:
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

    def sift(self, delivery: Delivery) -> Iterator[Effect]:
        """Take the heads off a run of messages: runs of what is new, and reports of what lies between.

        Heads are on the messages, or in `heads` beside them.
        """
        headed = delivery.payloads
        if delivery.heads:
            headed = [head + payload for head, payload in zip(delivery.heads, delivery.payloads, strict=True)]
        begin = 0
        for fate, same in groupby(map(self._fate, headed)):
            stop = begin + sum(1 for _ in same)
            numbers = (delivery.first_sequence + begin, delivery.first_sequence + stop)
            if fate is _Fate.NEW:
                run = headed[begin:stop]
                sizes = [head_bytes(each) for each in run]
                payloads = [each[size:] for each, size in zip(run, sizes, strict=True)]
                heads = [each[:size] for each, size in zip(run, sizes, strict=True)]
                yield replace(delivery, first_sequence=numbers[0], payloads=payloads, heads=heads)
            else:
                yield MessagesLeftOut(delivery.group, delivery.sender, *numbers, fate is _Fate.REPEATED)
            begin = stop

    def _fate(self, payload: bytes) -> _Fate:
        size = head_bytes(payload)
        if not size:
            return _Fate.UNREADABLE
        if size < HEAD_BYTES:
            return _Fate.NEW
        _, query, batch, position = _HEAD.unpack_from(payload)
        return _Fate.NEW if self.is_new(query, batch, position) else _Fate.REPEATED
