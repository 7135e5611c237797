"""A real recorder process on a live topic: how many messages a second it writes, how soon they are rows in Spark."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy

import vivum
from vivum.bench.cell import WARM_S, Cell
from vivum.bench.systems.vivum_topics import BATCH_BYTES_MAX, BATCH_MESSAGES
from vivum.bench.throughput import measure_throughput
from vivum.runtime.loop_thread import run_on_loop
from vivum.storage.segment_reader import LogReader

SIZE = 1000
BATCH = max(1, min(BATCH_MESSAGES, BATCH_BYTES_MAX // SIZE))
"""Messages handed over at once: what the throughput benchmark has at this size."""

PACE = 0.55
"""How much of that rate is sent to the recorder: what it must keep up with (half), and a tenth to spare."""

SHARE_GOAL = 0.5
FLAT_OUT = float("inf")

PAUSE_S = 0.002
PATIENCE_S = 60.0
TRIGGER = "200 milliseconds"
SPARSE_PER_S = 100
"""Messages a second while the time until they are rows is measured."""


@contextmanager
def service_and_recorder(log: Path, domain: str) -> Iterator["subprocess.Popen[str]"]:
    """Run the service of a domain and a recorder of all its topics, each a process of its own."""
    started = []
    for words in (["up"], ["record", "/**", "--to", str(log), "--json"]):
        command = [sys.executable, "-m", "vivum.cli", *words, "--domain", domain]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    try:
        yield started[1]
    finally:
        for each in reversed(started):
            if each.poll() is None:
                each.send_signal(signal.SIGINT)
            each.wait(PATIENCE_S)


def end_of(recorder: "subprocess.Popen[str]") -> dict[str, Any]:
    """End a recorder as Ctrl-C does; return what it tells of itself."""
    recorder.send_signal(signal.SIGINT)
    out, errors = recorder.communicate(timeout=PATIENCE_S)
    if not out:
        raise RuntimeError(f"the recorder said nothing but: {errors}")
    told: dict[str, Any] = json.loads(out.splitlines()[-1])
    return told


def measure_recorder(folder: Path, seconds: float, rounds: int, pace: float = PACE) -> dict[str, Any]:
    """Record a reliable topic at this part of the rate that the throughput benchmark reaches just before.

    The best round counts: one without loss, or else with the least. `starved` is the part of its time in which the
    recorder was ready to run and other work had the processors; a node that is starved for long is dropped. Then once
    flat out, where the sender may be faster than the recorder: what is lost there must be counted.
    """
    found = []
    for number in range(rounds):
        plain = measure_throughput(Cell(SIZE, 1, seconds))
        throughput = max(1, plain["delivered_per_s_min"])
        found.append(_record_once(folder / f"recorded-{number}", seconds, pace * throughput))
        found[-1] |= {
            "throughput_msgs_per_s": throughput,
            "recorder_share_of_throughput": round(found[-1]["recorder_msgs_per_s"] / throughput, 3),
            "receiver_cpu_us_per_msg": round(plain["cpu_ns_receiver"] / 1000, 3),
        }
        found[-1]["recorder_keeps_up"] = (
            not found[-1]["recorder_missed"] and found[-1]["recorder_share_of_throughput"] >= SHARE_GOAL
        )
        if found[-1]["recorder_keeps_up"]:
            break
    best = min(found, key=lambda each: (not each["recorder_keeps_up"], each["recorder_missed"]))
    flat_out = _record_once(folder / "flat-out", seconds, FLAT_OUT)
    return best | {
        "recorder_rounds": len(found),
        "recorder_flat_out_msgs_per_s": flat_out["recorder_msgs_per_s"],
        "recorder_flat_out_missed": flat_out["recorder_missed"],
        "recorder_flat_out_missed_in_silence": flat_out["recorder_missed_in_silence"],
    }


def _record_once(log: Path, seconds: float, per_s: float) -> dict[str, Any]:
    domain = f"recorder bench {os.getpid()} {log.name}"
    window: list[float] = []
    used: list[tuple[float, float]] = []
    sent = 0

    async def send() -> None:
        nonlocal sent
        payloads = [os.urandom(SIZE) for _ in range(BATCH)]
        async with vivum.connect(domain, embedded=False, timeout_s=PATIENCE_S) as node:
            topic = await node.enter("/bench/recorded", bytes, own=False)
            async with asyncio.timeout(PATIENCE_S):
                await topic.wait_for_members(2)
            used.append(_used(recorder.pid))
            began = time.time()
            window.extend((began + WARM_S, began + WARM_S + seconds))
            while (now := time.time()) < window[1]:
                await topic.send_many(payloads)
                sent += BATCH
                if (ahead := began + sent / per_s - now) > PAUSE_S:
                    await asyncio.sleep(ahead)
            window.append(time.time())
            await topic.flush()
            used.append(_used(recorder.pid))

    with service_and_recorder(log, domain) as recorder:
        run_on_loop(send())
        told = end_of(recorder)
        ended = time.time()
    delivered = numpy.concatenate(
        [batch.column("delivered_ns").to_numpy() for batch in LogReader(log).batches(0, 1 << 62)]
    )
    inside = (delivered >= window[0] * 1e9) & (delivered < window[1] * 1e9)
    missed = sent - len(delivered)
    cpu_s, starved_s = (after - before for before, after in zip(*used, strict=True))
    return {
        "recorder_msgs_per_s": round(int(inside.sum()) / seconds),
        "recorder_sent_msgs_per_s": round(sent / (seconds + WARM_S)),
        "recorder_missed": missed,
        # A node that was dropped tells that something is missing, not how much.
        "recorder_missed_in_silence": missed if missed > 0 and not told["missed"] else 0,
        # From the last message until the recorder had written all, closed its log and left.
        "recorder_end_s": round(ended - window[2], 2),
        "recorder_cpu_us_per_msg": round(cpu_s / len(delivered) * 1e6, 3),
        "recorder_starved": round(starved_s / (seconds + WARM_S), 2),
    }


def _used(pid: int) -> tuple[float, float]:
    """Return the seconds that a process had a processor, and those that it waited for one, over all its threads."""
    ran = waited = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        words = (thread / "schedstat").read_text().split()
        ran, waited = ran + int(words[0]), waited + int(words[1])
    return ran / 1e9, waited / 1e9


def measure_rows(spark: Any, folder: Path, seconds: float) -> dict[str, Any]:
    """Send now and then, and look how long after its delivery at the recorder each message is a row in Spark."""
    log = folder / "sparse"
    domain = f"rows bench {os.getpid()}"
    waits_ms: list[float] = []

    def take(frame: Any, _number: int) -> None:
        delivered = frame.select("delivered_ns").toArrow().column(0).to_numpy()
        waits_ms.extend(((time.time_ns() - delivered) / 1e6).tolist())

    async def send(until: float) -> None:
        async with vivum.connect(domain, embedded=False, timeout_s=PATIENCE_S) as node:
            topic = await node.enter("/bench/sparse", bytes, own=False)
            async with asyncio.timeout(PATIENCE_S):
                await topic.wait_for_members(2)
            await topic.send(bytes(SIZE))
            await topic.flush()
            while not list(log.glob("*.segment")):
                await asyncio.sleep(0.1)
            query = await asyncio.to_thread(start)
            try:
                while not waits_ms and query.isActive:
                    await asyncio.sleep(0.1)
                # The first batches compile the plan and start the workers.
                await asyncio.sleep(WARM_S)
                waits_ms.clear()
                began = time.monotonic()
                while time.monotonic() - began < until:
                    await topic.send(bytes(SIZE))
                    await asyncio.sleep(1 / SPARSE_PER_S)
                await asyncio.sleep(2 * WARM_S)
            finally:
                await asyncio.to_thread(query.stop)

    def start() -> Any:
        stream = spark.readStream.format("vivum").load(str(log)).writeStream.foreachBatch(take)
        return stream.option("checkpointLocation", str(folder / "sparse-checkpoint")).trigger(
            processingTime=TRIGGER
        ).start()  # fmt: skip

    with service_and_recorder(log, domain):
        run_on_loop(send(seconds))
    return {
        "recorder_to_row_ms_p50": round(median(waits_ms)),
        "recorder_to_row_ms_p95": round(float(numpy.percentile(waits_ms, 95))),
        "recorder_to_row_messages": len(waits_ms),
    }
