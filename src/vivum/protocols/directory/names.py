"""Names of topics: a tree, written as paths, and patterns over it."""

import re
from functools import lru_cache

from vivum.core.errors import UsageError

NAME_BYTES_MAX = 255

_PART = re.compile(r"[^/*\x00-\x1f\x7f]+")


def check_name(name: str) -> str:
    """Return the name of a topic, or raise a `UsageError` that says what is wrong with it."""
    return _check(name, is_pattern=False)


def check_pattern(pattern: str) -> str:
    """Return a pattern of names, or raise a `UsageError`. `*` stands for one part, a last `**` for one or more."""
    return _check(pattern, is_pattern=True)


def is_pattern(name: str) -> bool:
    """Tell whether this is meant as a pattern."""
    return "*" in name


def _check(name: str, is_pattern: bool) -> str:
    what = "pattern" if is_pattern else "name"
    if not name.startswith("/") or len(name.encode()) > NAME_BYTES_MAX:
        raise UsageError(f"{name!r} is not a {what} of topics; it begins with / and has at most {NAME_BYTES_MAX} bytes")
    parts = name[1:].split("/")
    for index, part in enumerate(parts):
        wild = is_pattern and (part == "*" or (part == "**" and index == len(parts) - 1))
        if not wild and not _PART.fullmatch(part):
            hint = (
                "* stands for one whole part, ** only for the last" if is_pattern else "expected /part/part, without *"
            )
            raise UsageError(f"{name!r} is not a {what} of topics: part {index + 1} is {part!r}; {hint}")
    return name


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> "re.Pattern[str]":
    parts = pattern[1:].split("/")
    last = parts.pop() if parts[-1] == "**" else None
    text = "".join("/[^/]+" if part == "*" else "/" + re.escape(part) for part in parts)
    return re.compile(text + ("/.+" if last else ""))


def matches(pattern: str, name: str) -> bool:
    """Tell whether a name matches a pattern. Both are well formed, or nothing matches."""
    return _compiled(pattern).fullmatch(name) is not None
