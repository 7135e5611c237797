"""Encode and decode the values of topics, and check whether a type fits that of a topic.

A type is `bytes`, or a subclass of `Message`. Its description (`vivum.wire.schema`) travels to the directory; the first
node that enters a topic fixes it, and a later one must fit: be the same, or differ in further fields with defaults.

Structs do not check their fields when they are made, so values are checked when they are encoded: receivers skip what
they cannot decode, and the sender would never know. Where all fields are plain, a function made for the type checks
the class of each (40 ns for three fields); values of other types are decoded once for the check.
"""

import keyword
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from vivum.core.errors import LimitError, UsageError
from vivum.live.described import JsonType
from vivum.live.failures import TypeMismatch
from vivum.wire.directory import SCHEMA_CHARACTERS_MAX
from vivum.wire.schema import (
    BYTES_SCHEMA,
    TypesDiffer,
    describe_type,
    join_types,
    read_schema,
    title_of,
    write_schema,
)

T = TypeVar("T")


class Message(msgspec.Struct, array_like=True, gc=False):
    """Base of the types of topics: a msgspec struct, sent as an array in msgpack.

        class Quote(vivum.Message):
            symbol: str
            bid: float = 0.0  # fields with defaults may be added later

    Values must not contain themselves: for speed, the garbage collector ignores messages.
    """


def _kept(payload: bytes) -> bytes:
    return payload


def _checked(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise UsageError(f"a topic of bytes takes bytes, not {type(value).__name__}; enter it with a vivum.Message type")


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """Encodes and decodes values of one type."""

    schema: str
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    is_raw: bool


def codec_of(kind: type[T] | JsonType) -> Codec[T]:
    """Make the codec of a type, or raise a `UsageError` if values of it cannot travel."""
    if isinstance(kind, JsonType):
        return Codec(kind.schema, kind.encode, kind.decode, False)  # type: ignore[arg-type]
    if kind is bytes:
        return Codec(BYTES_SCHEMA, _checked, _kept, True)
    if not (isinstance(kind, type) and issubclass(kind, Message)):
        raise UsageError(f"{kind!r} is not a type of topics; expected bytes or a subclass of vivum.Message")
    schema, decode = schema_of(kind), msgspec.msgpack.Decoder(kind).decode
    return Codec(schema, _encoder_of(kind, decode), decode, False)


_PLAIN = (int, str, float, bool, bytes)
_PLACE = re.compile(r" - at `\$\[(\d+)\].*`")


def _encoder_of(kind: type[T], decode: Callable[[bytes], T]) -> Callable[[T], bytes]:
    """Make the function that encodes values of a type and refuses those that receivers could not decode."""
    encode = msgspec.msgpack.Encoder().encode

    def encode_checked(value: T) -> bytes:
        if type(value) is not kind:
            raise UsageError(f"this topic takes {kind.__name__}, not {type(value).__name__}")
        try:
            data = encode(value)
            decode(data)
        except msgspec.ValidationError as error:
            raise UsageError(_refusal(kind, str(error))) from None
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UsageError(f"this {kind.__name__} cannot be sent: {error}") from error
        return data

    test = _plain_test(kind)
    if test is None:
        return encode_checked
    # Generate code for the type, as dataclasses does: a loop over the fields would cost more than encoding.
    source = f"""
def encode_plain(value):
    if type(value) is kind{test}:
        try:
            return encode(value)
        except Exception:
            pass
    return encode_checked(value)
"""
    names: dict[str, Any] = {"kind": kind, "encode": encode, "encode_checked": encode_checked}
    exec(source, names)
    made: Callable[[T], bytes] = names["encode_plain"]
    return made


def _plain_test(kind: type[Any]) -> str | None:
    """Return source that tests whether every field has exactly its class; None where the class is not enough."""
    tests = []
    for field in msgspec.structs.fields(kind):
        wanted, value = field.type, f"value.{field.name}"
        is_optional = isinstance(wanted, types.UnionType) or typing.get_origin(wanted) is typing.Union
        if is_optional:
            inner = [each for each in typing.get_args(wanted) if each is not type(None)]
            wanted = inner[0] if len(inner) == 1 else None
        if wanted not in _PLAIN or keyword.iskeyword(field.name):
            return None
        test = f"type({value}) is {wanted.__name__}"
        tests.append(f" and ({test} or {value} is None)" if is_optional else f" and {test}")
    return "".join(tests)


def _refusal(kind: type[Any], told: str) -> str:
    """Return the error text with the field's name; msgspec only knows its position."""
    place = _PLACE.search(told)
    if place is None:
        return f"this {kind.__name__} cannot be sent: {told}"
    name = kind.__struct_fields__[int(place[1])]
    return f"field {name} of {kind.__name__}: {told[: place.start()]}; receivers could not read it"


@lru_cache(maxsize=256)
def schema_of(kind: type[Message]) -> str:
    """Return the description of a type for the directory."""
    text = write_schema(describe_type(kind))
    if len(text) > SCHEMA_CHARACTERS_MAX:
        raise LimitError(
            f"the description of {kind.__name__} has {len(text)} characters, over {SCHEMA_CHARACTERS_MAX}; "
            "split the type, or send bytes"
        )
    return text


def check_types(topic: str, own: str, theirs: str) -> None:
    """Raise `TypeMismatch` unless a type fits the one that a topic has."""
    if own == theirs:
        return
    mine, found = read_schema(own), read_schema(theirs)
    if mine is None or found is None:
        raise TypeMismatch(f"topic {topic} has type {title_of(theirs)}, not {title_of(own)}; enter it with that type")
    try:
        join_types(found, mine)
    except TypesDiffer as why:
        raise TypeMismatch(f"topic {topic} has type {found.name}: {why}") from None


def check_fit(topic: str, own: str, guarantee: str, theirs: str, their_guarantee: str) -> None:
    """Raise `TypeMismatch` unless a type and a guarantee fit those that a topic has."""
    if their_guarantee != guarantee:
        raise TypeMismatch(
            f"topic {topic} has the guarantee {their_guarantee!r}, not {guarantee!r}; enter it with that one"
        )
    check_types(topic, own, theirs)
