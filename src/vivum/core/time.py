"""Time is an integer number of nanoseconds, everywhere.

Machines receive it as the argument `now_ns` and never ask a clock. Durations are differences of two such
values; names that hold them end in `_ns`. Floating-point seconds appear only where a person reads or writes them.
"""

import re

from vivum.core.errors import UsageError

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000

_UNITS_NS = {"ns": 1, "us": MICROSECOND, "µs": MICROSECOND, "ms": MILLISECOND, "s": SECOND, "min": 60 * SECOND}
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ns|us|µs|ms|s|min)\s*")


def parse_duration_ns(text: str) -> int:
    """Read a duration that a person wrote, such as `"10ms"` or `"1.5 s"`, as nanoseconds."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is not a duration; write a number and a unit (ns, us, ms, s, min), such as '10ms'"
        )
    number, unit = match.groups()
    return round(float(number) * _UNITS_NS[unit]) if "." in number else int(number) * _UNITS_NS[unit]


def format_duration(duration_ns: int) -> str:
    """Write a duration for a person with the largest unit that leaves at least one whole digit."""
    for unit, size_ns in (("s", SECOND), ("ms", MILLISECOND), ("µs", MICROSECOND)):
        if abs(duration_ns) >= size_ns:
            return f"{duration_ns / size_ns:.3f}".rstrip("0").rstrip(".") + unit
    return f"{duration_ns}ns"
