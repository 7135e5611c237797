"""Payloads as typed columns: a topic's type as a Spark schema, and the decoding of Arrow columns by it.

A payload that is not of the type does not stop anything: its `value` is null and `refused` says why.
"""

from operator import attrgetter
from typing import Any

import msgspec
import pyarrow
from pyspark.sql import types

from vivum.storage.topic_types import TypeDescription, struct_of

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
