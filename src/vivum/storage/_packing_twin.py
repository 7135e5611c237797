"""The columns of a batch, in plain Python: what `_packing.pyx` is measured against."""

from array import array
from collections.abc import Iterable
from itertools import accumulate, chain
from typing import Any

Part = bytes | tuple[bytes, int, int]
"""A payload; or bytes, a place in them and a number: so many payloads from there on, each behind its length of two
bytes, the lower first."""

STOP_MAX = 0x7FFFFFFF
_NUMBER_BYTES = 8
_STOP_BYTES = 4


def lay_columns(
    memory: Any,
    counts: list[int],
    numbers: list[tuple[int, int, list[int]]],
    texts: list[bytes],
    texts_at: int,
    text_stops_at: int,
    parts: list[Part],
    payloads_at: int,
    payload_stops_at: int,
    payload_bytes: int,
) -> None:
    """Write the columns of runs of messages to their places in memory, as Arrow has them.

    Run `i` has `counts[i]` messages. A column of numbers is a place, a step and the first number of each run. The text
    of a run is repeated for each message. Payloads must be as many as all counts, and of this size. Of texts and
    payloads is also noted where each ends, behind a 0. After an error the places may have anything in them.

    Nobody else may have the lists, since other threads run meanwhile.
    """
    if len(texts) != len(counts):
        raise ValueError(f"{len(texts)} texts are not for {len(counts)} runs")
    room = memoryview(memory).cast("B")
    rows = text_bytes = 0
    for count, text in zip(counts, texts, strict=True):
        if not 0 <= count <= STOP_MAX:
            raise ValueError(f"a run cannot have {count} messages")
        if not isinstance(text, bytes):
            raise TypeError(f"a text is bytes, not {type(text).__name__}")
        rows += count
        text_bytes += count * len(text)
        if rows > STOP_MAX or text_bytes > STOP_MAX:
            raise OverflowError(f"texts of more than {STOP_MAX} bytes")
    if payload_bytes > STOP_MAX:
        raise OverflowError(f"payloads of more than {STOP_MAX} bytes")
    for at, step, firsts in numbers:
        if len(firsts) != len(counts):
            raise ValueError(f"{len(firsts)} numbers are not for {len(counts)} runs")
        _check_place(room, at, _NUMBER_BYTES * rows, _NUMBER_BYTES)
        array("q", [step, *firsts])
    spans = [_span(part) for part in parts]
    _check_place(room, texts_at, text_bytes, 1)
    _check_place(room, text_stops_at, _STOP_BYTES * (rows + 1), _STOP_BYTES)
    _check_place(room, payloads_at, payload_bytes, 1)
    _check_place(room, payload_stops_at, _STOP_BYTES * (rows + 1), _STOP_BYTES)

    def put(at: int, data: bytes) -> None:
        room[at : at + len(data)] = data

    def put_stops(at: int, sizes: Iterable[int]) -> None:
        put(at, array("i", accumulate(sizes, initial=0)).tobytes())

    for at, step, firsts in numbers:
        runs = [[first + step * place for place in range(count)] for first, count in zip(firsts, counts, strict=True)]
        put(at, array("q", chain.from_iterable(runs)).tobytes())
    put(texts_at, b"".join(text * count for text, count in zip(texts, counts, strict=True)))
    sizes = [[len(text)] * count for text, count in zip(texts, counts, strict=True)]
    put_stops(text_stops_at, chain.from_iterable(sizes))
    payloads: list[bytes] = []
    for data, start, count in spans:
        if count < 0:
            payloads.append(data)
        elif count > rows - len(payloads) or not _cut(data, start, count, payloads):
            raise ValueError(f"these are not {rows} payloads of {payload_bytes} bytes")
    if len(payloads) != rows or sum(map(len, payloads)) != payload_bytes:
        raise ValueError(f"these are not {rows} payloads of {payload_bytes} bytes")
    put(payloads_at, b"".join(payloads))
    put_stops(payload_stops_at, map(len, payloads))


def _check_place(room: memoryview, at: int, size: int, alignment: int) -> None:
    if at < 0 or size < 0 or size > len(room) - at or at % alignment:
        raise ValueError(f"{size} bytes at {at} do not fit into {len(room)}")


def _span(part: Part) -> tuple[bytes, int, int]:
    if isinstance(part, bytes):
        return part, 0, -1
    if type(part) is not tuple or len(part) != 3 or not isinstance(part[0], bytes):
        raise TypeError(f"a payload is bytes, not {type(part).__name__}")
    data, start, count = part
    if count < 0 or not 0 <= start <= len(data):
        raise ValueError(f"{count} payloads at {start} are not in {len(data)} bytes")
    return part


def _cut(data: bytes, at: int, count: int, payloads: list[bytes]) -> bool:
    """Append `count` payloads; return whether there were that many."""
    for _ in range(count):
        stop = at + 2 + int.from_bytes(data[at : at + 2], "little")
        if at + 2 > len(data) or stop > len(data):
            return False
        payloads.append(data[at + 2 : stop])
        at = stop
    return True
