"""Types of messages as data: the one description, from `topic.send` to a column of Spark.

A program's type is described once (`describe_type`). The description travels to the directory as a JSON text, stands in
a log's `types.json` as the same JSON, and is all that readers with other classes, or with none, need to decode values
(`struct_of`).

The JSON is `[name, [[field, type, may be left out], ...]]`, and `{...}` behind it for what is not encoded as topics
are. A type is written as Python writes it: `str | None`, `list[int]`, `dict[str, float]`, `tuple[int, str]`,
`datetime`. A struct is written out, as `Party(name:str,rank?:int)` if its values are arrays and `Party{name:str}` if
they are maps; `?` says that a field may be left out. So is an enumeration: `Side['buy', 'sell']`.

Two types fit if values of each can be read by the other (`join_types`): one of them may have further fields with
defaults, at its end where values are arrays. It may also have further members of an enumeration; readers of the other
pass over messages with these.

What cannot be told, such as a class of the program's own, is an `UnknownType`, never left out. So is what older
versions wrote by its name alone.
"""

import ast
import datetime
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from keyword import iskeyword
from typing import Any

import msgspec
from msgspec import inspect

from vivum.core.errors import UsageError

BYTES_SCHEMA = '"bytes"'
"""The description of a topic without a type."""

CODECS = ("msgpack", "json")

ENUM_VALUES_MAX = 64
"""Members of an enumeration that are told; of a larger one only what they are, since descriptions must stay short."""

DEPTH_MAX = 32
"""How deep a type may nest in a text that is read: a peer wrote it."""


class TypesDiffer(Exception):  # noqa: N818 - an answer more than an error
    """Two types do not fit; the text says where."""


@dataclass(frozen=True, slots=True)
class PlainType:
    """A type without parts, by its name: `int`, `datetime`, `Any`."""

    name: str


@dataclass(frozen=True, slots=True)
class SequenceType:
    """Any number of items. `kind` is `list`, `set`, `frozenset` or `tuple`."""

    kind: str
    item: "TypeExpression"


@dataclass(frozen=True, slots=True)
class TupleType:
    """One item of each of these types."""

    items: "tuple[TypeExpression, ...]"


@dataclass(frozen=True, slots=True)
class MapType:
    """A dictionary."""

    key: "TypeExpression"
    value: "TypeExpression"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """Of this type, or None."""

    item: "TypeExpression"


@dataclass(frozen=True, slots=True)
class UnionType:
    """Of one of these types, in the order of their texts."""

    items: "tuple[TypeExpression, ...]"


@dataclass(frozen=True, slots=True)
class EnumType:
    """One of some values; without `values` there are too many to tell. A `Literal` is one with that name."""

    name: str
    base: str
    values: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class LimitedType:
    """Of this type, within limits: `ge=0`, `max_length=8`."""

    item: "TypeExpression"
    limits: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class UnknownType:
    """What this text names, which nobody here knows."""

    text: str


@dataclass(frozen=True, slots=True)
class FieldDescription:
    """A field of a struct."""

    name: str
    type: "TypeExpression"
    required: bool = True


@dataclass(frozen=True, slots=True)
class TypeDescription:
    """A struct, and how its values are encoded. Those with a tag begin with it, or have it under `tag_field`."""

    name: str
    fields: tuple[FieldDescription, ...]
    array_like: bool = False
    codec: str = "msgpack"
    tag: str | int | None = None
    tag_field: str | None = None


TypeExpression = (
    PlainType
    | SequenceType
    | TupleType
    | MapType
    | OptionalType
    | UnionType
    | EnumType
    | LimitedType
    | UnknownType
    | TypeDescription
)

NONE = PlainType("None")

_PLAIN: dict[type, str] = {
    inspect.StrType: "str",
    inspect.IntType: "int",
    inspect.FloatType: "float",
    inspect.BoolType: "bool",
    inspect.BytesType: "bytes",
    inspect.ByteArrayType: "bytearray",
    inspect.MemoryViewType: "memoryview",
    inspect.DateTimeType: "datetime",
    inspect.DateType: "date",
    inspect.TimeType: "time",
    inspect.TimeDeltaType: "timedelta",
    inspect.UUIDType: "UUID",
    inspect.DecimalType: "Decimal",
    inspect.NoneType: "None",
    inspect.AnyType: "Any",
    inspect.RawType: "Raw",
    inspect.ExtType: "Ext",
}
_SEQUENCES: dict[type, str] = {
    inspect.ListType: "list",
    inspect.CollectionType: "list",
    inspect.SetType: "set",
    inspect.FrozenSetType: "frozenset",
    inspect.VarTupleType: "tuple",
}
_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")

_CARRIED_AS = {
    "bytearray": "bytes",
    "memoryview": "bytes",
    "time": "str",
    "timedelta": "str",
    "UUID": "str",
    "Decimal": "str",
}
"""Plain types whose values travel as those of another."""

_PYTHON: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "bytes": bytes,
    "datetime": datetime.datetime,
    "date": datetime.date,
    "None": type(None),
}


def describe_type(message_type: Any, codec: str = "msgpack") -> TypeDescription:
    """Describe a struct. Raises `UsageError` for what is none."""
    if isinstance(message_type, TypeDescription):
        return message_type
    if codec not in CODECS:
        raise UsageError(f"codec {codec!r} is unknown; codecs are {', '.join(CODECS)}")
    try:
        found = inspect.type_info(message_type)
    except (TypeError, NameError) as error:
        raise UsageError(f"{message_type!r} is no type of messages: {error}") from error
    if not isinstance(found, inspect.StructType):
        raise UsageError(f"{message_type!r} is no type of messages; give a msgspec struct")
    return replace(_describe_struct(found, ()), codec=codec)


def _describe_struct(found: Any, around: tuple[Any, ...]) -> TypeDescription:
    around = (*around, found.cls)
    fields = tuple(
        FieldDescription(each.encode_name, _describe(each.type, around), each.required) for each in found.fields
    )
    is_array = isinstance(found, inspect.NamedTupleType) or getattr(found, "array_like", False)
    tag, tag_field = getattr(found, "tag", None), getattr(found, "tag_field", None)
    return TypeDescription(_name(found.cls), fields, is_array, tag=tag, tag_field=None if tag is None else tag_field)


def _describe(found: Any, around: tuple[Any, ...]) -> TypeExpression:
    """Describe the type of a field. `around` are the structs that it is in: one in itself is told by its name."""
    if isinstance(found, inspect.Metadata):
        return _describe(found.type, around)
    limits = tuple((each, limit) for each in _LIMITS if (limit := getattr(found, each, None)) is not None)
    made = _describe_bare(found, around)
    return LimitedType(made, limits) if limits else made


def _describe_bare(found: Any, around: tuple[Any, ...]) -> TypeExpression:
    kind = type(found)
    if kind in _PLAIN:
        return PlainType(_PLAIN[kind])
    if kind in _SEQUENCES:
        return SequenceType(_SEQUENCES[kind], _describe(found.item_type, around))
    if kind is inspect.TupleType:
        return TupleType(tuple(_describe(each, around) for each in found.item_types))
    if hasattr(found, "key_type"):
        return MapType(_describe(found.key_type, around), _describe(found.value_type, around))
    if kind is inspect.UnionType:
        return _union(_describe(each, around) for each in found.types)
    if kind is inspect.EnumType:
        return _enum(_name(found.cls), [each.value for each in found.cls])
    if kind is inspect.LiteralType:
        literal = _enum("Literal", [each for each in found.values if each is not None])
        return OptionalType(literal) if None in found.values else literal
    if isinstance(found, inspect.StructType | inspect.DataclassType | inspect.NamedTupleType | inspect.TypedDictType):
        return UnknownType(_name(found.cls)) if found.cls in around else _describe_struct(found, around)
    return UnknownType(_name(getattr(found, "cls", kind)))


def _name(kind: Any) -> str:
    return re.sub(r"\W", "_", getattr(kind, "__name__", str(kind)))


def _enum(name: str, values: Sequence[Any]) -> EnumType:
    bases = {str if isinstance(each, str) else int for each in values}
    base = bases.pop().__name__ if len(bases) == 1 else "Any"
    told = tuple(str(each) if isinstance(each, str) else int(each) for each in values)
    return EnumType(name, base, told if len(told) <= ENUM_VALUES_MAX else ())


def _union(items: Iterable[TypeExpression]) -> TypeExpression:
    every = {type_text(each): each for each in items}
    is_optional = every.pop("None", None) is not None
    rest = tuple(every[text] for text in sorted(every))
    if not rest:
        return NONE
    made = rest[0] if len(rest) == 1 else UnionType(rest)
    return OptionalType(made) if is_optional else made


# To text and back


def type_text(kind: TypeExpression) -> str:
    """Write a type so that equal texts mean equal types."""
    match kind:
        case PlainType(name):
            return name
        case SequenceType("tuple", item):
            return f"tuple[{type_text(item)}, ...]"
        case SequenceType(sequence, item):
            return f"{sequence}[{type_text(item)}]"
        case TupleType(items):
            return f"tuple[{', '.join(map(type_text, items))}]"
        case MapType(key, value):
            return f"dict[{type_text(key)}, {type_text(value)}]"
        case OptionalType(item):
            return f"{type_text(item)} | None"
        case UnionType(items):
            return " | ".join(map(type_text, items))
        case EnumType(name, base, values):
            return f"{name}[{', '.join(map(repr, values)) or base}]"
        case LimitedType(item, limits):
            return (
                f"Annotated[{type_text(item)}, msgspec.Meta({', '.join(f'{key}={limit!r}' for key, limit in limits)})]"
            )
        case UnknownType(text):
            return text
        case TypeDescription():
            return _struct_text(kind)


def _struct_text(kind: TypeDescription) -> str:
    parts = [] if kind.tag is None else [f"{_word(kind.tag_field or 'type')}={kind.tag!r}"]
    parts += [f"{_word(each.name)}{'' if each.required else '?'}:{type_text(each.type)}" for each in kind.fields]
    inside = ",".join(parts)
    return f"{kind.name}({inside})" if kind.array_like else f"{kind.name}{{{inside}}}"


def _word(name: str) -> str:
    return name if name.isidentifier() else repr(name)


class _Encoding(msgspec.Struct, omit_defaults=True):
    """How values are encoded, where it is not as in topics."""

    array_like: bool = True
    codec: str = "msgpack"
    tag: str | int | None = None
    tag_field: str | None = None


class _Encoded(msgspec.Struct, array_like=True):
    name: str
    fields: list[tuple[str, str, bool]]
    encoding: _Encoding = msgspec.field(default_factory=_Encoding)


def type_to_json(description: TypeDescription) -> list[Any]:
    """Return a description as plain data."""
    fields = [[each.name, type_text(each.type), not each.required] for each in description.fields]
    more = msgspec.to_builtins(
        _Encoding(description.array_like, description.codec, description.tag, description.tag_field)
    )
    return [description.name, fields, more] if more else [description.name, fields]


def type_from_json(data: Any) -> TypeDescription:
    """Return the description that `type_to_json` wrote. Raises `msgspec.ValidationError` for anything else."""
    told = msgspec.convert(data, _Encoded)
    fields = tuple(FieldDescription(name, parse_type(text), not optional) for name, text, optional in told.fields)
    how = told.encoding
    return TypeDescription(told.name, fields, how.array_like, how.codec, how.tag, how.tag_field)


def write_schema(description: TypeDescription) -> str:
    """Write the text that travels to the directory."""
    return json.dumps(type_to_json(description), separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=1024)
def read_schema(text: str) -> TypeDescription | None:
    """Read a text from the directory; None for bytes, and for what is no description."""
    try:
        return type_from_json(msgspec.json.decode(text))
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None


def title_of(schema: str) -> str:
    """Return the short name of a described type, for people."""
    description = read_schema(schema)
    if description is not None:
        return description.name
    return "bytes" if schema == BYTES_SCHEMA else "unknown"


@lru_cache(maxsize=4096)
def parse_type(text: str) -> TypeExpression:
    """Read the text of a type; an `UnknownType` where it cannot be understood."""
    try:
        return _Parser(text).whole()
    except (ValueError, SyntaxError):
        return UnknownType(text)


_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[^\W\d][\w.]*)|(?P<literal>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?\d[\d.]*(?:e[+-]?\d+)?)"""
    r"""|(?P<sign>\.\.\.|[][(){},:|?=]))\s*"""
)
_OTHER_NAMES = {
    "NoneType": "None",
    "datetime.datetime": "datetime",
    "datetime.date": "date",
    "datetime.time": "time",
    "datetime.timedelta": "timedelta",
    "uuid.UUID": "UUID",
    "decimal.Decimal": "Decimal",
    "msgspec.Raw": "Raw",
    "msgspec.msgpack.Ext": "Ext",
    "List": "list",
    "Set": "set",
    "FrozenSet": "frozenset",
    "Tuple": "tuple",
    "Dict": "dict",
}
_WORDS = {"True": True, "False": False, "None": None}
_PLAIN_NAMES = frozenset(_PLAIN.values())


class _Parser:
    """Reads one text, by recursive descent. Raises `ValueError` or `SyntaxError` for what is no type."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        self._at = self._depth = 0
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None or found.lastgroup is None:
                raise ValueError(f"{text!r} is no type")
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()
        self._tokens.append(("end", ""))

    def whole(self) -> TypeExpression:
        made = self._type()
        self._take("end")
        return made

    def _take(self, kind: str, sign: str | None = None) -> str:
        found, text = self._tokens[self._at]
        if found != kind or (sign is not None and text != sign):
            raise ValueError(f"found {text!r}, expected {sign or kind}")
        self._at += 1
        return text

    def _is_next(self, *signs: str) -> bool:
        kind, text = self._tokens[self._at]
        return kind == "sign" and text in signs

    def _maybe(self, sign: str) -> bool:
        if self._is_next(sign):
            self._at += 1
            return True
        return False

    def _type(self) -> TypeExpression:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ValueError(f"nested deeper than {DEPTH_MAX}")
        items = [self._term()]
        while self._maybe("|"):
            items.append(self._term())
        self._depth -= 1
        return items[0] if len(items) == 1 else _union(items)

    def _term(self) -> TypeExpression:
        name = self._take("name")
        name = _OTHER_NAMES.get(name, name)
        if self._maybe("["):
            return self._generic(name)
        if self._is_next("(", "{"):
            return self._struct(name)
        return PlainType(name) if name in _PLAIN_NAMES else UnknownType(name)

    def _generic(self, name: str) -> TypeExpression:
        made: TypeExpression
        if name == "Annotated":
            made = self._type()
            self._take("sign", ",")
            limits = self._limits()
            made = LimitedType(made, limits) if limits else made
        elif name == "dict":
            key = self._type()
            self._take("sign", ",")
            made = MapType(key, self._type())
        elif name in ("list", "set", "frozenset"):
            made = SequenceType(name, self._type())
        elif name == "Optional":
            made = _union([self._type(), NONE])
        elif name == "Union":
            made = _union(self._types())
        elif name == "tuple":
            items = [] if self._is_next("]") else self._types()
            made = (
                SequenceType("tuple", items[0]) if len(items) == 1 and self._maybe("...") else TupleType(tuple(items))
            )
        else:
            made = self._members(name)
        self._take("sign", "]")
        return made

    def _types(self) -> list[TypeExpression]:
        items = [self._type()]
        while self._maybe(","):
            if self._is_next("..."):
                break
            items.append(self._type())
        return items

    def _members(self, name: str) -> TypeExpression:
        if self._tokens[self._at][0] == "name" and self._tokens[self._at][1] in ("str", "int", "Any"):
            return EnumType(name, self._take("name"))
        values = [self._value()]
        while self._maybe(","):
            values.append(self._value())
        told = [each for each in values if each is not None]
        if any(not isinstance(each, str | int) for each in told):
            raise ValueError(f"members of {name} are neither texts nor numbers")
        made = _enum(name, told)
        return OptionalType(made) if len(told) < len(values) else made

    def _limits(self) -> tuple[tuple[str, Any], ...]:
        self._take("name", "msgspec.Meta")
        self._take("sign", "(")
        found = {}
        while not self._maybe(")"):
            key = self._take("name")
            self._take("sign", "=")
            found[key] = self._value()
            if not self._is_next(")"):
                self._take("sign", ",")
        return tuple((key, found[key]) for key in _LIMITS if found.get(key) is not None)

    def _struct(self, name: str) -> TypeDescription:
        is_array = self._maybe("(")
        if not is_array:
            self._take("sign", "{")
        end = ")" if is_array else "}"
        fields: list[FieldDescription] = []
        tag: Any = None
        tag_field: str | None = None
        while not self._maybe(end):
            kind, text = self._tokens[self._at]
            word = str(ast.literal_eval(self._take("literal"))) if kind == "literal" else self._take("name", text)
            if self._maybe("="):
                tag, tag_field = self._value(), word
            else:
                required = not self._maybe("?")
                self._take("sign", ":")
                fields.append(FieldDescription(word, self._type(), required))
            if not self._is_next(end):
                self._take("sign", ",")
        return TypeDescription(name, tuple(fields), is_array, tag=tag, tag_field=tag_field)

    def _value(self) -> Any:
        kind, text = self._tokens[self._at]
        if kind == "name" and text in _WORDS:
            self._at += 1
            return _WORDS[text]
        return ast.literal_eval(self._take("literal"))


# Comparison


def join_types(known: TypeDescription, new: TypeDescription, *, as_stored: bool = False) -> TypeDescription:
    """Return the type with all fields of both. Raises `TypesDiffer` if readers of one cannot read values of the other.

    `as_stored` compares how values travel, not what programs make of them: a reader of a log takes an enumeration for
    the texts that it is.
    """
    if _encoding(known) != _encoding(new):
        raise TypesDiffer(f"values of {known.name} and {new.name} are encoded differently")
    shared = min(len(known.fields), len(new.fields))
    if known.array_like:
        pairs = list(zip(known.fields, new.fields, strict=False))
        further = [(known, each) for each in known.fields[shared:]] + [(new, each) for each in new.fields[shared:]]
    else:
        before, after = ({each.name: each for each in one.fields} for one in (known, new))
        pairs = [(each, after[each.name]) for each in known.fields if each.name in after]
        further = [(known, each) for each in known.fields if each.name not in after]
        further += [(new, each) for each in new.fields if each.name not in before]
    fields = []
    for number, (one, other) in enumerate(pairs, 1):
        try:
            both = _join(one.type, other.type, as_stored) if one.name == other.name else None
        except TypesDiffer as error:
            raise TypesDiffer(f"in field {one.name}, {error}") from None
        if both is None:
            raise TypesDiffer(f"field {number} is {_field_text(one)}; in {new.name} it is {_field_text(other)}")
        fields.append(FieldDescription(one.name, both, one.required and other.required))
    for owner, each in further:
        if each.required:
            raise TypesDiffer(
                f"field {_field_text(each)} is only in {owner.name} and has no default, "
                "so values of the other cannot be read"
            )
        fields.append(each)
    wider = known if len(known.fields) >= len(new.fields) else new
    return replace(wider, fields=tuple(fields))


def _encoding(one: TypeDescription) -> tuple[Any, ...]:
    return one.codec, one.array_like, one.tag, one.tag_field


def _field_text(field: FieldDescription) -> str:
    return f"{field.name}: {type_text(field.type)}"


def _join(one: TypeExpression, other: TypeExpression, as_stored: bool) -> TypeExpression | None:
    """Return what two types of a field have in common, None if they do not fit."""
    if one == other or (as_stored and carried(one) == carried(other)):
        return other
    match one, other:
        case UnknownType(text), _ if text.rpartition(".")[2] == getattr(other, "name", None):
            return other
        case _, UnknownType(text) if text.rpartition(".")[2] == getattr(one, "name", None):
            return one
        case SequenceType(), SequenceType() if as_stored or one.kind == other.kind:
            item = _join(one.item, other.item, as_stored)
            return None if item is None else SequenceType(other.kind, item)
        case OptionalType(), OptionalType():
            item = _join(one.item, other.item, as_stored)
            return None if item is None else OptionalType(item)
        case LimitedType(), LimitedType() if one.limits == other.limits:
            item = _join(one.item, other.item, as_stored)
            return None if item is None else LimitedType(item, one.limits)
        case MapType(), MapType():
            key, value = _join(one.key, other.key, as_stored), _join(one.value, other.value, as_stored)
            return None if key is None or value is None else MapType(key, value)
        case TupleType(), TupleType() if len(one.items) == len(other.items):
            items = [_join(*pair, as_stored) for pair in zip(one.items, other.items, strict=True)]
            known = tuple(each for each in items if each is not None)
            return TupleType(known) if len(known) == len(items) else None
        case EnumType(), EnumType() if (one.name, one.base) == (other.name, other.base):
            if not other.values or (one.values and set(one.values) <= set(other.values)):
                return other
            return one if set(one.values) >= set(other.values) or not one.values else None
        case TypeDescription(), TypeDescription():
            return join_types(one, other, as_stored=as_stored)
    return None


# Reading values


def carried(kind: TypeExpression) -> TypeExpression:
    """Return the type that values of a type look like to a reader without the program's classes."""
    match kind:
        case LimitedType(item):
            return carried(item)
        case EnumType(_, base):
            return PlainType(base)
        case PlainType(name):
            return PlainType(_CARRIED_AS.get(name, name))
        case SequenceType(_, item):
            return SequenceType("list", item)
        case TupleType(items):
            places = (FieldDescription(f"_{number}", item) for number, item in enumerate(items, 1))
            return TypeDescription("tuple", tuple(places), array_like=True)
    return kind


def attributes_of(description: TypeDescription) -> list[str]:
    """Return the attributes of `struct_of` that hold the fields: their names, unless Python cannot have such a name."""
    return [
        each.name if each.name.isidentifier() and not iskeyword(each.name) else f"field_{number}"
        for number, each in enumerate(description.fields, 1)
    ]


def struct_of(description: TypeDescription) -> type[msgspec.Struct]:
    """Make a struct that decodes values of this type. Unknown fields are left out, as an older reader would."""
    attributes = attributes_of(description)
    fields: list[Any] = []
    for attribute, each in zip(attributes, description.fields, strict=True):
        kind = _python_type(each.type)
        fields.append((attribute, kind) if each.required else (attribute, kind | None, None))
    return msgspec.defstruct(
        description.name,
        fields,
        array_like=description.array_like,
        rename={attribute: each.name for attribute, each in zip(attributes, description.fields, strict=True)},
        tag=description.tag,
        tag_field=description.tag_field,
        frozen=True,
        kw_only=True,
    )


def _python_type(kind: TypeExpression) -> Any:
    match carried(kind):
        case PlainType(name):
            return _PYTHON.get(name, Any)
        case SequenceType(_, item):
            return list[_python_type(item)]  # type: ignore[misc]
        case MapType(key, value):
            return dict[_python_type(key), _python_type(value)]  # type: ignore[misc]
        case OptionalType(item):
            return _python_type(item) | None
        case TypeDescription() as struct:
            return struct_of(struct)
    return Any
