"""Payloads as typed columns and back: a topic's type as a Spark schema, decoding and encoding of Arrow columns by it.

On the way in, a payload that is not of the type does not stop anything: its `value` is null and `refused` says why. On
the way out, columns that do not fit the type are refused before anything runs, and a value that does not fit it stops
the query: nothing may vanish.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow
from pyspark.sql import types

from vivum.core.errors import UsageError
from vivum.live.messages import Message
from vivum.storage.gaps import Gap
from vivum.wire.schema import (
    MapType,
    OptionalType,
    PlainType,
    SequenceType,
    TypeDescription,
    TypeExpression,
    attributes_of,
    carried,
    describe_type,
    struct_of,
    type_text,
)

Shape = Callable[[Any], Any]

_PLAIN = {
    "str": types.StringType(),
    "int": types.LongType(),
    "float": types.DoubleType(),
    "bool": types.BooleanType(),
    "bytes": types.BinaryType(),
    "datetime": types.TimestampType(),
    "date": types.DateType(),
}


class _NoColumnError(Exception):
    """Spark has no type for this."""


def spark_struct(description: TypeDescription) -> types.StructType:
    """Return the Spark type of a topic's values. Every field may be null: a type may have gained fields later.

    Raises `UsageError` that names the fields that Spark has no type for.
    """
    without = fields_without_column(description)
    if without:
        told = ", ".join(f"{each.name}: {type_text(each.type)}" for each in description.fields if each.name in without)
        raise UsageError(f"Spark has no column type for fields of {description.name} ({told}); read its payloads raw")
    return _spark_struct(description)


def fields_without_column(description: TypeDescription) -> list[str]:
    """Return the fields that no Spark type can hold: unions, values of any type, types in themselves."""
    found = []
    for each in description.fields:
        try:
            _spark_type(each.type)
        except _NoColumnError:
            found.append(each.name)
    return found


def _spark_struct(description: TypeDescription) -> types.StructType:
    return types.StructType([types.StructField(each.name, _spark_type(each.type), True) for each in description.fields])


def _spark_type(kind: TypeExpression) -> types.DataType:
    match carried(kind):
        case PlainType(name) if name in _PLAIN:
            return _PLAIN[name]
        case OptionalType(item):
            return _spark_type(item)
        case SequenceType(_, item):
            return types.ArrayType(_spark_type(item))
        case MapType(key, value):
            return types.MapType(_spark_type(key), _spark_type(value))
        case TypeDescription() as struct if struct.fields:
            return _spark_struct(struct)
    raise _NoColumnError


class PayloadDecoder:
    """Decodes columns of payloads into columns of values."""

    def __init__(self, description: TypeDescription, value_type: Any) -> None:
        self._value_type = value_type
        self.is_of_gaps = description.name == Gap.__name__
        struct = struct_of(description)
        decoders: dict[str, Any] = {"msgpack": msgspec.msgpack.Decoder, "json": msgspec.json.Decoder}
        self._decode = decoders[description.codec](struct).decode
        self._fields = [
            (attrgetter(attribute), _to_arrow(each.type))
            for attribute, each in zip(attributes_of(description), description.fields, strict=True)
        ]

    def columns(self, payloads: Any) -> tuple[Any, Any]:
        """Return `value` and `refused` for a column of payloads."""
        raw = payloads.to_pylist()
        reasons: list[str | None] | None = None
        try:
            values: list[Any] = list(map(self._decode, raw))
        except msgspec.MsgspecError:
            values, reasons = self._one_by_one(raw)
        mask = None
        if reasons is not None:
            mask = pyarrow.array([each is None for each in values])
        arrays = []
        for (get, shape), field in zip(self._fields, self._value_type, strict=True):
            if reasons is None:
                column = list(map(get, values))
            else:
                column = [None if each is None else get(each) for each in values]
            if shape is not None:
                column = list(map(shape, column))
            arrays.append(pyarrow.array(column, field.type, size=len(column)))
        value = pyarrow.StructArray.from_arrays(arrays, fields=list(self._value_type), mask=mask)
        return value, pyarrow.array(reasons or [None] * len(raw), pyarrow.string(), size=len(raw))

    def _one_by_one(self, raw: list[bytes]) -> tuple[list[Any], list[str | None]]:
        """Decode a column that has a bad payload in it, and find out which."""
        values: list[Any] = []
        reasons: list[str | None] = []
        for each in raw:
            try:
                values.append(self._decode(each))
                reasons.append(None)
            except msgspec.MsgspecError as error:
                values.append(None)
                reasons.append(str(error))
        return values, reasons


def _to_arrow(kind: TypeExpression) -> Shape | None:
    """Return what brings a decoded value into the shape that Arrow wants; None if it has that shape."""
    match carried(kind):
        case OptionalType(item):
            return _to_arrow(item)
        case TypeDescription() as struct:
            inside = [
                (each.name, attrgetter(attribute), _to_arrow(each.type) or _same)
                for attribute, each in zip(attributes_of(struct), struct.fields, strict=True)
            ]
            return _or_none(lambda value: {name: shape(get(value)) for name, get, shape in inside})
        case MapType(_, item):
            shape_value = _to_arrow(item) or _same
            return _or_none(lambda value: [(key, shape_value(each)) for key, each in value.items()])
        case SequenceType(_, item) if (shape_item := _to_arrow(item)) is not None:
            return _or_none(lambda value: list(map(shape_item, value)))
    return None


def check_columns(message_type: type[Message], columns: types.StructType) -> None:
    """Raise `UsageError` unless rows with these columns can become values of the type."""
    name = message_type.__name__
    described = {each.name: each for each in describe_type(message_type).fields}
    for column in columns:
        if column.name not in described:
            fields = ", ".join(described)
            raise UsageError(f"column {column.name!r} is no field of {name}; fields are {fields}: select only those")
        try:
            wanted = _spark_type(described[column.name].type)
        except _NoColumnError:
            kind = type_text(described[column.name].type)
            raise UsageError(f"field {column.name!r} of {name} is {kind}, for which Spark has no column type") from None
        if not _fits(column.dataType, wanted):
            raise UsageError(
                f"column {column.name!r} is {column.dataType.simpleString()}, and the field of {name} is "
                f"{wanted.simpleString()}; cast it"
            )
    for each in described.values():
        if each.required and each.name not in columns.names:
            raise UsageError(f"{name} needs a column {each.name!r}; columns are {', '.join(columns.names) or 'none'}")


def _fits(given: types.DataType, wanted: types.DataType) -> bool:
    if isinstance(wanted, types.LongType):
        return isinstance(given, types.IntegralType)
    if isinstance(wanted, types.DoubleType):
        return isinstance(given, types.DoubleType | types.FloatType)
    if isinstance(wanted, types.ArrayType):
        return isinstance(given, types.ArrayType) and _fits(given.elementType, wanted.elementType)
    if isinstance(wanted, types.MapType):
        if not isinstance(given, types.MapType) or not _fits(given.keyType, wanted.keyType):
            return False
        return _fits(given.valueType, wanted.valueType)
    if isinstance(wanted, types.StructType):
        if not isinstance(given, types.StructType) or given.names != wanted.names:
            return False
        return all(_fits(one.dataType, other.dataType) for one, other in zip(given, wanted, strict=True))
    return isinstance(given, type(wanted))


class PayloadEncoder:
    """Encodes rows of Arrow columns as payloads of a type. The columns were checked by `check_columns`."""

    def __init__(self, message_type: type[Message], columns: list[str]) -> None:
        self._name = message_type.__name__
        self._values = list[message_type]  # type: ignore[valid-type]
        self._encode = msgspec.msgpack.Encoder().encode
        described = {each.name: each.type for each in describe_type(message_type).fields}
        self._fields = [
            (each, _from_arrow(described[each.encode_name]) if each.encode_name in columns else None, each.encode_name)
            for each in msgspec.structs.fields(message_type)
        ]
        self._columns = set(columns)
        self._is_array = bool(message_type.__struct_config__.array_like)

    def payloads(self, batch: Any) -> list[bytes]:
        """Encode all rows of a batch. Raises `UsageError` for the first that is not of the type."""
        columns: list[list[Any]] = []
        for field, shape, name in self._fields:
            if name not in self._columns:
                # A factory's values are only read here, so rows may share one.
                default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
                columns.append([msgspec.to_builtins(default, builtin_types=(bytes,))] * len(batch))
                continue
            found = batch.column(name).to_pylist()
            columns.append(found if shape is None else list(map(shape, found)))
        rows: list[Any] = list(zip(*columns, strict=True))
        if not self._is_array:
            names = [name for _, _, name in self._fields]
            rows = [dict(zip(names, row, strict=True)) for row in rows]
        try:
            return list(map(self._encode, msgspec.convert(rows, self._values)))
        except msgspec.ValidationError as error:
            raise UsageError(f"a row is no {self._name}: {error}; filter such rows out before the sink") from error


def _from_arrow(kind: TypeExpression) -> Shape | None:
    """Return what brings a value of Arrow into the shape that msgspec wants; None if it has that shape."""
    match carried(kind):
        case OptionalType(item):
            return _from_arrow(item)
        case TypeDescription(fields=fields, array_like=array_like):
            inside = [(each.name, _from_arrow(each.type) or _same) for each in fields]
            if array_like:
                return _or_none(lambda value: tuple(shape(value[name]) for name, shape in inside))
            return _or_none(lambda value: {name: shape(value[name]) for name, shape in inside})
        case MapType(_, item):
            shape_value = _from_arrow(item) or _same
            return _or_none(lambda value: {key: shape_value(each) for key, each in value})
        case SequenceType(_, item) if (shape_item := _from_arrow(item)) is not None:
            return _or_none(lambda value: list(map(shape_item, value)))
    return None


def _or_none(shape: Shape) -> Shape:
    return lambda value: None if value is None else shape(value)


def _same(value: Any) -> Any:
    return value
