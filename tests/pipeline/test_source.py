"""`format("vivum")`, in batches."""

import enum
import uuid
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException

import vivum
from recorded.quotes import Quote
from vivum.core.errors import UsageError, VivumError
from vivum.pipeline.source.options import read_options
from vivum.pipeline.source.source import VivumReader, VivumSource
from vivum.protocols.keyed.keys import PLAIN_HEAD, heads_of
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_files import find_segments
from vivum.storage.segment_log import SegmentLog, TopicDeclaration

pytestmark = pytest.mark.slow


def load(spark: Any, directory: Path, **options: Any) -> Any:
    return spark.read.format("vivum").options(**options).load(str(directory))


def test_every_row_is_read_once_with_all_columns(spark, quotes):
    rows = load(spark, quotes).orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(60))
    assert rows[1].asDict() == {
        "offset": 1, "topic": "/swx/ROG", "sender": 1, "incarnation": 1, "sequence": 1, "view": 1, "position": 0,
        "sent_ns": 0, "delivered_ns": 100, "payload": msgspec.msgpack.encode(Quote("ROG", 100.0, 101.0, 0)),
    }  # fmt: skip
    assert rows[3].position is None


def test_topics_are_chosen_by_pattern_and_by_filter(spark, quotes):
    swx = load(spark, quotes, topics="/swx/*")
    assert swx.count() == 45
    assert swx.filter("topic = '/swx/ROG'").count() == 15
    assert swx.filter("topic in ('/swx/ROG', '/raw')").count() == 15
    assert load(spark, quotes, topics="/raw,/swx/NESN").count() == 30


def test_columns_can_be_chosen(spark, quotes):
    chosen = load(spark, quotes, columns="topic,payload")
    assert chosen.columns == ["topic", "payload"]
    assert chosen.count() == 60


def test_by_topic_each_task_has_all_rows_of_its_topics_in_order(spark, quotes):
    rows = load(spark, quotes, topicShards=3, columns="topic,offset")
    assert rows.rdd.getNumPartitions() == 3
    tasks = rows.rdd.glom().collect()
    assert sorted(row.offset for task in tasks for row in task) == list(range(60))
    topics = [{row.topic for row in task} for task in tasks]
    assert sum(map(len, topics)) == len(set().union(*topics)) == 4
    assert all([row.offset for row in task] == sorted(row.offset for row in task) for task in tasks)
    # With fewer topics than tasks some have nothing to do.
    assert load(spark, quotes, topicShards=3, topics="/raw").count() == 15


def test_heads_of_keyed_topics_are_not_seen(spark, tmp_path):
    plain, value = [b"\0x", b"\1"], msgspec.msgpack.encode(Quote("ROG", 1.0, 2.0))
    with SegmentLog(tmp_path) as log:
        log.declare_all([TopicDeclaration("/keyed", Quote, vivum.KEYED.name, is_headed=True)])
        heads = [*heads_of(bytes(16), 0, 0, 3), PLAIN_HEAD]
        headed = [head + payload for head, payload in zip(heads, [value, b"", value, value], strict=True)]
        log.append([RecordedRun("/plain", 1, 1, 0, 1, 0, 0, plain), RecordedRun("/keyed", 1, 1, 0, 1, 0, 0, headed)])
    rows = load(spark, tmp_path).orderBy("offset").collect()
    assert [bytes(row.payload) for row in rows] == [*plain, value, b"", value, value]
    typed = load(spark, tmp_path, topics="/keyed", typed="true").orderBy("offset").collect()
    assert [(row.value is None, row.refused is None) for row in typed] == [
        (False, True), (True, False), (False, True), (False, True),
    ]  # fmt: skip


def test_rows_begin_at_an_offset_or_a_time(spark, quotes):
    assert load(spark, quotes, startingOffset="50").count() == 10
    assert load(spark, quotes, startingOffset="latest").count() == 0
    assert load(spark, quotes, startingTime="14000").count() == 4
    assert load(spark, quotes, startingTime="2026-01-01T00:00:00Z").count() == 0
    assert load(spark, quotes).filter("offset >= 10 and offset < 25 and delivered_ns >= 3000").count() == 13


def test_filters_on_offset_and_time_leave_out_segments(quotes):
    from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

    source = VivumSource({"path": str(quotes)})
    reader = source.reader(source.schema())
    assert isinstance(reader, VivumReader)
    every = sum(len(piece.spans) for piece in reader.partitions())
    rest = reader.pushFilters([GreaterThanOrEqual(("offset",), 50), LessThan(("view",), 9)])
    assert [type(each) for each in rest] == [LessThan]
    assert 0 < sum(len(piece.spans) for piece in reader.partitions()) < every
    reader.pushFilters([GreaterThanOrEqual(("delivered_ns",), 1 << 60)])
    assert reader.partitions() == []


def test_typed_topics_give_their_fields_as_columns(spark, quotes):
    typed = load(spark, quotes, topics="/swx/*", typed="true")
    assert typed.schema["value"].dataType.simpleString() == "struct<symbol:string,bid:double,ask:double,size:bigint>"
    row = typed.select("value.*", "refused").orderBy("size", "symbol").first()
    assert (row.symbol, row.bid, row.ask, row.size, row.refused) == ("NESN", 100.0, 101.0, 0, None)


def test_a_payload_that_is_not_of_the_type_is_refused_with_the_reason_and_not_dropped(spark, tmp_path):
    with SegmentLog(tmp_path) as log:
        log.declare("/q", Quote)
        good = msgspec.msgpack.encode(Quote("A", 1.0, 2.0))
        log.append([RecordedRun("/q", 1, 1, 1, 1, 0, 0, [good, b"\xc1", msgspec.msgpack.encode({"symbol": 5}), good])])
    rows = load(spark, tmp_path, typed="true").orderBy("offset").collect()
    assert [row.value is None for row in rows] == [False, True, True, False]
    assert "malformed" in rows[1].refused
    assert "Expected `str`, got `int` - at `$.symbol`" in rows[2].refused


def test_nested_types_come_as_nested_columns(spark, tmp_path):
    class Leg(msgspec.Struct):
        venue: str
        price: float | None

    class Trade(msgspec.Struct):
        legs: list[Leg]
        tags: dict[str, int]
        key: bytes

    with SegmentLog(tmp_path) as log:
        log.declare("/t", Trade)
        trade = Trade([Leg("XSWX", 1.5), Leg("XETR", None)], {"a": 1}, b"k")
        log.append([RecordedRun("/t", 1, 1, 1, 1, 0, 0, [msgspec.msgpack.encode(trade)])])
    value = load(spark, tmp_path, typed="true").first().value.asDict(recursive=True)
    legs = [{"venue": "XSWX", "price": 1.5}, {"venue": "XETR", "price": None}]
    assert value == {"legs": legs, "tags": {"a": 1}, "key": b"k"}


def test_what_a_message_can_hold_comes_as_columns(spark, tmp_path):
    class Side(enum.Enum):
        BUY = "buy"

    class Leg(vivum.Message):
        venue: str
        price: float = 0.0

    class Deal(vivum.Message):
        legs: dict[str, list[Leg]]
        best: Leg | None
        at: datetime
        day: date
        side: Side
        pair: tuple[int, str]
        counts: dict[int, set[int]]
        key: uuid.UUID

    at = datetime(2026, 11, 16, 14, 30, tzinfo=UTC)
    deal = Deal({"a": [Leg("XSWX", 1.5)]}, None, at, at.date(), Side.BUY, (1, "b"), {3: {4}}, uuid.UUID(int=5))
    with SegmentLog(tmp_path) as log:
        log.declare("/d", Deal)
        log.append([RecordedRun("/d", 1, 1, 1, 1, 0, 0, [msgspec.msgpack.encode(deal)])])
    typed = load(spark, tmp_path, typed="true")
    shown = typed.selectExpr("value.*", "unix_seconds(value.at) as seconds").first().asDict(recursive=True)
    assert shown.pop("at") is not None
    assert shown == {
        "legs": {"a": [{"venue": "XSWX", "price": 1.5}]},
        "best": None,
        "day": at.date(),
        "side": "buy",
        "pair": {"_1": 1, "_2": "b"},
        "counts": {3: [4]},
        "key": str(uuid.UUID(int=5)),
        "seconds": int(at.timestamp()),
    }


def test_fields_that_have_no_column_type_are_named(spark, tmp_path):
    class Odd(vivum.Message):
        name: str
        either: int | str
        inside: list[Any]

    with SegmentLog(tmp_path) as log:
        log.declare("/odd", Odd)
        log.append([RecordedRun("/odd", 1, 1, 1, 1, 0, 0, [msgspec.msgpack.encode(Odd("a", 1, []))])])
    with pytest.raises(
        Exception, match=r"fields of Odd \(either: int \| str, inside: list\[Any\]\); read its payloads raw"
    ):
        load(spark, tmp_path, typed="true")
    assert load(spark, tmp_path).count() == 1


def test_several_logs_are_read_as_one(spark, quotes, tmp_path):
    with SegmentLog(tmp_path / "second") as log:
        log.append([RecordedRun("/raw", 1, 1, 1, 1, 0, 0, [b"more"])])
    assert load(spark, f"{quotes},{tmp_path / 'second'}").count() == 61


def test_large_segments_are_read_by_several_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr("vivum.pipeline.source.source.PARTITION_BYTES_MIN", 4000)
    monkeypatch.setattr("vivum.pipeline.source.source.PARTITION_BYTES_MAX", 8000)
    with SegmentLog(tmp_path) as log:
        for number in range(50):
            log.append([RecordedRun("/a", 1, 1, number, 1, 0, 0, [bytes(500)])])
    source = VivumSource({"path": str(tmp_path)})
    reader = source.reader(source.schema())
    pieces = reader.partitions()
    assert len(pieces) > 5
    assert sum(len(batch) for piece in pieces for batch in reader.read(piece)) == 50


def test_a_damaged_segment_fails_the_query_with_its_name(spark, quotes):
    segment = find_segments(quotes)[0].path
    content = bytearray(segment.read_bytes())
    content[200] ^= 1
    segment.write_bytes(content)
    with pytest.raises(PySparkException, match=rf"{segment.name} is damaged"):
        load(spark, quotes).count()


def test_wrong_options_fail_in_load(spark, tmp_path):
    with pytest.raises(PySparkException, match=r"cannot read the log .*nowhere: No such file or directory"):
        load(spark, tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no log is named; give its directory to load()"),
        ({"topic": "/a"}, "option 'topic' is unknown; options are path, topics"),
        ({"topics": "swx"}, "'swx' is not a pattern of topics; it begins with /"),
        ({"topics": "/swx/NOVN"}, "topic /swx/NOVN is not in the log; topics there are /raw, /swx/NESN"),
        ({"typed": "true"}, "topic /raw has no type in the log"),
        ({"typed": "yes"}, "typed='yes' must be true or false"),
        ({"columns": "topic,value"}, "column 'value' is unknown"),
        ({"startingOffset": "-1"}, "startingOffset='-1' is neither"),
        ({"startingTime": "noon"}, "startingTime='noon' is no time"),
        ({"startingTime": "1", "startingOffset": "1"}, "are both given; choose one"),
        ({"topicShards": "0"}, "topicShards='0' must be a number, at least 1"),
        ({"topicShards": "1001"}, "topicShards=1001 would make that many tasks"),
        ({"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger='0' must be a number, at least 1"),
    ],
)
def test_each_wrong_option_is_told_in_one_sentence(quotes, options, words):
    given = {"path": str(quotes), **options} if options else {}
    with pytest.raises(UsageError) as caught:
        read_options(given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_topics_of_different_types_are_told(quotes):
    class Other(msgspec.Struct):
        symbol: int

    with SegmentLog(quotes) as log:
        log.declare("/swx/OTHER", Other)
    with pytest.raises(VivumError, match="differ in type: field 1 is symbol: str; in Other it is"):
        read_options({"path": str(quotes), "topics": "/swx/*", "typed": "true"})
