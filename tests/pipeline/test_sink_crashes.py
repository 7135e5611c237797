"""The sink under `kill -9`: every result once, whatever was lost of Spark's own notes."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import vivum
from recorded import publishing
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_log import SegmentLog

ROWS_PER_BATCH = 500
SECONDS_MAX = 300


def write_log(directory: Path, rows: int) -> None:
    with SegmentLog(directory) as log:
        for first in range(0, rows, 100):
            payloads = [b"%d" % number + bytes(200) for number in range(first, first + 100)]
            log.append([RecordedRun("/in", 1, 1, first, 1, 0, 0, payloads)])


def forget_last_commit(checkpoint: Path) -> None:
    """Delete the newest entry of the log in which Spark notes the batches that it finished."""
    entries = [each for each in (checkpoint / "commits").glob("*") if each.name.isdecimal()]
    if entries:
        newest = max(entries, key=lambda each: int(each.name))
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


class Crashes:
    """A consumer, and drivers that die one after the other."""

    def __init__(self, folder: Path, domain: str, seed: int) -> None:
        self.folder = folder
        self.domain = domain
        self.chance = random.Random(seed)
        self.results: list[bytes] = []
        self.repeated = 0
        self.kill_at: int | None = None
        self.driver: subprocess.Popen[bytes] | None = None

    async def run(self, kills: int, rows: int) -> None:
        write_log(self.folder / "log", rows)
        async with vivum.connect(self.domain) as node, await node.enter("/results", guarantee=vivum.KEYED) as topic:
            topic.on_batch(self.on_results)
            for number in range(kills):
                # Each driver dies somewhere in its share: in the middle of a batch, or while Spark computes.
                share = rows // (kills + 1)
                await self.run_driver(kill_at=number * share + self.chance.randrange(1, share))
                forget_last_commit(self.folder / "checkpoint")
            await self.run_driver(kill_at=None)
            self.repeated = topic.statistics().repeated

    async def run_driver(self, kill_at: int | None) -> None:
        self.kill_at = kill_at
        words = [self.folder / "log", self.folder / "checkpoint", self.domain, ROWS_PER_BATCH]
        command = [sys.executable, publishing.__file__, *map(str, words)]
        # A group of its own: the JVM and its Python workers go with it.
        with (self.folder / "errors").open("wb") as errors:
            self.driver = subprocess.Popen(command, start_new_session=True, stderr=errors)
        try:
            await asyncio.to_thread(self.driver.wait, SECONDS_MAX)
        finally:
            self.kill()
        wanted = 0 if kill_at is None else -signal.SIGKILL
        assert self.driver.returncode == wanted, (self.folder / "errors").read_text()[-3000:]

    def on_results(self, batch: "vivum.Batch[bytes]") -> None:
        self.results += batch.payloads
        if self.kill_at is not None and len(self.results) >= self.kill_at:
            delay_s = self.chance.choice([0.0, 0.0, self.chance.random()])
            self.kill_at = None
            asyncio.get_running_loop().call_later(delay_s, self.kill)

    def kill(self) -> None:
        if self.driver is not None and self.driver.returncode is None:
            os.killpg(self.driver.pid, signal.SIGKILL)


def check(folder: Path, kills: int, rows: int, seed: int) -> None:
    crashes = Crashes(folder, f"sink-crashes-{os.getpid()}", seed)
    asyncio.run(crashes.run(kills, rows))
    print(f"{crashes.repeated} messages came again and were passed over")  # noqa: T201
    numbers = [int(each.rstrip(b"\0")) for each in crashes.results]
    assert len(numbers) == len(set(numbers)), f"{len(numbers) - len(set(numbers))} results came twice"
    assert sorted(numbers) == list(range(rows))


@pytest.mark.slow
def test_drivers_are_killed_and_the_consumer_has_every_result_once(tmp_path):
    check(tmp_path, kills=3, rows=4000, seed=1)


@pytest.mark.soak
def test_ten_drivers_are_killed_and_the_consumer_has_every_result_once(tmp_path):
    check(tmp_path, kills=10, rows=20_000, seed=2)
