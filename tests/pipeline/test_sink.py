"""`format("vivum")` for writing: real Spark, real sockets."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import types

import vivum
from recorded import publishing
from recorded.consumer import Consumer
from recorded.messages import Deal, Leg, Place
from vivum.core.errors import HostError, UsageError
from vivum.live.messages import codec_of
from vivum.observe.trace import NodeStopped
from vivum.pipeline.jobs.running import spark_error
from vivum.pipeline.sink.options import read_sink_options
from vivum.pipeline.sink.sink import VivumStreamWriter
from vivum.pipeline.sink.staging import STAGED_SCHEMA, SinkFolder
from vivum.storage.errors import StorageError
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_log import SegmentLog
from vivum.storage.traces import read_trace

pytestmark = pytest.mark.slow

DEAL = "recorded.messages:Deal"


@pytest.fixture
def consumer(request: pytest.FixtureRequest) -> Iterator[Consumer]:
    made = Consumer(f"{request.node.name[:40]}-{os.getpid()}")
    yield made
    made.close()


def publish(rows: Any, consumer: Consumer, **options: str) -> None:
    rows.write.format("vivum").mode("append").options(domain=consumer.domain, **options).save()


def test_rows_become_messages_of_the_topics_type(spark, consumer):
    topic = consumer.enter("/deals", Deal)
    rows = spark.sql(
        """select 'NESN' symbol, cast(101.5 as float) price, array(named_struct('venue', 'XSWX', 'price', 1.5D)) legs,
        map('a', 1) tags, named_struct('row', 1, 'column', 2L) place
        union all select 'ROG', 1.0, array(), map(), null"""
    )
    publish(rows.coalesce(1), consumer, topic="/deals", type=DEAL)
    assert consumer.values(topic, 2) == [
        Deal("NESN", 101.5, [Leg("XSWX", 1.5)], {"a": 1}, Place(1, 2), 1, []),
        Deal("ROG", 1.0, [], {}, None, 1, []),
    ]


def test_each_row_goes_to_the_topic_in_its_column_and_order_is_kept(spark, consumer):
    topics = [consumer.enter(f"/t/{number}") for number in range(3)]
    rows = spark.range(3000, numPartitions=1).selectExpr(
        "concat('/t/', id % 3) topic", "cast(cast(id as string) as binary) payload"
    )
    publish(rows, consumer)
    for number, topic in enumerate(topics):
        assert consumer.values(topic, 1000) == [b"%d" % each for each in range(number, 3000, 3)]


def test_a_write_with_a_name_is_published_once(spark, consumer, tmp_path):
    topic = consumer.enter("/once")
    rows = spark.range(10).selectExpr("cast(cast(id as string) as binary) payload")
    for _ in range(2):
        publish(rows, consumer, topic="/once", query="tuesday", staging=str(tmp_path))
    publish(rows.limit(1), consumer, topic="/once", query="wednesday", staging=str(tmp_path))
    assert len(consumer.values(topic, 11)) == 11
    assert topic.statistics().repeated == 0
    assert not list(tmp_path.glob("*/staged/*.arrow"))


def test_a_typed_stream_goes_from_a_log_to_a_topic_batch_by_batch(spark, consumer, tmp_path):
    topic = consumer.enter("/out", Place)
    encode = codec_of(Place).encode
    with SegmentLog(tmp_path / "log") as log:
        log.declare("/in", Place)
        for number in range(6):
            log.append([RecordedRun("/in", 1, 1, number, 1, 0, 0, [encode(Place(number, 7))])])
    options = {"topic": "/out", "type": "recorded.messages:Place", "domain": consumer.domain, "waitForMembers": "1"}
    query = (
        spark.readStream.format("vivum").options(typed="true", maxRowsPerTrigger="2").load(str(tmp_path / "log"))
        .select("value").writeStream.format("vivum").options(**options, linger="0")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    events = consumer.events(topic, 6)
    assert [each.value for each in events] == [Place(number, 7) for number in range(6)]
    # With linger 0 the sink's node leaves after each batch: another one publishes the next.
    assert len({each.sender for each in events}) == 3
    assert not list((tmp_path / "checkpoint").glob("vivum-sink/*/staged/*.arrow"))


def test_the_node_of_a_stream_says_goodbye_when_spark_stops(consumer, tmp_path):
    topic = consumer.enter("/results")
    with SegmentLog(tmp_path / "log") as log:
        log.append([RecordedRun("/in", 1, 1, 0, 1, 0, 0, [b"a", b"b"])])
    words = [tmp_path / "log", tmp_path / "checkpoint", consumer.domain, 1000, tmp_path / "trace"]
    done = subprocess.run(
        [sys.executable, publishing.__file__, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(consumer.values(topic, 2)) == [b"a", b"b"]

    async def alone() -> None:
        async for view in topic.views():
            if len(view.members) == 1:
                return

    consumer.do(alone())
    # Its trace is complete only if it was closed: it lingered still when Spark stopped. Written after it has left.
    until = time.monotonic() + 60
    while not list((tmp_path / "trace").glob("*.parquet")) and time.monotonic() < until:
        time.sleep(0.05)
    (end,) = [each for each in read_trace(tmp_path / "trace") if isinstance(each, NodeStopped)]
    assert end.cause == "closed"


# Without Spark: what `commit` does, step by step.


def stream_writer(consumer: Consumer, folder: Path, **options: str) -> VivumStreamWriter:
    folder.mkdir(exist_ok=True)
    (folder / "metadata").write_text('{"id":"6ba7b810-9dad-11d1-80b4-00c04fd430c8"}')
    schema = types.StructType([types.StructField("payload", types.BinaryType())])
    given = {"topic": "/r", "domain": consumer.domain, "checkpointLocation": str(folder), "timeout": "10", **options}
    return VivumStreamWriter(read_sink_options(given, schema, stream=True))


def rows_of(*payloads: bytes) -> Iterator[Any]:
    return iter([pyarrow.RecordBatch.from_arrays([pyarrow.array(payloads, pyarrow.binary())], ["payload"])])


def test_a_batch_that_was_left_half_way_is_finished_from_what_was_sealed(consumer, tmp_path):
    topic = consumer.enter("/r")
    writer = stream_writer(consumer, tmp_path)
    folder = SinkFolder(writer.options.folder)
    sealed = folder.seal(0, [writer.write(rows_of(b"a", b"b")), writer.write(rows_of(b"c"))], None)
    # Spark replays the batch, and it comes out in another order.
    again = [writer.write(rows_of(b"c", b"a")), writer.write(rows_of(b"b"))]
    writer.abort(again, 0)
    assert sealed.files == folder.state().files
    writer.commit([writer.write(rows_of(b"c", b"a")), writer.write(rows_of(b"b"))], 0)
    assert consumer.values(topic, 3) == [b"a", b"b", b"c"]
    # And once more, after it was published: nothing is sent.
    writer.commit([writer.write(rows_of(b"b", b"c", b"a"))], 0)
    writer.commit([writer.write(rows_of(b"d"))], 1)
    assert consumer.values(topic, 1) == [b"d"]
    assert topic.statistics().repeated == 0
    assert not list(Path(writer.options.folder, "staged").glob("*.arrow"))


def test_what_a_batch_has_more_when_it_is_planned_anew_is_published_behind_the_rest(consumer, tmp_path):
    topic = consumer.enter("/r")
    writer = stream_writer(consumer, tmp_path)
    writer.commit([writer.write(rows_of(b"0"))], 0)
    writer.commit([writer.write(rows_of(b"a", b"b", b"a"))], 1)
    # The last files in `offsets` and `commits` were deleted, and more rows are there by now.
    writer.commit([writer.write(rows_of(b"x", b"a", b"a")), writer.write(rows_of(b"a", b"b", b"y"))], 1)
    writer.commit([writer.write(rows_of(b"a", b"a", b"a", b"b", b"x", b"y", b"z"))], 1)
    writer.commit([writer.write(rows_of(b"end"))], 2)
    events = consumer.values(topic, 9)
    assert events == [b"0", b"a", b"b", b"a", *events[4:7], b"z", b"end"]
    assert sorted(events[4:7]) == [b"a", b"x", b"y"]
    assert topic.statistics().repeated == 0


def test_a_batch_that_lacks_rows_that_were_published_stops_the_query_unless_it_is_trusted(consumer, tmp_path):
    topic = consumer.enter("/r")
    writer = stream_writer(consumer, tmp_path)
    writer.commit([writer.write(rows_of(b"a", b"b"))], 0)
    with pytest.raises(StorageError, match=r"batch 0 was published with other rows than now: .* replays to 'trust'"):
        writer.commit([writer.write(rows_of(b"a", b"c"))], 0)
    trusting = stream_writer(consumer, tmp_path, replays="trust")
    trusting.commit([trusting.write(rows_of(b"a", b"c"))], 0)
    trusting.commit([trusting.write(rows_of(b"d"))], 1)
    assert consumer.values(topic, 3) == [b"a", b"b", b"d"]


def test_a_query_that_begins_again_passes_over_the_same_batches_and_stops_at_others(consumer, tmp_path):
    topic = consumer.enter("/r")
    writer = stream_writer(consumer, tmp_path)
    for number in range(3):
        writer.commit([writer.write(rows_of(b"%d" % number))], number)
    # All of `offsets` and `commits` was deleted.
    writer.commit([writer.write(rows_of(b"0"))], 0)
    with pytest.raises(StorageError, match="batch 1 was published with others up to batch 2 after it"):
        writer.commit([writer.write(rows_of(b"1", b"2"))], 1)
    writer.commit([writer.write(rows_of(b"1"))], 1)
    writer.commit([writer.write(rows_of(b"2", b"3"))], 2)
    writer.commit([writer.write(rows_of(b"4"))], 3)
    assert consumer.values(topic, 5) == [b"%d" % number for number in range(5)]
    assert topic.statistics().repeated == 0


def test_a_driver_that_died_after_sending_leaves_no_message_twice(consumer, tmp_path):
    topic = consumer.enter("/r")
    writer = stream_writer(consumer, tmp_path)
    folder = SinkFolder(writer.options.folder)
    for number in range(3):
        writer.commit([writer.write(rows_of(b"%d" % number, b"-"))], number)
    # As if the machine had died before the note about batch 2 was on the disk, but after all was sent.
    staged = writer.write(rows_of(b"2", b"-"))
    folder._write(msgspec.structs.replace(folder.state(), files=(staged.file,), is_published=False))
    writer.commit([writer.write(rows_of(b"-", b"2"))], 2)
    writer.commit([writer.write(rows_of(b"3"))], 3)
    assert consumer.values(topic, 7) == [b"0", b"-", b"1", b"-", b"2", b"-", b"3"]
    assert topic.statistics().repeated == 2


def test_an_empty_batch_needs_no_domain(tmp_path):
    class Nobody:
        domain = "there-is-no-such-domain"

    writer = stream_writer(Nobody(), tmp_path)  # type: ignore[arg-type]
    writer.commit([writer.write(iter(()))], 0)
    assert SinkFolder(writer.options.folder).state().is_published
    # Something to publish, and nobody there: one sentence, and the batch stays for the next attempt.
    writer = stream_writer(Nobody(), tmp_path, timeout="0.5")  # type: ignore[arg-type]
    with pytest.raises(HostError, match="no configuration service of domain 'there-is-no-such-domain' answered"):
        writer.commit([writer.write(rows_of(b"x"))], 1)
    assert not SinkFolder(writer.options.folder).state().is_published


def test_a_missing_member_is_told_after_the_time_that_was_given(consumer, tmp_path):
    writer = stream_writer(consumer, tmp_path, waitForMembers="2", timeout="2")
    consumer.enter("/r")
    with pytest.raises(HostError, match="topic /r has 1 other members after 2 s, and waitForMembers is 2"):
        writer.commit([writer.write(rows_of(b"x"))], 0)


def test_a_topic_of_another_type_or_guarantee_is_told_and_nothing_is_sent(spark, consumer):
    topic = consumer.enter("/places", Place)
    consumer.do(consumer._node.enter("/plain", bytes))
    rows = spark.sql(
        "select 'A' symbol, 1.0D price, array(named_struct('venue', 'X', 'price', 1D)) legs, map('n', 1) tags"
    )
    with pytest.raises(PySparkException) as caught:
        publish(rows, consumer, topic="/places", type=DEAL)
    told = str(spark_error(caught.value))
    assert told.startswith("topic /places has type Place: field 1 is row: int; in Deal it is symbol: str")
    with pytest.raises(PySparkException) as caught:
        publish(spark.sql("select binary('x') payload"), consumer, topic="/plain")
    assert "topic /plain has the guarantee 'reliable', not 'keyed'" in str(spark_error(caught.value))
    assert topic.statistics().delivered == 0


def test_a_row_that_is_not_of_the_type_stops_the_query_and_nothing_is_sent(spark, consumer, tmp_path):
    topic = consumer.enter("/deals", Deal)
    rows = spark.sql("select nullif(id, 5) row, id column from range(10)")
    with pytest.raises(PySparkException) as caught:
        publish(rows, consumer, topic="/places", type="recorded.messages:Place", staging=str(tmp_path))
    assert "a row is no Place: Expected `int`, got `null`" in str(spark_error(caught.value))
    assert topic.statistics().delivered == 0
    assert not list(tmp_path.rglob("*.arrow"))


def test_a_staging_directory_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").touch()
    batch = pyarrow.RecordBatch.from_arrays([pyarrow.array(["/a"]), pyarrow.array([b"x"])], schema=STAGED_SCHEMA)
    with pytest.raises(vivum.VivumError, match=r"cannot stage results in .*: Not a directory"):
        SinkFolder(str(tmp_path / "file" / "sub")).stage(iter([batch]))


PAYLOAD = "payload binary"


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        (PAYLOAD, {}, "no topic is named; give the option 'topic', or a column 'topic' of strings"),
        (PAYLOAD, {"topic": "/a/*"}, "topic='/a/*' is a pattern"),
        (PAYLOAD, {"topic": "a"}, "'a' is not a name of topics; it begins with /"),
        (PAYLOAD, {"topics": "/a"}, "option 'topics' is unknown; options are topic, type"),
        (PAYLOAD, {"path": "/a"}, "the sink has no path; name the topic by the option 'topic'"),
        ("value string", {"topic": "/a"}, "there is no column 'payload' of binary"),
        ("offset long, payload binary", {"topic": "/a"}, "column 'offset' would be lost"),
        (PAYLOAD, {"topic": "/a", "type": "Deal"}, "type='Deal' is not module:Class"),
        (PAYLOAD, {"topic": "/a", "type": "no.where:Deal"}, "type='no.where:Deal' cannot be imported"),
        (PAYLOAD, {"topic": "/a", "type": "recorded.messages:Leg"}, "is no vivum.Message"),
        ("row long", {"topic": "/a", "type": "recorded.messages:Place"}, "Place needs a column 'column'"),
        ("row string, column long", {"topic": "/a", "type": "recorded.messages:Place"},
         "column 'row' is string, and the field of Place is bigint; cast it"),
        ("row long, column long, x long", {"topic": "/a", "type": "recorded.messages:Place"},
         "column 'x' is no field of Place; fields are row, column"),
        (PAYLOAD, {"topic": "/a", "seeds": "here"}, "seed 'here' is not host:port"),
        (PAYLOAD, {"topic": "/a", "unicast": "yes"}, "unicast='yes' must be true or false"),
        (PAYLOAD, {"topic": "/a", "waitForMembers": "-1"}, "waitForMembers='-1' must be a number"),
        (PAYLOAD, {"topic": "/a", "timeout": "soon"}, "timeout='soon' must be a number of seconds"),
        (PAYLOAD, {"topic": "/a", "timeout": "0"}, "timeout must be above 0"),
        (PAYLOAD, {"topic": "/a", "linger": "-1"}, "linger='-1' must be a number of seconds, 0 or more"),
        (PAYLOAD, {"topic": "/a", "replays": "x"}, "replays='x' must be compare or trust"),
        (PAYLOAD, {"topic": "/a", "query": "x"}, "a write with a name needs the option 'staging'"),
    ],
)  # fmt: skip
def test_each_wrong_option_of_the_sink_is_told_in_one_sentence(columns, options, told):
    fields = [each.split() for each in columns.split(", ")]
    kinds = {"binary": types.BinaryType(), "string": types.StringType(), "long": types.LongType()}
    schema = types.StructType([types.StructField(name, kinds[kind]) for name, kind in fields])
    with pytest.raises(UsageError) as caught:
        read_sink_options(options, schema, stream=False)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "a stream needs .option('checkpointLocation', DIR) on the query itself"),
        ({"checkpointLocation": "s3://bucket/x"}, "is on s3, which Vivum does not read; give a local"),
        ({"checkpointLocation": "/nowhere"}, "cannot read the id of the query in /nowhere/metadata"),
        ({"checkpointLocation": "/nowhere", "query": "x"}, "option 'query' is for batches"),
    ],
)
def test_a_stream_must_have_a_checkpoint_that_the_sink_can_read(options, told):
    schema = types.StructType([types.StructField("payload", types.BinaryType())])
    with pytest.raises(UsageError, match=r".") as caught:
        read_sink_options({"topic": "/a", **options}, schema, stream=True)
    assert told in str(caught.value)


def test_overwriting_is_refused(spark):
    rows = spark.sql("select binary('x') payload")
    with pytest.raises(PySparkException, match="what was published cannot be overwritten; use the mode 'append'"):
        rows.write.format("vivum").mode("overwrite").option("topic", "/a").save()
