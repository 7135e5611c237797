"""Patterns of topic names: `/swx/NESN` is one topic, `/swx/*` all directly below, `/swx/**` all below."""

import re
from collections.abc import Iterable

from vivum.core.errors import UsageError

EVERY_TOPIC = "/**"


class TopicPattern:
    """One pattern or several, as a person writes them: separated by commas."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.patterns = [each.strip() for each in text.split(",") if each.strip()]
        if not self.patterns:
            raise UsageError("no topics are named; give names such as /swx/NESN, /swx/* or /**")
        self._regular = re.compile("|".join(map(_regular, self.patterns)))

    @property
    def is_everything(self) -> bool:
        """Tell whether every topic fits."""
        return EVERY_TOPIC in self.patterns

    @property
    def exact(self) -> frozenset[str] | None:
        """The topics that fit if no pattern has a wildcard, else None."""
        return None if "*" in self.text else frozenset(self.patterns)

    def fits(self, topic: str) -> bool:
        """Tell whether a topic fits one of the patterns."""
        return self._regular.fullmatch(topic) is not None

    def chosen(self, topics: Iterable[str]) -> list[str]:
        """Return those that fit."""
        return [topic for topic in topics if self.fits(topic)]


def _regular(pattern: str) -> str:
    if not pattern.startswith("/"):
        raise UsageError(f"{pattern!r} is not a topic; names begin with '/', as in /swx/NESN or /swx/**")
    steps = pattern[1:].split("/")
    made = ""
    for step in steps:
        if step == "**":
            made += "/.+"
        elif step == "*":
            made += "/[^/]+"
        elif "*" in step:
            raise UsageError(f"{pattern!r}: '*' and '**' stand for whole steps of a name, as in /swx/* or /swx/**")
        else:
            made += "/" + re.escape(step)
    return made
