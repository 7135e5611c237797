"""Types beside a log."""

import enum

import msgspec
import pytest

from vivum.core.errors import UsageError
from vivum.storage.errors import StorageError
from vivum.storage.segment_log import SegmentLog, TopicDeclaration
from vivum.storage.topic_types import TopicTypes
from vivum.wire.schema import describe_type, struct_of


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Party(msgspec.Struct):
    name: str


class Order(msgspec.Struct):
    symbol: str
    price: float
    size: int
    side: Side
    party: Party
    note: str | None = None
    tags: list[str] = []
    live: bool = True


class OrderLater(Order):
    venue: str | None = None


class OrderOther(msgspec.Struct):
    symbol: int


def test_a_described_type_decodes_what_the_type_encoded():
    again = struct_of(describe_type(Order))
    order = Order("NESN", 101.5, 10, Side.BUY, Party("UBS"), tags=["a"])
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(order), type=again)
    assert msgspec.to_builtins(decoded) == msgspec.to_builtins(order)


def test_types_are_kept_beside_the_log_may_grow_and_begin_a_new_version_when_they_change(tmp_path):
    with SegmentLog(tmp_path) as log:
        log.declare("/orders", Order)
    with SegmentLog(tmp_path) as log:
        log.declare("/orders", OrderLater)
        assert log.types.changes == []
        log.declare("/orders", OrderOther)
        (told,) = log.types.changes
    assert "/orders has another type from now on, OrderOther: field 1 is symbol: str; in OrderOther it is" in told
    found = TopicTypes.read(tmp_path)
    assert found.types["/orders"].name == "OrderOther"
    assert [each.name for each in found.former["/orders"]] == ["OrderLater"]
    # To and fro: each version is kept once.
    for each in (Order, OrderOther, Order):
        found.declare("/orders", each)
    assert len(found.former["/orders"]) == 3


def test_what_a_topic_promised_is_kept_beside_the_log_where_it_was_told(tmp_path):
    with SegmentLog(tmp_path) as log:
        log.declare_all([TopicDeclaration("/raw", None, "best_effort"), TopicDeclaration("/orders", Order, "reliable")])
        log.declare("/plain", Order)
    found = TopicTypes.read(tmp_path)
    assert found.guarantees == {"/raw": "best_effort", "/orders": "reliable"}
    assert (found.types["/raw"], set(found.types)) == (None, {"/raw", "/orders", "/plain"})


def test_topics_of_one_type_have_a_common_one_and_others_are_told(tmp_path):
    types = TopicTypes()
    types.declare("/a", Order)
    types.declare("/b", OrderLater)
    types.declare("/c", OrderOther)
    assert types.common(["/a", "/b"]).name == "OrderLater"
    with pytest.raises(UsageError, match="topics /b and /c differ in type"):
        types.common(["/a", "/b", "/c"])
    with pytest.raises(UsageError, match="/d has no type"):
        types.common(["/d"])


def test_a_log_goes_on_with_an_older_type_and_keeps_the_newer(tmp_path):
    with SegmentLog(tmp_path) as log:
        log.declare("/orders", OrderLater)
        log.declare("/orders", Order)
    assert TopicTypes.read(tmp_path).types["/orders"] == describe_type(OrderLater)


def test_another_format_is_refused(tmp_path):
    (tmp_path / "types.json").write_text('{"format": 3, "topics": {}}')
    with pytest.raises(StorageError, match="format 3, this version reads 2"):
        TopicTypes.read(tmp_path)


@pytest.mark.parametrize(
    "told",
    [
        "{",
        '{"format": 2, "topics": {"/a": 3}}',
        '{"format": 2, "topics": {"/a": [3]}}',
        "[]",
        '{"format": 2, "topics": []}',
        '{"format": 2, "topics": {"/a": {"name": "A", "fields": [{"name": "x", "type": 3}]}}}',
    ],
)
def test_a_damaged_file_of_types_is_told(tmp_path, told):
    (tmp_path / "types.json").write_text(told)
    with pytest.raises(StorageError, match="cannot read the types"):
        SegmentLog(tmp_path)
