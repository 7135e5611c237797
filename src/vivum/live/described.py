"""JSON texts as the values of a topic whose type is known by its description alone.

Commands have no classes for the types of other programs: `JsonType` decodes messages of a described type to JSON
texts, and encodes JSON texts, naming the field that does not fit. Structs are objects with the names of their fields,
bytes are base64, times are as in RFC 3339. What a description does not tell (unions, classes of the program's own) is
passed as it is.
"""

import datetime
import decimal
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from vivum.core.errors import UsageError
from vivum.wire.schema import (
    EnumType,
    LimitedType,
    MapType,
    OptionalType,
    PlainType,
    SequenceType,
    TupleType,
    TypeDescription,
    TypeExpression,
    attributes_of,
    read_schema,
    struct_of,
    type_text,
)

Convert = Callable[[Any], Any]

_PLAIN: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "bytes": bytes,
    "bytearray": bytes,
    "memoryview": bytes,
    "datetime": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "timedelta": datetime.timedelta,
    "UUID": uuid.UUID,
    "Decimal": decimal.Decimal,
    "None": type(None),
}


class JsonType:
    """A described type whose values are JSON texts. `NodeHandle.enter` takes it in place of a class."""

    def __init__(self, schema: str) -> None:
        description = read_schema(schema)
        if description is None:
            raise UsageError(f"{schema} does not describe fields; a topic without a type takes bytes")
        self.schema = schema
        self.name = description.name
        self.outline = outline_of(description)
        self._read = msgspec.msgpack.Decoder(struct_of(description)).decode
        self._to_names = _to_names(description)
        self._parse = msgspec.json.Decoder(_named_struct(description)).decode
        self._to_places = _to_places(description)
        self._write = msgspec.msgpack.Encoder(decimal_format="string").encode

    def decode(self, payload: bytes) -> bytes:
        """Return a message as a JSON text. Raises msgspec's error if it is not of the type."""
        return msgspec.json.encode(self._to_names(self._read(payload)))

    def encode(self, text: bytes) -> bytes:
        """Return the message of a JSON text. Raises `UsageError` that names the field which does not fit."""
        try:
            return self._write(self._to_places(self._parse(text)))
        except msgspec.ValidationError as error:
            told, _, place = str(error).partition(" - at `$")
            where = f"field {place.strip('`.')} of {self.name}" if place else self.name
            raise UsageError(f"{where}: {told}; {self.name} has the fields {self.outline}") from None
        except msgspec.DecodeError as error:
            raise UsageError(
                f"{text.decode(errors='replace')} is not JSON ({error}); give an object with the fields {self.outline}"
            ) from None


def outline_of(description: TypeDescription) -> str:
    """Return the names and types of the fields, for people; `?` behind those that may be left out."""
    return ", ".join(
        f"{each.name}{'' if each.required else '?'}: {type_text(each.type)}" for each in description.fields
    )


def _named_struct(description: TypeDescription) -> type[msgspec.Struct]:
    """Make the struct of a JSON object with these fields, and no others."""
    attributes = attributes_of(description)
    fields: list[Any] = []
    for attribute, each in zip(attributes, description.fields, strict=True):
        kind = _checked_type(each.type)
        fields.append((attribute, kind) if each.required else (attribute, kind | msgspec.UnsetType, msgspec.UNSET))
    return msgspec.defstruct(
        description.name,
        fields,
        rename={attribute: each.name for attribute, each in zip(attributes, description.fields, strict=True)},
        kw_only=True,
        forbid_unknown_fields=True,
    )


def _checked_type(kind: TypeExpression) -> Any:
    """Return the type by which a value from outside is checked."""
    match kind:
        case PlainType(name):
            return _PLAIN.get(name, Any)
        case LimitedType(item, limits):
            return Annotated[_checked_type(item), msgspec.Meta(**dict(limits))]
        case EnumType(values=values) if values:
            return Literal[values]
        case EnumType(base=base):
            return _PLAIN.get(base, Any)
        case SequenceType(_, item):
            return list[_checked_type(item)]  # type: ignore[misc]
        case TupleType(items):
            return tuple[tuple(map(_checked_type, items))]  # type: ignore[misc]
        case MapType(key, value):
            return dict[_checked_type(key), _checked_type(value)]  # type: ignore[misc]
        case OptionalType(item):
            return _checked_type(item) | None
        case TypeDescription():
            return _named_struct(kind)
    return Any


def _same(value: Any) -> Any:
    return value


def _of_parts(kind: TypeExpression, of_struct: Callable[[TypeDescription], Convert]) -> Convert:
    """Return what converts the structs inside a value, wherever they are in it."""
    match kind:
        case TypeDescription():
            return of_struct(kind)
        case LimitedType(item):
            return _of_parts(item, of_struct)
        case OptionalType(item):
            inner = _of_parts(item, of_struct)
            return lambda value: None if value is None else inner(value)
        case SequenceType(_, item):
            inner = _of_parts(item, of_struct)
            return lambda values: [inner(each) for each in values]
        case MapType(_, value):
            inner = _of_parts(value, of_struct)
            return lambda values: {key: inner(each) for key, each in values.items()}
        case TupleType(items):
            parts = [_of_parts(each, of_struct) for each in items]
            return lambda values: [part(each) for part, each in zip(parts, _items_of(values), strict=True)]
    return _same


def _items_of(values: Any) -> Any:
    # `struct_of` reads tuples as structs.
    return msgspec.structs.astuple(values) if isinstance(values, msgspec.Struct) else values


def _to_names(description: TypeDescription) -> Convert:
    """Return what makes a value that `struct_of` decoded a dictionary."""
    parts = [
        (each.name, attribute, _of_parts(each.type, _to_names))
        for attribute, each in zip(attributes_of(description), description.fields, strict=True)
    ]
    return lambda value: {name: _given(part, getattr(value, attribute)) for name, attribute, part in parts}


def _given(part: Convert, value: Any) -> Any:
    # A field that was left out is None, whatever its type.
    return None if value is None else part(value)


def _to_places(description: TypeDescription) -> Convert:
    """Return what makes a value of `_named_struct` a list or a dictionary, as it travels."""
    parts = [
        (each.name, attribute, _of_parts(each.type, _to_places))
        for attribute, each in zip(attributes_of(description), description.fields, strict=True)
    ]
    tag, tag_field = description.tag, description.tag_field or "type"

    def to_map(value: Any) -> dict[str, Any]:
        given = {} if tag is None else {tag_field: tag}
        for name, attribute, part in parts:
            item = getattr(value, attribute)
            if item is not msgspec.UNSET:
                given[name] = part(item)
        return given

    def to_array(value: Any) -> list[Any]:
        made = [] if tag is None else [tag]
        left_out = ""
        for name, attribute, part in parts:
            item = getattr(value, attribute)
            if item is msgspec.UNSET:
                left_out = left_out or name
            elif left_out:
                raise msgspec.ValidationError(f"it stands before {name}, so it must be given too - at `$.{left_out}`")
            else:
                made.append(part(item))
        return made

    return to_array if description.array_like else to_map
