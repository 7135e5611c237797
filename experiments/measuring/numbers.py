"""The form in which measurements leave a point."""

from typing import Any

Numbers = dict[str, float]


def percentile(ordered: Any, share: int) -> float:
    """Return the value below which this share of a sorted sequence lies; 0 of an empty one."""
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)] if ordered else 0.0
