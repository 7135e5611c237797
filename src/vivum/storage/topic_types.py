"""Types of topics beside a log: what the payloads of each topic are, so that a reader can give fields as columns.

A type is told as plain data (`types.json`), not as code: who reads a log has other classes, or none, and a log must be
readable years later. `describe_type` tells a msgspec struct; `struct_of` makes a struct of the same shape again.

A topic whose type is unknown is listed as well, and read raw. So is what a topic promised, by name, for who sends its
messages again; older logs do not tell it. And whether its payloads begin with heads that are no part of the messages.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from vivum.core.errors import UsageError
from vivum.storage.errors import StorageError
from vivum.storage.segment_files import write_whole

TYPES_FILE = "types.json"
FORMAT_OF_TYPES = 1
CODECS = ("msgpack", "json")

_PLAIN: dict[type, tuple[str, Any]] = {
    inspect.StrType: ("str", str),
    inspect.IntType: ("int", int),
    inspect.FloatType: ("float", float),
    inspect.BoolType: ("bool", bool),
    inspect.BytesType: ("bytes", bytes),
}
_PLAIN_TYPES = dict(_PLAIN.values())


class FieldDescription(msgspec.Struct, frozen=True):
    """One field. `type` is a plain name, or one of `{"optional": T}`, `{"list": T}`, `{"map": T}`, `{"struct": S}`."""

    name: str
    type: Any
    required: bool = True


class TypeDescription(msgspec.Struct, frozen=True):
    """The shape of a struct, and how its values are encoded."""

    name: str
    fields: tuple[FieldDescription, ...]
    array_like: bool = False
    codec: str = "msgpack"


def describe_type(message_type: Any, codec: str = "msgpack") -> TypeDescription:
    """Tell the shape of a msgspec struct. Raises `UsageError` for what has no columns."""
    if isinstance(message_type, TypeDescription):
        return message_type
    if codec not in CODECS:
        raise UsageError(f"codec {codec!r} is unknown; codecs are {', '.join(CODECS)}")
    try:
        found = inspect.type_info(message_type)
    except TypeError as error:
        raise UsageError(f"{message_type!r} is no type of messages: {error}") from error
    if not isinstance(found, inspect.StructType):
        raise UsageError(f"{message_type!r} is no type of messages; give a msgspec struct")
    return msgspec.structs.replace(_describe_struct(found, found.cls.__name__), codec=codec)


def _describe_struct(found: inspect.StructType, where: str) -> TypeDescription:
    fields = tuple(
        FieldDescription(each.encode_name, _describe(each.type, f"{where}.{each.name}"), each.required)
        for each in found.fields
    )
    return TypeDescription(found.cls.__name__, fields, found.array_like)


def _describe(found: inspect.Type, where: str) -> Any:
    if type(found) in _PLAIN:
        return _PLAIN[type(found)][0]
    if isinstance(found, inspect.ListType | inspect.VarTupleType | inspect.SetType | inspect.FrozenSetType):
        return {"list": _describe(found.item_type, where)}
    if isinstance(found, inspect.DictType) and isinstance(found.key_type, inspect.StrType):
        return {"map": _describe(found.value_type, where)}
    if isinstance(found, inspect.StructType):
        return {"struct": msgspec.json.decode(msgspec.json.encode(_describe_struct(found, where)))}
    if isinstance(found, inspect.EnumType):
        return "str" if all(isinstance(each.value, str) for each in found.cls) else "int"
    if isinstance(found, inspect.UnionType):
        rest = [each for each in found.types if not isinstance(each, inspect.NoneType)]
        if len(rest) == 1 and len(rest) < len(found.types):
            return {"optional": _describe(rest[0], where)}
    raise UsageError(f"{where} is a {type(found).__name__.removesuffix('Type').lower()}, which has no column type")


def struct_of(description: TypeDescription) -> type[msgspec.Struct]:
    """Make a struct that decodes values of this type. Unknown fields are left out, as an older reader would."""
    fields: list[Any] = []
    for each in description.fields:
        kind = python_type(each.type)
        fields.append((each.name, kind) if each.required else (each.name, kind | None, None))
    return msgspec.defstruct(description.name, fields, array_like=description.array_like, frozen=True, kw_only=True)


def python_type(described: Any) -> Any:
    """Return the Python type for the type of a field."""
    if isinstance(described, str):
        return _PLAIN_TYPES[described]
    ((kind, inner),) = described.items()
    if kind == "optional":
        return python_type(inner) | None
    if kind == "list":
        return list[python_type(inner)]  # type: ignore[misc]
    if kind == "map":
        return dict[str, python_type(inner)]  # type: ignore[misc]
    return struct_of(msgspec.convert(inner, TypeDescription))


def difference(old: TypeDescription, new: TypeDescription) -> str:
    """Say why values of the new type cannot stand beside those of the old one; empty when they can."""
    if (old.codec, old.array_like) != (new.codec, new.array_like):
        return "they are encoded differently"
    before, after = ({each.name: each for each in one.fields} for one in (old, new))
    for name, each in after.items():
        known = before.get(name)
        if known is None and each.required:
            return f"field {name!r} is new and has no default"
        if known is not None and known.type != each.type:
            return f"field {name!r} was {_shown(known.type)} and is {_shown(each.type)}"
    gone = [name for name in before if name not in after]
    return f"field {gone[0]!r} is gone" if gone else ""


def _shown(described: Any) -> str:
    return described if isinstance(described, str) else json.dumps(described)


class TopicTypes:
    """The types of a log's topics, and what each promised."""

    def __init__(
        self,
        types: dict[str, TypeDescription | None] | None = None,
        guarantees: dict[str, str] | None = None,
        headed: set[str] | None = None,
    ) -> None:
        self.types = types or {}
        self.guarantees = guarantees or {}
        self.headed = headed or set()
        """Topics whose payloads begin with a head, all of them."""

    @classmethod
    def read(cls, directory: Path) -> "TopicTypes":
        """Read the types beside a log; none where there is no such file."""
        path = directory / TYPES_FILE
        try:
            stored = msgspec.json.decode(path.read_bytes())
            if stored["format"] != FORMAT_OF_TYPES:
                raise StorageError(f"{path} has format {stored['format']}, this version reads {FORMAT_OF_TYPES}")
            return cls(
                msgspec.convert(stored["topics"], dict[str, TypeDescription | None]),
                msgspec.convert(stored.get("guarantees", {}), dict[str, str]),
                msgspec.convert(stored.get("headed", []), set[str]),
            )
        except FileNotFoundError:
            return cls()
        except (OSError, msgspec.MsgspecError, KeyError, TypeError) as error:
            raise StorageError(f"cannot read the types {path}: {error}; restore the file or remove it") from error

    def declare(self, topic: str, message_type: Any) -> bool:
        """Note a topic's type; tell whether it was news. Raises `UsageError` if it does not fit the one before."""
        new = describe_type(message_type)
        old = self.types.get(topic)
        if old == new:
            return False
        why = difference(old, new) if old is not None else ""
        if why:
            raise UsageError(f"type {new.name} does not fit the type of {topic} in the log: {why}; use another log")
        self.types[topic] = new
        return True

    def promise(self, topic: str, guarantee: str, is_headed: bool = False) -> bool:
        """Note what a topic promises, and whether its payloads have heads; tell whether it was news."""
        is_new = self.note([topic]) or self.guarantees.get(topic) != guarantee
        self.guarantees[topic] = guarantee
        if is_headed and topic not in self.headed:
            self.headed.add(topic)
            is_new = True
        return is_new

    def note(self, topics: Iterable[str]) -> bool:
        """Note topics of which nothing but the name is known; tell whether there was a new one."""
        new = [topic for topic in topics if topic not in self.types]
        self.types.update(dict.fromkeys(new))
        return bool(new)

    def write(self, directory: Path) -> None:
        """Write the file, whole."""
        stored = {
            "format": FORMAT_OF_TYPES,
            "topics": msgspec.to_builtins(self.types),
            "guarantees": self.guarantees,
            "headed": sorted(self.headed),
        }
        write_whole(directory / TYPES_FILE, msgspec.json.format(msgspec.json.encode(stored), indent=1))

    def common(self, topics: Iterable[str]) -> TypeDescription:
        """Return the one type of these topics. Raises `UsageError` if one has none, or two differ."""
        found: tuple[str, TypeDescription] | None = None
        for topic in topics:
            mine = self.types.get(topic)
            if mine is None:
                raise UsageError(f"topic {topic} has no type in the log; read it without the option 'typed'")
            if found is None or difference(mine, found[1]) == "":
                found = found or (topic, mine)
            elif (why := difference(found[1], mine)) == "":
                found = (topic, mine)
            else:
                raise UsageError(f"topics {found[0]} and {topic} differ in type: {why}; choose topics of one type")
        if found is None:
            raise UsageError("no topic with a type was chosen; read without the option 'typed'")
        return found[1]
