"""Values as Arrow columns and back, for all that a message can hold. No Spark runs here."""

import datetime
import decimal
import enum
from typing import Any, NamedTuple

import msgspec
import pyarrow
import pytest
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

import vivum
from vivum.core.errors import UsageError
from vivum.pipeline.typed import PayloadDecoder, PayloadEncoder, check_columns, fields_without_column, spark_struct
from vivum.wire.schema import describe_type


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Leg(vivum.Message):
    venue: str
    price: float | None = None


class Place(msgspec.Struct, rename="kebab"):
    street_name: str


class Point(NamedTuple):
    x: int
    y: float


class Deal(vivum.Message):
    legs: list[Leg]
    best: Leg | None
    by_name: dict[str, Leg]
    by_number: dict[int, list[Place]]
    at: datetime.datetime
    day: datetime.date
    side: Side
    sides: list[Side]
    pair: tuple[int, tuple[str, Leg]]
    point: Point
    tags: frozenset[str]
    price: decimal.Decimal
    lasting: datetime.timedelta
    data: bytes = b""


AT = datetime.datetime(2026, 11, 16, 14, 30, 0, 5, tzinfo=datetime.UTC)
DEALS = [
    Deal(
        [Leg("XSWX", 1.5), Leg("XETR")], None, {"a": Leg("A")}, {1: [Place("Main")]}, AT, AT.date(), Side.BUY,
        [Side.SELL], (1, ("b", Leg("C"))), Point(1, 2.0), frozenset({"t"}), decimal.Decimal("1.50"),
        datetime.timedelta(seconds=90), b"x",
    ),
    Deal([], Leg("B"), {}, {}, AT, AT.date(), Side.SELL, [], (2, ("", Leg("D"))), Point(0, 0.0), frozenset(),
         decimal.Decimal(0), datetime.timedelta(0)),
]  # fmt: skip


def test_columns_become_the_payloads_that_they_came_from():
    struct = spark_struct(describe_type(Deal))
    check_columns(Deal, struct)
    value_type = to_arrow_schema(types.StructType([types.StructField("value", struct)]), timezone="UTC").field(0).type
    payloads = list(map(msgspec.msgpack.encode, DEALS))
    value, refused = PayloadDecoder(describe_type(Deal), value_type).columns(pyarrow.array([*payloads, b"\xc1"]))
    assert [each is None for each in refused.to_pylist()] == [True, True, False]
    assert value[0].as_py()["pair"] == {"_1": 1, "_2": {"_1": "b", "_2": {"venue": "C", "price": None}}}
    assert value[0].as_py()["by_number"] == [(1, [{"street-name": "Main"}])]
    batch = pyarrow.RecordBatch.from_struct_array(value.slice(0, 2))
    assert PayloadEncoder(Deal, struct.names).payloads(batch) == payloads


def test_a_value_that_no_column_takes_is_refused_with_its_field_and_the_others_are_not():
    class Counted(vivum.Message):
        name: str
        count: int
        parts: list[int]

    struct = spark_struct(describe_type(Counted))
    value_type = to_arrow_schema(types.StructType([types.StructField("value", struct)]), timezone="UTC").field(0).type
    values = [Counted("a", 1, [2]), Counted("b", 1 << 63, []), Counted("c", 3, [1, (1 << 64) - 1])]
    payloads = [*map(msgspec.msgpack.encode, values), b"\xc1"]
    decoder = PayloadDecoder(describe_type(Counted), value_type)
    for column in (payloads[:3], payloads):
        value, refused = decoder.columns(pyarrow.array(column))
        assert [each is not None for each in value.to_pylist()] == [True, False, False, False][: len(column)]
        reasons = refused.to_pylist()
        assert reasons[0] is None
        assert reasons[1].startswith("field count does not fit int64")
        assert reasons[2].startswith("field parts does not fit list<")
    assert "malformed" in reasons[3]


def test_fields_without_a_column_type_are_named():
    class Odd(vivum.Message):
        name: str
        either: int | str
        inside: dict[str, list[Any]]
        nothing: None = None

    assert fields_without_column(describe_type(Odd)) == ["either", "inside", "nothing"]
    with pytest.raises(UsageError, match=r"\(either: int \| str, inside: dict\[str, list\[Any\]\], nothing: None\)"):
        spark_struct(describe_type(Odd))
    with pytest.raises(UsageError, match=r"field 'either' of Odd is int \| str, for which Spark has no column type"):
        check_columns(Odd, types.StructType([types.StructField("either", types.LongType())]))
