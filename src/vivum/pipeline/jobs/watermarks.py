"""How far event time has come: the delay by which a watermark trails the latest event time of a silver table."""

from vivum.core.errors import UsageError
from vivum.core.time import MILLISECOND, parse_duration_ns

WATERMARK_DELAY = "60s"
"""How far messages may come out of order before they count as late. To repair a member, or to find one dead, takes
seconds. More makes windows final later, less makes more rows late; none is lost by either."""

_DELAY_MAX_MS = 366 * 86_400 * 1_000


def delay_ms(text: str) -> int:
    """Read a delay that a person wrote. Raises `UsageError`."""
    found = parse_duration_ns(text) // MILLISECOND
    if found > _DELAY_MAX_MS:
        raise UsageError(f"--watermark {text}: must be a year at most")
    return found
