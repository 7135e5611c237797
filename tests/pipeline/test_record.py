"""Recording and replaying real topics: real processes, real sockets."""

import asyncio
import datetime
import enum
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import vivum
from vivum.protocols.keyed.keys import heads_of
from vivum.storage.segment_files import find_segments
from vivum.storage.segment_reader import LogReader
from vivum.storage.topic_types import TopicTypes
from vivum.wire.schema import describe_type

pytestmark = pytest.mark.slow

MESSAGES = 500


class Tick(vivum.Message):
    symbol: str
    price: float
    sizes: list[int]
    note: str | None = None


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Leg(vivum.Message):
    venue: str
    price: float = 0.0


class Deal(vivum.Message):
    legs: list[Leg]
    best: Leg | None
    fees: dict[str, float]
    at: datetime.datetime
    side: Side
    pair: tuple[int, str]
    either: int | str


@pytest.fixture
def domain(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name[:40]}-{os.getpid()}"


def start(*words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "vivum.cli", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answer(process: "subprocess.Popen[str]") -> dict[str, Any]:
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def rows(directory: Path) -> list[dict[str, Any]]:
    return [row for batch in LogReader(directory).batches(0, 1 << 62) for row in batch.to_pylist()]


async def publish(node: vivum.NodeHandle, members: int) -> None:
    ticks = await node.enter("/swx/NESN", Tick)
    raw = await node.enter("/swx/raw", bytes)
    await ticks.wait_for_members(members)
    await raw.wait_for_members(members)
    for number in range(MESSAGES):
        await ticks.send(Tick("NESN", float(number), [number]))
        await raw.send(str(number).encode())
    await ticks.flush()
    await raw.flush()


def test_a_recorder_process_records_every_message_once_with_its_type_and_ends_in_order_at_sigterm(domain, tmp_path):
    async def scene() -> dict[str, Any]:
        async with vivum.connect(domain) as node:
            recorder = start("record", "/swx/**", "--to", str(tmp_path), "--domain", domain, "--json")
            await asyncio.wait_for(publish(node, 2), 60)
            recorder.send_signal(signal.SIGTERM)
            return await asyncio.to_thread(answer, recorder)

    report = asyncio.run(scene())
    assert (report["recorded"], report["missed"], report["topics"]) == (2 * MESSAGES, 0, 2)
    found = rows(tmp_path)
    assert [row["offset"] for row in found] == list(range(2 * MESSAGES))
    raw = [row for row in found if row["topic"] == "/swx/raw"]
    assert [row["payload"] for row in raw] == [str(number).encode() for number in range(MESSAGES)]
    assert [row["sequence"] - raw[0]["sequence"] for row in raw] == list(range(MESSAGES))
    assert all(row["delivered_ns"] > 0 and row["sent_ns"] > 0 and row["view"] > 0 for row in found)
    assert [each.stored_index() is not None for each in find_segments(tmp_path)] == [True]
    description = TopicTypes.read(tmp_path).types["/swx/NESN"]
    assert description is not None
    assert [field.name for field in description.fields] == ["symbol", "price", "sizes", "note"]


def test_ctrl_c_ends_a_recorder_in_order_and_a_replay_gives_the_log_again(domain, tmp_path):
    async def scene() -> tuple[int, dict[str, Any], list[Any]]:
        async with vivum.connect(domain) as node:
            recorder = start("record", "/swx/**", "--to", str(tmp_path), "--domain", domain)
            await asyncio.wait_for(publish(node, 2), 60)
            recorder.send_signal(signal.SIGINT)
            await asyncio.to_thread(recorder.communicate, timeout=60)
            ticks = await node.enter("/swx/NESN", Tick, own=False)
            again = start("replay", str(tmp_path), "--topics", "/swx/NESN", "--speed", "max", "--wait", "1", "--domain",
                          domain, "--json")  # fmt: skip
            values = []
            async with asyncio.timeout(60):
                async for event in ticks:
                    values.append(event.value)
                    if len(values) == MESSAGES:
                        break
            return recorder.returncode, await asyncio.to_thread(answer, again), values

    code, report, values = asyncio.run(scene())
    assert code == 130
    assert report["sent"] == MESSAGES
    assert [each.price for each in values] == [float(number) for number in range(MESSAGES)]
    # The log was closed well: its offsets go on without a jump.
    assert LogReader(tmp_path).stop_offset() == 2 * MESSAGES


def test_a_type_with_parts_is_recorded_as_what_it_is_and_replayed_to_its_readers(domain, tmp_path):
    at = datetime.datetime(2026, 11, 16, 14, 30, tzinfo=datetime.UTC)
    deal = Deal([Leg("XSWX", 1.5)], Leg("XETR"), {"stamp": 0.5}, at, Side.SELL, (1, "a"), "x")

    async def scene() -> Deal:
        async with vivum.connect(domain) as node:
            deals = await node.enter("/swx/deals", Deal, own=False)
            recorder = start("record", "/swx/**", "--to", str(tmp_path), "--domain", domain, "--count", "1", "--json")
            await asyncio.wait_for(deals.wait_for_members(2), 60)
            await deals.send(deal)
            await asyncio.to_thread(answer, recorder)
            again = start("replay", str(tmp_path), "--speed", "max", "--wait", "1", "--domain", domain, "--json")
            value = (await asyncio.wait_for(deals.receive(), 60)).value
            await asyncio.to_thread(answer, again)
            return value

    assert asyncio.run(scene()) == deal
    assert TopicTypes.read(tmp_path).types == {"/swx/deals": describe_type(Deal)}


def test_a_replay_sends_with_the_guarantee_that_was_recorded(domain, tmp_path):
    async def scene() -> tuple[dict[str, Any], list[bytes]]:
        async with vivum.connect(domain) as node:
            feed = await node.enter("/swx/feed", bytes, guarantee=vivum.BEST_EFFORT, own=False)
            recorder = start("record", "/swx/**", "--to", str(tmp_path), "--domain", domain, "--count", "5", "--json")
            await asyncio.wait_for(feed.wait_for_members(2), 60)
            for number in range(5):
                await feed.send(str(number).encode())
            await asyncio.to_thread(answer, recorder)
            # Another guarantee than the topic has would be refused.
            again = start("replay", str(tmp_path), "--speed", "max", "--wait", "1", "--domain", domain, "--json")
            values = []
            async with asyncio.timeout(60):
                async for event in feed:
                    values.append(event.value)
                    if len(values) == 5:
                        break
            return await asyncio.to_thread(answer, again), values

    report, values = asyncio.run(scene())
    assert report["sent"] == 5
    assert values == [str(number).encode() for number in range(5)]


def test_a_replay_of_a_keyed_topic_keeps_the_keys_so_receivers_see_each_message_once(domain, tmp_path):
    async def scene() -> tuple[list[int], list[bytes], list[bytes], int]:
        async with vivum.connect(domain) as node:
            topic = await node.enter("/swx/results", bytes, guarantee=vivum.KEYED)
            recorder = start("record", "/swx/**", "--to", str(tmp_path), "--domain", domain, "--count", "4", "--json")
            await asyncio.wait_for(topic.wait_for_members(2), 60)
            (seat,) = await node.take_seats([topic.name], '"bytes"', vivum.KEYED, lambda _: None)
            await seat.send([b"a", b"b", b"c"], heads=heads_of(bytes(range(16)), 5, 0, 3))
            # Sent again, as by a query that was restarted: passed over by all, the recorder too.
            await seat.send([b"a", b"b", b"c"], heads=heads_of(bytes(range(16)), 5, 0, 3))
            await topic.send(b"plain")
            await asyncio.to_thread(answer, recorder)
            old = [(await topic.receive()).value for _ in range(4)]
            async with vivum.connect(domain) as other:
                fresh = await other.enter("/swx/results", bytes, guarantee=vivum.KEYED)
                sent = []
                for _ in range(2):
                    words = ["replay", str(tmp_path), "--speed", "max", "--wait", "2", "--domain", domain, "--json"]
                    sent.append((await asyncio.to_thread(answer, start(*words)))["sent"])
                await topic.send(b"end")
                async with asyncio.timeout(60):
                    new = []
                    while not new or new[-1] != b"end":
                        new.append((await fresh.receive()).value)
                    while old[-1] != b"end":
                        old.append((await topic.receive()).value)
                return sent, old, new, topic.statistics().repeated

    sent, old, new, repeated = asyncio.run(scene())
    assert sent == [4, 4]
    # A message without a key is another one each time.
    assert old == [b"a", b"b", b"c", b"plain", b"plain", b"plain", b"end"]
    assert new == [b"a", b"b", b"c", b"plain", b"plain", b"end"]
    assert repeated == 9
    assert TopicTypes.read(tmp_path).headed == {"/swx/results"}
