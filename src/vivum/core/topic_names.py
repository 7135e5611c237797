"""Names of topics and patterns over them: the one grammar, for the directory, readers, recorders, Spark and commands.

A name is a path: `/swx/NESN`. In a pattern `*` stands for one whole part, and `**` as the last part for one or more:
`/swx/*` matches all topics directly below `/swx`, `/swx/**` all topics below it at any depth, `/**` every topic.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from vivum.core.errors import UsageError

NAME_BYTES_MAX = 255

EVERY_TOPIC = "/**"

OWN_TOPICS = "/vivum"
"""Topics below are Vivum's own, such as those by which recorders are asked. Lists and patterns leave them out."""

_PART = re.compile(r"[^/*\x00-\x1f\x7f]+")
_NOTHING = re.compile(r"(?!)")


def check_name(name: str) -> str:
    """Return the name of a topic, or raise a `UsageError` that says what is wrong with it."""
    return _check(name, is_pattern=False)


def check_pattern(pattern: str) -> str:
    """Return a pattern of names, or raise a `UsageError` that says what is wrong with it."""
    return _check(pattern, is_pattern=True)


def is_pattern(name: str) -> bool:
    """Return whether this has a wildcard."""
    return "*" in name


def matches(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern. A malformed pattern matches nothing."""
    return _compiled(pattern).fullmatch(name) is not None


class TopicPatterns:
    """One pattern or several, as a person writes them: separated by commas."""

    def __init__(self, text: str) -> None:
        self.patterns = tuple(check_pattern(each.strip()) for each in text.split(",") if each.strip())
        if not self.patterns:
            raise UsageError("no topics are named; give names such as /swx/NESN, /swx/* or /**")

    @property
    def is_everything(self) -> bool:
        """Whether every topic matches."""
        return EVERY_TOPIC in self.patterns

    @property
    def exact(self) -> frozenset[str] | None:
        """The topics that match if no pattern has a wildcard, else None."""
        return None if any(map(is_pattern, self.patterns)) else frozenset(self.patterns)

    def match(self, topic: str) -> bool:
        """Return whether a topic matches one of the patterns."""
        return any(matches(each, topic) for each in self.patterns)

    def chosen(self, topics: Iterable[str]) -> list[str]:
        """Return the topics that match."""
        return [topic for topic in topics if self.match(topic)]


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
    try:
        parts = check_pattern(pattern)[1:].split("/")
    except UsageError:
        return _NOTHING
    last = parts.pop() if parts[-1] == "**" else None
    text = "".join("/[^/]+" if part == "*" else "/" + re.escape(part) for part in parts)
    return re.compile(text + ("/.+" if last else ""))
