"""Represent time as an integer number of nanoseconds, everywhere.

Machines receive it as the argument `now_ns` and never ask a clock. Durations are differences of two such
values; names that hold them end in `_ns`. Floating-point seconds appear only where a person reads or writes them.
"""

import re

from vivum.core.errors import UsageError

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000

_UNITS_NS = {
    "ns": 1,
    "us": MICROSECOND,
    "µs": MICROSECOND,  # the micro sign
    "μs": MICROSECOND,  # the Greek letter, which looks the same
    "ms": MILLISECOND,
    "s": SECOND,
    "min": 60 * SECOND,
}
# Bound the digits: the number may come from a file that somebody else wrote.
_DURATION = re.compile(r"\s*([0-9]{1,18})(?:\.([0-9]{1,18}))?\s*([a-zµμ]+)\s*")


def parse_duration_ns(text: str) -> int:
    """Parse a duration such as `"10ms"` or `"1.5 s"`; return nanoseconds."""
    match = _DURATION.fullmatch(text)
    if match is None or match[3] not in _UNITS_NS:
        raise UsageError(f"{text!r} is not a duration; write a number and a unit (ns, us, ms, s, min), such as '10ms'")
    whole, part, unit = match.groups(default="")
    # Compute with integers: a float would be off by nanoseconds for long durations.
    scale: int = 10 ** len(part)
    return int(whole + part) * _UNITS_NS[unit] // scale


def format_duration(duration_ns: int) -> str:
    """Format a duration for people, with three decimals, in the largest unit that it reaches."""
    for unit, size_ns in (("s", SECOND), ("ms", MILLISECOND), ("µs", MICROSECOND)):
        thousandths = round(duration_ns * 1000 / size_ns)
        if abs(thousandths) >= 1000:
            return f"{thousandths / 1000:.3f}".rstrip("0").rstrip(".") + unit
    return f"{duration_ns}ns"
