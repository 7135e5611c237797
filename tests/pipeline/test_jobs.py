"""Bronze, silver and gold, from one recorded day."""

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import pytest
from pyspark.errors import PySparkException

import vivum
from recorded.consumer import Consumer
from recorded.exchange import NINE, SECOND_NS, Exchange, write_exchange
from vivum.cli.app import main
from vivum.core.errors import UsageError, VivumError
from vivum.pipeline.delta import DeltaFolder
from vivum.pipeline.jobs.alerts import publish_alerts
from vivum.pipeline.jobs.bronze import bronze
from vivum.pipeline.jobs.glance import Glance
from vivum.pipeline.jobs.market import market
from vivum.pipeline.jobs.operations import operations
from vivum.pipeline.jobs.running import spark_error
from vivum.pipeline.jobs.silver import silver
from vivum.pipeline.jobs.surveillance import surveillance
from vivum.pipeline.jobs.tables import Tables
from vivum.pipeline.market_messages import ALERTS_TOPIC, MarketQuote, MarketTrade, SurveillanceAlert
from vivum.storage.errors import StorageError
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_files import find_segments
from vivum.storage.segment_log import SegmentLog

DAY_NS = 86_400 * SECOND_NS
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def day(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tables of the day, and what each job answered."""
    folder = tmp_path_factory.mktemp("day")
    write_exchange(folder / "log")
    tables = Tables(str(folder / "tables"))
    answers = {"bronze": bronze(spark, str(folder / "log"), tables), "silver": silver(spark, tables)}
    return folder, tables, answers


def test_bronze_keeps_every_delivery_once_by_date_and_topic(spark, day):
    folder, tables, answers = day
    rows = tables.read(spark, "bronze", "deliveries")
    assert rows.count() == answers["bronze"]["rows"] == rows.select("offset").distinct().count()
    assert {row.topic for row in rows.select("topic").distinct().collect()} == {
        "/swx/quotes", "/swx/trades", "/swx/orders",
    }  # fmt: skip
    assert str(rows.first().date) == "2025-11-15"
    # Nothing new: nothing done. Something new: only that.
    assert bronze(spark, str(folder / "log"), tables)["rows"] == 0


def test_silver_keeps_each_message_once_and_puts_bad_ones_into_quarantine(spark, day):
    _, tables, answers = day
    # A minute behind the last trade, eighty seconds after nine.
    told = {"rows": 8, "late": 0, "refused": 1, "watermark": "2025-11-15T09:00:20.000+00:00"}
    assert answers["silver"]["MarketTrade"] == told
    trades = tables.read(spark, "silver", "MarketTrade")
    assert trades.filter("value.price = 102.0").count() == 1
    bad = tables.read(spark, "silver", "quarantine", "MarketTrade").collect()
    assert [(bytes(row.payload), "malformed" in row.reason) for row in bad] == [(b"\xc1garbage", True)]


def test_a_copy_or_a_straggler_of_an_old_message_is_treated_right_in_a_later_run(spark, tmp_path):
    """Two runs: the second brings copies of the first, and a message that is an hour late."""
    tables = Tables(str(tmp_path / "tables"))
    exchange = Exchange(tmp_path / "log")
    exchange.send(0.0, MarketTrade("NESN", 100.0, 1, "a", "b"))
    exchange.send(3600.0, MarketTrade("NESN", 101.0, 1, "a", "b"))
    exchange.log.append([RecordedRun("/swx/trades", 2, 1, 1, 1, NINE, NINE, [b"\xc1garbage"])])
    bronze(spark, str(tmp_path / "log"), tables)
    watermark = "2025-11-15T09:59:30.000+00:00"
    told = {"rows": 2, "late": 0, "refused": 1, "watermark": watermark}
    assert silver(spark, tables, "30s")["MarketTrade"] == told
    exchange.position = 0
    exchange.send(0.0, MarketTrade("NESN", 100.0, 1, "a", "b"))
    exchange.position = 9
    exchange.send(1.0, MarketTrade("NESN", 99.0, 1, "a", "b"), copies=2)
    exchange.send(3571.0, MarketTrade("NESN", 102.0, 1, "a", "b"))
    exchange.log.append([RecordedRun("/swx/trades", 2, 1, 1, 1, NINE, NINE, [b"\xc1garbage"])])
    # Its clock is a day ahead; the recorder's is not.
    ahead = msgspec.msgpack.encode(MarketTrade("NESN", 103.0, 1, "a", "b"))
    exchange.log.append([RecordedRun("/swx/trades", 3, 1, 1, 1, NINE + DAY_NS, NINE + 3600 * SECOND_NS, [ahead])])
    exchange.log.close()
    bronze(spark, str(tmp_path / "log"), tables)
    told = {"rows": 3, "late": 1, "refused": 0, "watermark": watermark}
    assert silver(spark, tables, "30s")["MarketTrade"] == told
    # Nothing new: nothing done.
    version = tables.table("silver", "MarketTrade").version()
    assert silver(spark, tables, "30s")["MarketTrade"] == told | {"rows": 0, "late": 0}
    assert tables.table("silver", "MarketTrade").version() == version
    rows = tables.read(spark, "silver", "MarketTrade").orderBy("sent_ns").collect()
    assert [(row.value.price, row.is_late) for row in rows] == [
        (100.0, False), (99.0, True), (102.0, False), (101.0, False), (103.0, False),
    ]  # fmt: skip
    market(spark, tables)
    made = tables.read(spark, "gold", "bars").filter("width = '1min'").orderBy("start").collect()
    assert [(bar.events, bar.late_events, bar.is_final) for bar in made] == [
        (2, 1, True), (1, 0, False), (1, 0, False), (1, 0, False),
    ]  # fmt: skip
    assert tables.read(spark, "silver", "quarantine", "MarketTrade").count() == 1


def test_a_job_that_is_killed_before_its_commit_leaves_nothing_and_the_next_one_takes_all(spark, tmp_path, monkeypatch):
    class KilledError(BaseException):
        pass

    def kill(*_: Any) -> None:
        raise KilledError

    write_exchange(tmp_path / "log")
    tables = Tables(str(tmp_path / "tables"))
    bronze(spark, str(tmp_path / "log"), tables)
    commit = DeltaFolder._commit
    for left in (0, 1):
        # In the very first write of silver; then between the quarantine and the rows.
        monkeypatch.setattr(DeltaFolder, "_commit", kill if not left else kill_the_good(commit, kill))
        with pytest.raises(KilledError):
            silver(spark, tables)
        monkeypatch.setattr(DeltaFolder, "_commit", commit)
        assert not tables.there("silver", "MarketTrade")
    assert tables.there("silver", "quarantine", "MarketTrade")
    told = silver(spark, tables)["MarketTrade"]
    assert (told["rows"], told["refused"]) == (8, 0)
    assert tables.read(spark, "silver", "MarketTrade").count() == 8
    assert tables.read(spark, "silver", "quarantine", "MarketTrade").count() == 1


def kill_the_good(commit: Any, kill: Any) -> Any:
    def commit_or_die(self: DeltaFolder, *words: Any) -> None:
        (kill if self.path.endswith("silver/MarketTrade") else commit)(self, *words)

    return commit_or_die


def test_tables_are_delta_tables_that_pandas_reads_with_time_travel_and_that_are_compacted(spark, day):
    _, tables, _ = day
    market(spark, tables)
    bars = deltalake.DeltaTable(tables.path("gold", "bars"))
    assert sorted(bars.to_pandas()["width"].unique()) == ["1min", "1s"]
    trades = deltalake.DeltaTable(tables.path("silver", "MarketTrade"), version=0).to_pandas()
    assert len(trades) == 8
    assert trades["value"].iloc[0]["symbol"]


def test_small_files_are_joined_and_removed_without_a_change_of_rows(spark, tmp_path, capsys):
    table = Tables(str(tmp_path)).table("gold", "numbers")
    for first in (0, 3, 6):
        table.append(spark.range(first, first + 3), progress={"job": first})
    version = table.version()
    assert main(["pipeline", "optimize", "--tables", str(tmp_path), "--keep-hours", "0", "--json"]) == 0
    assert '"into":1' in capsys.readouterr().out
    assert table.version() > version
    assert sorted(row.id for row in table.read(spark).collect()) == list(range(9))
    assert len(list(Path(table.path).rglob("*.parquet"))) == 1
    assert table.added(spark, version, table.version()).count() == 0
    assert table.progress("job") == 6
    # Two jobs at a time: the second one's commit fails, and leaves nothing.
    base = table.version()
    table.append(spark.range(9, 10))
    with pytest.raises(StorageError, match="another job may have written it meanwhile"):
        table._commit(spark.range(1).schema, [], "append", (), {"job": 7}, base)
    assert table.progress("job") == 6


def test_topics_of_one_type_name_and_of_later_fields_and_types_lose_nothing(spark, tmp_path):
    """Two types named Reading that do not fit each other, one that gains a field, and a topic that is typed later."""

    def described(*fields: tuple[str, type], **more: Any) -> Any:
        return msgspec.defstruct("Reading", [*fields, *[(n, t, d) for n, (t, d) in more.items()]])

    def write(log: SegmentLog, topic: str, *values: Any) -> None:
        payloads = [msgspec.msgpack.encode(each) for each in values]
        log.append([RecordedRun(topic, 1, 1, log.next_offset, 1, NINE, NINE, payloads)])

    plain, other = described(("celsius", float)), described(("volts", int))
    tables = Tables(str(tmp_path / "tables"))

    def run() -> Any:
        bronze(spark, str(tmp_path / "log"), tables)
        return silver(spark, tables)

    with SegmentLog(tmp_path / "log") as log:
        log.declare("/a", plain)
        log.declare("/b", other)
        write(log, "/a", plain(1.0))
        write(log, "/b", other(5))
        write(log, "/later", plain(2.0))
    first = run()
    (name,) = [each for each in first if each.startswith("Reading-")]
    assert (first["Reading"]["rows"], first[name]["rows"]) == (1, 1)
    wider = described(("celsius", float), place=(str, ""))
    with SegmentLog(tmp_path / "log") as log:
        log.declare("/a", wider)
        log.declare("/later", plain)
        write(log, "/a", wider(3.0, "roof"))
    again = run()
    assert (again["Reading"]["rows"], again[name]["rows"]) == (2, 0)
    rows = tables.read(spark, "silver", "Reading").select("topic", "value.*").orderBy("celsius").collect()
    assert [(row.topic, row.celsius, row.place) for row in rows] == [
        ("/a", 1.0, None), ("/later", 2.0, None), ("/a", 3.0, "roof"),
    ]  # fmt: skip


def test_bars_have_open_high_low_close_volume_and_spread(spark, day):
    _, tables, _ = day
    market(spark, tables)
    rows = tables.read(spark, "gold", "bars").filter("symbol = 'NESN'").orderBy("start", "width").collect()
    found = [(row.width, row.open, row.high, row.low, row.close, row.volume, row.spread) for row in rows]
    assert found == [
        ("1min", 100.0, 103.0, 99.0, 101.0, 40, 1.0),
        ("1s", 100.0, 103.0, 99.0, 101.0, 40, 1.0),
        ("1min", 102.0, 102.0, 102.0, 102.0, 5, None),
        ("1s", 102.0, 102.0, 102.0, 102.0, 5, None),
    ]


def test_surveillance_finds_each_planted_pattern_and_nobody_else(spark, day):
    _, tables, _ = day
    told = surveillance(spark, tables)
    assert told["alerts"] == {"wash_trade": 2, "quote_stuffing": 1, "layering": 1, "front_running": 1}
    rows = tables.read(spark, "gold", "alerts").collect()
    assert {row.who for row in rows} == {"washer", "left and right", "stuffer", "layerer", "runner"}
    (wash,) = [row for row in rows if row.who == "left and right"]
    assert (wash.first_ns, wash.last_ns) == (NINE + 71 * SECOND_NS, NINE + 80 * SECOND_NS)


def test_rows_that_make_no_sense_are_put_into_quarantine_with_the_reason_and_counted(spark, tmp_path):
    exchange = Exchange(tmp_path / "log")
    exchange.send(0.0, MarketTrade("NESN", 100.0, 10, "a", "b"))
    exchange.send(0.1, MarketTrade("NESN", float("nan"), 10, "a", "b"))
    exchange.send(0.2, MarketTrade("NESN", 101.0, 0, "a", "b"))
    exchange.send(0.3, MarketTrade("", 101.0, 1, "a", "b"))
    exchange.send(0.4, MarketQuote("NESN", 101.0, 100.0))
    exchange.order(0.5, "t", "upward", 1.0, 1)
    exchange.log.close()
    tables = Tables(str(tmp_path / "tables"))
    bronze(spark, str(tmp_path / "log"), tables)
    silver(spark, tables)
    assert market(spark, tables) == {"bars": 2, "quarantined": 4}
    assert surveillance(spark, tables) == {"alerts": {}, "quarantined": 4}
    kept = tables.read(spark, "gold", "quarantine", "market", "MarketTrade").orderBy("sent_ns").collect()
    assert [(row.sequence, row.reason) for row in kept] == [
        (2, "the price is no number"), (3, "the size is not above 0"), (4, "no symbol"),
    ]  # fmt: skip
    (order,) = tables.read(spark, "gold", "quarantine", "surveillance", "MarketOrder").collect()
    assert (order.trader, order.reason) == ("t", "the side is neither buy nor sell")


def test_alerts_are_published_once_however_often_the_job_runs(spark, day):
    folder, tables, _ = day
    domain = f"alerts-{os.getpid()}"
    surveillance(spark, tables)

    consumer = Consumer(domain)
    try:
        topic = consumer.enter(ALERTS_TOPIC, SurveillanceAlert)
        published = [publish_alerts(spark, tables, {"domain": domain})["published"] for _ in range(2)]
        # One more wash trade comes.
        more = Tables(str(folder / "more"))
        exchange = Exchange(folder / "morelog")
        exchange.position = 100_000
        exchange.send(1000.0, MarketTrade("UBSG", 20.0, 3, "again", "again"))
        exchange.log.close()
        bronze(spark, str(folder / "morelog"), more)
        silver(spark, more)
        tables.table("silver", "MarketTrade").append(more.read(spark, "silver", "MarketTrade"))
        surveillance(spark, tables)
        published.append(publish_alerts(spark, tables, {"domain": domain})["published"])
        alerts = consumer.values(topic, 6)
    finally:
        consumer.close()
    assert published == [5, 0, 1]
    assert {each.who for each in alerts[:5]} == {"washer", "left and right", "stuffer", "layerer", "runner"}
    assert (alerts[5].pattern, alerts[5].who) == ("wash_trade", "again")


def test_a_glance_at_the_log_finds_the_same_and_counts_what_it_cannot_read(spark, day, tmp_path):
    folder, _, _ = day
    topics = {kind: f"/swx/{kind}" for kind in ("quotes", "trades", "orders")}
    glance = Glance(spark, str(folder / "log"), Tables(str(tmp_path)), topics)
    consumer = Consumer(f"glance-{os.getpid()}")
    try:
        topic = consumer.enter(ALERTS_TOPIC, SurveillanceAlert)
        found = []
        for _ in range(2):
            bars, trades, _ = glance.bars(1)
            published = glance.publish_new({"domain": consumer.domain})
            found.append((bars, trades, published, glance.refused))
        assert found == [(8, 8, 5, 1), (8, 8, 0, 1)]
        assert len(consumer.values(topic, 5)) == 5
    finally:
        consumer.close()


def test_operations_sums_up_a_trace(spark, tmp_path):
    assert main(["sim", "run", "quickstart", "--trace", str(tmp_path / "trace"), "--json"]) == 0
    tables = Tables(str(tmp_path / "tables"))
    operations(spark, str(tmp_path / "trace"), tables)
    groups = tables.read(spark, "gold", "operations_topics")
    nodes = tables.read(spark, "gold", "operations_nodes")
    trace = spark.read.parquet(str(tmp_path / "trace"))
    assert groups.agg({"deliveries": "sum"}).first()[0] == trace.filter("kind = 'message_delivered'").count()
    assert nodes.agg({"datagrams_lost": "sum"}).first()[0] == trace.filter("kind = 'frame_dropped'").count() > 0
    assert nodes.agg({"repairs": "sum"}).first()[0] > 0
    assert nodes.filter("repair_share > 0 and repair_share < 1").count() > 0
    assert groups.filter("latency_us_p50 > latency_us_p99 or latency_us_p50 <= 0").count() == 0
    assert groups.filter("topic like 'group %'").count() == groups.count()


def test_operations_tells_how_long_a_round_of_a_simulated_ring_takes(spark, tmp_path):
    scenario = Path(__file__).parents[1] / "scenario/qsm_lost_frame_is_repaired_in_the_ring.toml"
    assert main(["sim", "run", str(scenario), "--trace", str(tmp_path / "trace"), "--json"]) == 0
    tables = Tables(str(tmp_path / "tables"))
    operations(spark, str(tmp_path / "trace"), tables)
    nodes = tables.read(spark, "gold", "operations_nodes")
    assert nodes.filter("ring_ms > 0 and ring_ms < 10000").count() > 0


def test_operations_tells_topics_repairs_and_rounds_of_live_nodes(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("vivum.live.tracing.MEASURE_S", 0.1)

    async def talk() -> None:
        connecting = partial(
            vivum.connect, f"operations-{os.getpid()}", trace=tmp_path / "trace", loss=0.1, timeout_s=60
        )
        async with connecting() as sender, connecting() as receiver:
            topic = await sender.enter("/swx/NESN", bytes, own=False)
            await receiver.enter("/swx/NESN", bytes)
            await topic.wait_for_members(2)
            for _ in range(200):
                await topic.send(bytes(1000))
                await asyncio.sleep(0.002)
            await topic.flush()

    asyncio.run(asyncio.wait_for(talk(), 120))
    tables = Tables(str(tmp_path / "tables"))
    operations(spark, str(tmp_path / "trace"), tables)
    topics = tables.read(spark, "gold", "operations_topics")
    assert [row.topic for row in topics.select("topic").distinct().collect()] == ["/swx/NESN"]
    assert topics.agg({"deliveries": "sum"}).first()[0] == 400
    # Before it has a number a node may refuse frames, as node 0.
    nodes = tables.read(spark, "gold", "operations_nodes").filter("node > 0")
    told = nodes.groupBy("node").sum().collect()
    assert len(told) == 2
    assert all(row["sum(datagrams)"] > 0 and row["sum(datagrams_lost)"] > 0 for row in told)
    assert sum(row["sum(repairs)"] for row in told) > 0
    assert sum(row["sum(repair_bytes)"] for row in told) > 0
    assert any(row["sum(ring_ms)"] is not None and row["sum(ring_ms)"] > 0 for row in told)


def test_silver_lists_fields_that_spark_has_no_column_for(spark, tmp_path):
    class Odd(vivum.Message):
        name: str
        either: int | str

    with SegmentLog(tmp_path / "log") as log:
        log.declare("/odd", Odd)
        log.append([RecordedRun("/odd", 1, 1, 1, 1, NINE, NINE, [msgspec.msgpack.encode(Odd("a", 1))])])
    tables = Tables(str(tmp_path / "tables"))
    assert bronze(spark, str(tmp_path / "log"), tables) == {"rows": 1}
    assert silver(spark, tables) == {"Odd": {"without_column": ["either"]}}


def test_what_is_missing_is_told_in_one_sentence(spark, tmp_path):
    tables = Tables(str(tmp_path / "tables"))
    with pytest.raises(UsageError, match="has no bronze table; run `vivum pipeline run bronze` first"):
        silver(spark, tables)
    with pytest.raises(UsageError, match="has neither MarketTrade nor MarketQuote in silver"):
        market(spark, tables)
    (tmp_path / "file").touch()
    with SegmentLog(tmp_path / "log") as log:
        log.append([RecordedRun("/a", 1, 1, 1, 1, 0, 0, [b"x"])])
    with pytest.raises(VivumError, match=r"cannot write .*: .* is not a directory; choose another output"):
        bronze(spark, str(tmp_path / "log"), Tables(str(tmp_path / "file" / "tables")))
    assert not tables.folder.exists()


def test_a_damaged_segment_stops_bronze_in_one_sentence_and_leaves_no_row(spark, quotes, tmp_path):
    segment = find_segments(quotes)[1].path
    whole = segment.read_bytes()
    segment.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    tables = Tables(str(tmp_path / "tables"))
    with pytest.raises(PySparkException) as caught:
        bronze(spark, str(quotes), tables)
    told = str(spark_error(caught.value))
    assert f"{segment.name} is damaged" in told
    assert "\n" not in told
    with pytest.raises(UsageError, match="has no bronze table"):
        silver(spark, tables)
    # Once it is whole again, the same command takes all of it.
    segment.write_bytes(whole)
    assert bronze(spark, str(quotes), tables)["rows"] == 60
    assert tables.read(spark, "bronze", "deliveries").count() == 60


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "bronze"], "bronze needs a log; give --log DIR"),
        (["run", "silver", "--watermark", "soon"], "'soon' is not a duration; write a number and a unit"),
        (["run", "silver", "--watermark", "9999999min"], "must be a year at most"),
        (["run", "operations"], "operations needs traces"),
        (["run", "market", "--publish-alerts"], "--publish-alerts needs the job surveillance or gold"),
        (["run", "bronze", "--log", "/nowhere"], "cannot read the log /nowhere: No such file or directory"),
    ],
)
def test_wrong_use_of_the_command_costs_no_spark(words, told, capsys, tmp_path: Path):
    assert main(["pipeline", *words, "--tables", str(tmp_path)]) in (1, 2)
    assert told in capsys.readouterr().err
