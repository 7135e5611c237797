"""Payloads one behind the other, in plain Python: what `_packing.pyx` is measured against."""

from array import array
from itertools import accumulate
from typing import Any

STOP_MAX = 0x7FFFFFFF


def stops_of(payloads: list[bytes]) -> bytes:
    """Return where each payload ends when they lie one behind the other, and 0 before: int32s as Arrow has them."""
    _check(payloads)
    try:
        return array("i", accumulate(map(len, payloads), initial=0)).tobytes()
    except OverflowError:
        raise OverflowError(f"payloads of more than {STOP_MAX} bytes") from None


def pack_payloads(payloads: list[bytes], memory: Any, at: int) -> None:
    """Copy payloads one behind the other into writable memory. Nobody else may have the list: other threads run."""
    _check(payloads)
    joined = b"".join(payloads)
    room = memoryview(memory)
    if at < 0 or len(joined) > len(room) - at:
        raise ValueError(f"{len(joined)} bytes at {at} do not fit into {len(room)}")
    room[at : at + len(joined)] = joined


def _check(payloads: list[bytes]) -> None:
    for kind in set(map(type, payloads)):
        if not issubclass(kind, bytes):
            raise TypeError(f"a payload is bytes, not {kind.__name__}")
