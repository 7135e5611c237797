"""What `_causal_walk.pyx` gives; told in `causal_twin.py`."""

from collections.abc import Iterable
from typing import Any

Place = tuple[int, int, int, int, int, int]

def walk(blocks: Iterable[Any], hold: bool) -> tuple[int, list[tuple[Place, Place]]]: ...
