import datetime
import enum
import json
from decimal import Decimal
from typing import Annotated, Literal

import msgspec
import pytest

from vivum.core.errors import UsageError
from vivum.live.described import JsonType
from vivum.live.messages import Message, codec_of, schema_of


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Party(Message):
    name: str
    rank: int = 3


class Order(Message):
    symbol: str
    price: float
    side: Side
    party: Party
    tags: list[str]
    pair: tuple[int, str]
    at: datetime.datetime
    kind: Literal["limit", "market"] = "limit"
    size: Annotated[int, msgspec.Meta(ge=1)] = 1
    worth: Decimal | None = None
    note: bytes = b""


ORDER = Order(
    "NESN",
    101.5,
    Side.SELL,
    Party("x", 7),
    ["a", "b"],
    (4, "four"),
    datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    worth=Decimal("1.50"),
    note=b"\x00\xff",
)
AS_JSON = {
    "symbol": "NESN",
    "price": 101.5,
    "side": "sell",
    "party": {"name": "x", "rank": 7},
    "tags": ["a", "b"],
    "pair": [4, "four"],
    "at": "2026-01-02T03:04:05Z",
    "kind": "limit",
    "size": 1,
    "worth": "1.50",
    "note": "AP8=",
}


@pytest.fixture
def orders() -> JsonType:
    return JsonType(schema_of(Order))


def test_a_message_becomes_an_object_with_the_names_of_its_fields(orders):
    assert json.loads(orders.decode(codec_of(Order).encode(ORDER))) == AS_JSON


def test_an_object_becomes_the_message_that_the_program_with_the_class_reads(orders):
    assert codec_of(Order).decode(orders.encode(json.dumps(AS_JSON).encode())) == ORDER


def test_fields_with_defaults_may_be_left_out_at_the_end(orders):
    short = {name: value for name, value in AS_JSON.items() if name not in ("kind", "size", "worth", "note")}
    assert codec_of(Order).decode(orders.encode(json.dumps(short).encode())).size == 1


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("price", "much", "field price of Order: Expected `float`, got `str`"),
        ("side", "hold", "field side of Order: Invalid enum value 'hold'"),
        ("party", {"name": 1}, "field party.name of Order: Expected `str`, got `int`"),
        ("tags", ["a", 2], "field tags[1] of Order: Expected `str`, got `int`"),
        ("size", 0, "field size of Order: Expected `int` >= 1"),
        ("colour", "red", "Order: Object contains unknown field `colour`"),
    ],
)
def test_a_field_that_does_not_fit_is_named(orders, field, value, told):
    with pytest.raises(UsageError) as refused:
        orders.encode(json.dumps(AS_JSON | {field: value}).encode())
    assert told in str(refused.value)
    assert "symbol: str, price: float" in str(refused.value)


def test_a_field_left_out_before_one_that_is_given_is_named(orders):
    given = {name: value for name, value in AS_JSON.items() if name != "size"}
    with pytest.raises(UsageError, match="field size of Order: it stands before worth"):
        orders.encode(json.dumps(given).encode())


@pytest.mark.parametrize("text", [b"NESN 101.5", b"", b'{"symbol": '])
def test_what_is_no_json_is_refused_with_the_fields_that_are_wanted(orders, text):
    with pytest.raises(UsageError, match=r"is not JSON .* symbol: str"):
        orders.encode(text)


def test_a_message_of_another_type_is_not_decoded(orders):
    with pytest.raises(msgspec.MsgspecError):
        orders.decode(codec_of(Party).encode(Party("x")))


def test_a_topic_of_bytes_has_no_json_type():
    with pytest.raises(UsageError, match="does not describe fields"):
        JsonType('"bytes"')
