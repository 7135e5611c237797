"""Types beside a log."""

import enum

import msgspec
import pytest

from vivum.core.errors import UsageError
from vivum.storage.errors import StorageError
from vivum.storage.segment_log import SegmentLog, TopicDeclaration
from vivum.storage.topic_types import TopicTypes, describe_type, struct_of


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


def test_types_are_kept_beside_the_log_and_may_grow_but_not_change(tmp_path):
    with SegmentLog(tmp_path) as log:
        log.declare("/orders", Order)
    with SegmentLog(tmp_path) as log:
        log.declare("/orders", OrderLater)
        with pytest.raises(UsageError, match=r"OrderOther does not fit .* field 'symbol' was str and is int"):
            log.declare("/orders", OrderOther)
    assert TopicTypes.read(tmp_path).types["/orders"].name == "OrderLater"


def test_what_a_topic_promised_is_kept_beside_the_log_and_older_logs_do_not_tell(tmp_path):
    with SegmentLog(tmp_path) as log:
        log.declare_all([TopicDeclaration("/raw", None, "best effort"), TopicDeclaration("/orders", Order, "reliable")])
        log.declare("/old", Order)
    found = TopicTypes.read(tmp_path)
    assert found.guarantees == {"/raw": "best effort", "/orders": "reliable"}
    assert (found.types["/raw"], set(found.types)) == (None, {"/raw", "/orders", "/old"})
    (tmp_path / "types.json").write_text('{"format": 1, "topics": {"/raw": null}}')
    assert TopicTypes.read(tmp_path).guarantees == {}


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


def test_what_has_no_columns_is_refused():
    class Odd(msgspec.Struct):
        thing: int | str

    with pytest.raises(UsageError, match=r"Odd.thing is a union, which has no column type"):
        describe_type(Odd)
    with pytest.raises(UsageError, match="give a msgspec struct"):
        describe_type(int)


def test_a_damaged_file_of_types_is_told(tmp_path):
    (tmp_path / "types.json").write_text("{")
    with pytest.raises(StorageError, match="cannot read the types"):
        SegmentLog(tmp_path)
