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
from vivum.storage.topic_types import TypeDescription, describe_type, struct_of

_PLAIN = {
    "str": types.StringType(),
    "int": types.LongType(),
    "float": types.DoubleType(),
    "bool": types.BooleanType(),
    "bytes": types.BinaryType(),
}


def spark_struct(description: TypeDescription) -> types.StructType:
    """Return the Spark type of a topic's values. Every field may be null: a type may have gained fields later."""
    return types.StructType(
        [types.StructField(each.name, _spark_type(each.type), nullable=True) for each in description.fields]
    )


def _spark_type(described: Any) -> types.DataType:
    if isinstance(described, str):
        return _PLAIN[described]
    ((kind, inner),) = described.items()
    if kind == "optional":
        return _spark_type(inner)
    if kind == "list":
        return types.ArrayType(_spark_type(inner))
    if kind == "map":
        return types.MapType(types.StringType(), _spark_type(inner))
    return spark_struct(msgspec.convert(inner, TypeDescription))


class PayloadDecoder:
    """Decodes columns of payloads into columns of values."""

    def __init__(self, description: TypeDescription, value_type: Any) -> None:
        self._value_type = value_type
        struct = struct_of(description)
        decoders: dict[str, Any] = {"msgpack": msgspec.msgpack.Decoder, "json": msgspec.json.Decoder}
        self._decode = decoders[description.codec](struct).decode
        self._fields = [(attrgetter(each.name), isinstance(each.type, dict)) for each in description.fields]

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
        for (get, nested), field in zip(self._fields, self._value_type, strict=True):
            if reasons is None:
                column = list(map(get, values))
            else:
                column = [None if each is None else get(each) for each in values]
            if nested:
                column = msgspec.to_builtins(column, builtin_types=(bytes,))
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


def check_columns(message_type: type[Message], columns: types.StructType) -> None:
    """Raise `UsageError` unless rows with these columns can become values of the type."""
    name = message_type.__name__
    described = {each.name: each for each in describe_type(message_type).fields}
    for column in columns:
        if column.name not in described:
            fields = ", ".join(described)
            raise UsageError(f"column {column.name!r} is no field of {name}; fields are {fields}: select only those")
        wanted = _spark_type(described[column.name].type)
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
        if not isinstance(given, types.MapType) or not isinstance(given.keyType, types.StringType):
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
            (each, _shaper(described[each.encode_name]) if each.encode_name in columns else None, each.encode_name)
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


def _shaper(described: Any) -> Callable[[Any], Any] | None:
    """Return what brings a value of Arrow into the shape that msgspec wants; None if it has that shape."""
    if isinstance(described, str):
        return None
    ((kind, inner),) = described.items()
    if kind == "struct":
        description = msgspec.convert(inner, TypeDescription)
        inside = [(each.name, _shaper(each.type) or _same) for each in description.fields]
        make: Any = tuple if description.array_like else dict

        def shape(value: Any) -> Any:
            pairs = [(name, shaped(value[name])) for name, shaped in inside]
            return make(pairs) if make is dict else make(each for _, each in pairs)

    elif kind == "map":
        shaped = _shaper(inner) or _same

        def shape(value: Any) -> Any:
            return {key: shaped(each) for key, each in value}

    else:
        shaped_inner = _shaper(inner)
        if shaped_inner is None:
            return None
        if kind == "optional":
            return shaped_inner

        def shape(value: Any) -> Any:
            return [shaped_inner(each) for each in value]

    return lambda value: None if value is None else shape(value)


def _same(value: Any) -> Any:
    return value
