"""What `_packing.pyx` gives; told in `packing_twin.py`."""

from typing import Any

from vivum.storage._packing_twin import Part

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
) -> None: ...
