"""How the twins read their arguments: numbers within bounds, and the bytes of bytes-like objects."""

from typing import Any

from vivum.wire import refusals


def require(value: Any, what: str, least: int, most: int) -> int:
    """Read an int argument, or refuse it by name."""
    if not isinstance(value, int):
        raise refusals.not_an_int(what, value)
    if not least <= value <= most:
        raise refusals.out_of_range(what, value, least, most)
    return int(value)  # a bool stays what it is otherwise


def bytes_of(value: Any, what: str) -> bytes:
    """Copy the bytes of an argument, unless they are `bytes` already."""
    if type(value) is bytes:
        return value
    try:
        view = memoryview(value)
    except TypeError:
        raise refusals.not_bytes_like(what, value) from None
    if not view.c_contiguous:
        raise refusals.not_bytes_like(what, value)
    return view.tobytes()
