"""Types of topics beside a log: what the payloads of each topic are, so that a reader can give fields as columns.

`types.json` has the descriptions of `vivum.wire.schema`, the same that the directory has: data, not code, since readers
have other classes, or none, and a log must be readable years later.

A topic whose type is unknown is listed as well, and read raw. So is what a topic promised, by name, which replay needs.
And whether its payloads begin with heads that are no part of the messages.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from vivum.core.errors import UsageError
from vivum.storage.errors import StorageError
from vivum.storage.segment_files import write_whole
from vivum.wire.schema import (
    TypeDescription,
    TypesDiffer,
    describe_type,
    join_types,
    type_from_json,
    type_to_json,
)

TYPES_FILE = "types.json"
FORMAT_OF_TYPES = 2


class TopicTypes:
    """The types of a log's topics, and what each promised."""

    def __init__(
        self,
        types: dict[str, TypeDescription | None] | None = None,
        guarantees: dict[str, str] | None = None,
        headed: set[str] | None = None,
        former: dict[str, list[TypeDescription]] | None = None,
    ) -> None:
        self.types = types or {}
        self.guarantees = guarantees or {}
        self.headed = headed or set()
        """Topics whose payloads begin with a head, all of them."""
        self.former = former or {}
        """Types that topics had before, which those of later do not fit; oldest first."""
        self.changes: list[str] = []
        """What was declared here and did not fit what was known, in words."""

    @classmethod
    def read(cls, directory: Path) -> "TopicTypes":
        """Read the types beside a log; none where there is no such file."""
        path = directory / TYPES_FILE
        try:
            stored = msgspec.json.decode(path.read_bytes())
            if stored["format"] != FORMAT_OF_TYPES:
                raise StorageError(f"{path} has format {stored['format']}, this version reads {FORMAT_OF_TYPES}")
            return cls(
                {topic: None if told is None else type_from_json(told) for topic, told in stored["topics"].items()},
                msgspec.convert(stored.get("guarantees", {}), dict[str, str]),
                msgspec.convert(stored.get("headed", []), set[str]),
                {topic: [type_from_json(each) for each in told] for topic, told in stored.get("former", {}).items()},
            )
        except FileNotFoundError:
            return cls()
        except (OSError, msgspec.MsgspecError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(f"cannot read the types {path}: {error}; restore the file or remove it") from error

    def declare(self, topic: str, message_type: Any) -> bool:
        """Note a topic's type; return whether it was news.

        The log keeps the type with all fields of both, so what an older program writes still fits. A type that does not
        fit the one before is the next version of the topic, and the one before is kept as a former one.
        """
        new = describe_type(message_type)
        old = self.types.get(topic)
        if old is not None:
            try:
                new = join_types(old, new, as_stored=True)
            except TypesDiffer as why:
                known = self.former.setdefault(topic, [])
                if old not in known:
                    known.append(old)
                self.changes.append(f"{topic} has another type from now on, {new.name}: {why}")
        self.types[topic] = new
        return new != old

    def promise(self, topic: str, guarantee: str, is_headed: bool = False) -> bool:
        """Note what a topic promises, and whether its payloads have heads; return whether it was news."""
        is_new = self.note([topic]) or self.guarantees.get(topic) != guarantee
        self.guarantees[topic] = guarantee
        if is_headed and topic not in self.headed:
            self.headed.add(topic)
            is_new = True
        return is_new

    def note(self, topics: Iterable[str]) -> bool:
        """Note topics of which nothing but the name is known; return whether there was a new one."""
        new = [topic for topic in topics if topic not in self.types]
        self.types.update(dict.fromkeys(new))
        return bool(new)

    def write(self, directory: Path) -> None:
        """Write the file, whole."""
        stored = {
            "format": FORMAT_OF_TYPES,
            "topics": {topic: None if told is None else type_to_json(told) for topic, told in self.types.items()},
            "guarantees": self.guarantees,
            "headed": sorted(self.headed),
            "former": {topic: [type_to_json(each) for each in told] for topic, told in self.former.items()},
        }
        write_whole(directory / TYPES_FILE, msgspec.json.format(msgspec.json.encode(stored), indent=1))

    def common(self, topics: Iterable[str]) -> TypeDescription:
        """Return the one type of these topics. Raises `UsageError` if one has none, or two differ."""
        found: tuple[str, TypeDescription] | None = None
        for topic in topics:
            mine = self.types.get(topic)
            if mine is None:
                raise UsageError(f"topic {topic} has no type in the log; read it without the option 'typed'")
            try:
                found = (topic, mine if found is None else join_types(found[1], mine, as_stored=True))
            except TypesDiffer as why:
                other = "" if found is None else found[0]
                raise UsageError(
                    f"topics {other} and {topic} differ in type: {why}; choose topics of one type"
                ) from None
        if found is None:
            raise UsageError("no topic with a type was chosen; read without the option 'typed'")
        return found[1]
