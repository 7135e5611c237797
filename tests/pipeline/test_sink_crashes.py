"""The sink under `kill -9`: every result once, whatever is deleted of Spark's own notes."""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import vivum
from recorded import publishing
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_log import SegmentLog

ROWS_PER_BATCH = 1000
ROW_BYTES = 4000
"""So much that a batch takes a while, and is often cut in the middle."""

BUFFER_BYTES = 128 * 1024
SECONDS_MAX = 300


def write_log(directory: Path, rows: int) -> None:
    with SegmentLog(directory) as log:
        for first in range(0, rows, 100):
            payloads = [b"%d" % number + bytes(ROW_BYTES) for number in range(first, first + 100)]
            log.append([RecordedRun("/in", 1, 1, first, 1, 0, 0, payloads)])


def kill_session(leader: int) -> None:
    """Kill a process and all that it started, whatever groups these are in: the JVM, and Spark's Python workers."""
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            with suppress(ProcessLookupError, FileNotFoundError):
                if os.getsid(int(each.name)) == leader:
                    os.kill(int(each.name), signal.SIGKILL)


def forget_last(checkpoint: Path, notes: str) -> None:
    """Delete the newest entry of `commits` (batches that Spark finished) or of `offsets` (those that it planned)."""
    entries = [each for each in (checkpoint / notes).glob("*") if each.name.isdecimal()]
    if entries:
        newest = max(entries, key=lambda each: int(each.name))
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


def forget_all(checkpoint: Path) -> None:
    """Delete all that Spark noted of batches: it begins again with the first."""
    for notes in ("commits", "offsets"):
        shutil.rmtree(checkpoint / notes, ignore_errors=True)


class Crashes:
    """A consumer, and drivers that die one after the other."""

    def __init__(self, folder: Path, domain: str, seed: int) -> None:
        self.folder = folder
        self.domain = domain
        self.chance = random.Random(seed)
        self.results: list[int] = []
        self.cut = 0
        """How many drivers died inside a batch."""

        self.repeated = 0
        self.kill_at: int | None = None
        self.driver: subprocess.Popen[bytes] | None = None

    async def run(self, kills: int, rows: int) -> None:
        write_log(self.folder / "log", rows)
        # Small buffers: messages trickle in, and the kill comes before the batch is through.
        connecting = vivum.connect(self.domain, buffer_bytes=BUFFER_BYTES)
        async with connecting as node, await node.enter("/results", guarantee=vivum.KEYED) as topic:
            topic.on_batch(self.on_results)
            share = rows // (kills + 1)
            for number in range(kills):
                # Each driver dies somewhere in its share: in the middle of a batch, or while Spark computes.
                await self.run_driver(kill_at=number * share + self.chance.randrange(1, share))
                self.cut += len(self.results) % ROWS_PER_BATCH > 0
                checkpoint = self.folder / "checkpoint"
                match number % 3:
                    case 1:
                        forget_all(checkpoint)
                    case 2:
                        forget_last(checkpoint, "commits")
                        forget_last(checkpoint, "offsets")
                    case _:
                        forget_last(checkpoint, "commits")
            await self.run_driver(kill_at=None)
            self.repeated = topic.statistics().repeated

    async def run_driver(self, kill_at: int | None) -> None:
        self.kill_at = kill_at
        words = [self.folder / "log", self.folder / "checkpoint", self.domain, ROWS_PER_BATCH]
        command = [sys.executable, publishing.__file__, *map(str, words)]
        # A session of its own: all that it starts can be found.
        with (self.folder / "errors").open("wb") as errors:
            self.driver = subprocess.Popen(command, start_new_session=True, stderr=errors)
        try:
            await asyncio.to_thread(self.driver.wait, SECONDS_MAX)
        finally:
            self.kill()
        wanted = 0 if kill_at is None else -signal.SIGKILL
        assert self.driver.returncode == wanted, (self.folder / "errors").read_text()[-3000:]

    def on_results(self, batch: "vivum.Batch[bytes]") -> None:
        self.results += [int(payload.rstrip(b"\0")) for payload in batch.payloads]
        if self.kill_at is not None and len(self.results) >= self.kill_at:
            delay_s = self.chance.choice([0.0, 0.0, self.chance.random()])
            self.kill_at = None
            asyncio.get_running_loop().call_later(delay_s, self.kill)

    def kill(self) -> None:
        if self.driver is not None and self.driver.returncode is None:
            if self.chance.random() < 0.3:
                # Its workers live on for a moment, and one of them may be publishing.
                os.killpg(self.driver.pid, signal.SIGKILL)
            else:
                kill_session(self.driver.pid)


def check(folder: Path, kills: int, rows: int, seed: int) -> None:
    crashes = Crashes(folder, f"sink-crashes-{os.getpid()}", seed)
    asyncio.run(crashes.run(kills, rows))
    numbers = crashes.results
    assert len(numbers) == len(set(numbers)), f"{len(numbers) - len(set(numbers))} results came twice"
    assert sorted(numbers) == list(range(rows))
    # Told with -s: whether the hard case was among those that were drawn.
    sys.stdout.write(f"{kills} kills, {crashes.cut} inside a batch, {crashes.repeated} messages passed over\n")


@pytest.mark.slow
def test_drivers_are_killed_and_the_consumer_has_every_result_once(tmp_path):
    check(tmp_path, kills=1, rows=4000, seed=1)


@pytest.mark.soak
def test_twenty_drivers_are_killed_and_the_consumer_has_every_result_once(tmp_path):
    check(tmp_path, kills=20, rows=42_000, seed=2)
