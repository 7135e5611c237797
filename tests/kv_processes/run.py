"""Clients of three replica processes that are killed, stopped and started again; what they saw is judged.

    python tests/kv_processes/run.py --seconds 60 --seed 1 [--keep DIRECTORY]

Replicas are `vivum kv serve`, each with its state on disk. Clients are in this process, so one clock orders what they
ask and get. Faults come from the seed: kill -9 and a restart, or SIGSTOP for up to a second and a half, of one replica
or of two. The judge is `vivum.checkers.kv`, which knows nothing of the store. With `--keep` the record is a trace for
`vivum audit --check key_linearizable`.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from kv_trio.trio import free_ports
from vivum import kv
from vivum.checkers.checker import Violation
from vivum.checkers.kv.registry import KV_CHECKERS
from vivum.checkers.registry import CheckerSet
from vivum.core.digests import digest_63
from vivum.core.errors import VivumError
from vivum.observe.trace import (
    KeyChangeSeen,
    KeyOperationAnswered,
    KeyOperationIssued,
    LockReleased,
    LockTaken,
    TraceRecord,
    WatchBegan,
)

KEYS = [f"/k/{number}" for number in range(5)]
CLIENTS = 6
LOCK = "/lock"


class Servers:
    """Three replica processes."""

    def __init__(self, domain: str, state: Path) -> None:
        self.domain = domain
        self.state = state
        self.peers = {number: f"127.0.0.1:{port}" for number, port in enumerate(free_ports(domain), 1)}
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.stopped: set[int] = set()

    def start(self, number: int) -> None:
        peers = [word for each, where in self.peers.items() for word in ("--peer", f"{each}={where}")]
        words = ["-n", str(number), *peers, "--state", str(self.state / str(number)), "--domain", self.domain]
        with (self.state / f"{number}.log").open("ab") as log:
            self.running[number] = subprocess.Popen(
                [sys.executable, "-m", "vivum.cli", "kv", "serve", *words], stdout=log, stderr=log
            )

    def kill(self, number: int) -> None:
        self.stopped.discard(number)
        process = self.running.pop(number)
        process.kill()
        process.wait()

    def stop(self, number: int) -> None:
        self.stopped.add(number)
        self.running[number].send_signal(signal.SIGSTOP)

    def go_on(self, number: int) -> None:
        if number in self.stopped:
            self.stopped.discard(number)
            self.running[number].send_signal(signal.SIGCONT)

    def close(self) -> None:
        for number in list(self.running):
            self.kill(number)


class Client:
    """Does one operation after the other, and records when each began and what came of it."""

    def __init__(self, number: int, servers: Servers, rng: Random, record: Callable[[TraceRecord], None]) -> None:
        self.node = number
        self.counts: Counter[str] = Counter()
        self._servers = servers
        self._rng = rng
        self._record = record
        self._number = 0
        self._known: dict[str, bytes | None] = {}

    def _say(self, kind: type, *fields: object) -> None:
        self._record(kind(time.monotonic_ns(), self.node, 1, 1, *fields))

    def connect(self) -> kv.KeyValueClient:
        return kv.connect(list(self._servers.peers.values()), domain=self._servers.domain, timeout_s=3.0)

    async def work(self, until_s: float) -> None:
        async with self.connect() as store:
            while time.monotonic() < until_s:
                try:
                    await self._operate(store)
                    self.counts["answered"] += 1
                except VivumError as error:
                    self.counts[type(error).__name__] += 1
                await asyncio.sleep(self._rng.random() * 0.004)

    async def _operate(self, store: kv.KeyValueClient) -> None:
        self._number += 1
        number, key = self._number, self._rng.choice(KEYS)
        value = f"{self.node}/{number}".encode()
        expected = self._known.get(key)
        kind = self._rng.choice(["get", "get", "get", "put", "put", "swap", "swap", "delete"])
        written = value if kind in ("put", "swap") else None
        compared = expected if kind == "swap" else None
        what = (digest_63(key.encode()), _digest(written), _digest(compared))
        self._say(KeyOperationIssued, self.node, number, kind, *what)
        outcome, seen, revision = "done", 0, 0
        match kind:
            case "get":
                found = await store.get(key)
                self._known[key] = None if found is None else found.value
                seen = _digest(self._known[key])
            case "put":
                revision = await store.put(key, value)
            case "delete":
                await store.delete(key)
            case _:
                done = await store.compare_and_set(key, value, expected=expected)
                if done is None:
                    # What it found is not told: judged as if it was never answered.
                    self._known.pop(key, None)
                    self.counts["unequal"] += 1
                    return
                revision = done
        self._say(KeyOperationAnswered, self.node, number, outcome, seen, revision)

    async def watch(self) -> None:
        async with self.connect() as store:
            self._say(WatchBegan, self.node, 0)
            async for each in store.watch(prefix=True, after=0):
                self.counts["changes"] += 1
                self._say(KeyChangeSeen, self.node, each.revision, digest_63(each.key.encode()), _digest(each.value))

    async def lock(self, until_s: float) -> None:
        async with self.connect() as store:
            while time.monotonic() < until_s:
                try:
                    async with asyncio.timeout(max(0.1, until_s - time.monotonic())), store.lock(LOCK, ttl_s=2) as lock:
                        await self._hold(lock)
                except (VivumError, TimeoutError) as error:
                    self.counts[type(error).__name__] += 1

    async def _hold(self, lock: kv.Lock) -> None:
        if not lock.is_held:
            return
        token = lock.token
        self._say(LockTaken, digest_63(LOCK.encode()), token)
        self.counts["locks"] += 1
        until_s = time.monotonic() + self._rng.random() * 0.1
        try:
            while lock.is_held and time.monotonic() < until_s:
                await asyncio.sleep(0.002)
        finally:
            self._say(LockReleased, digest_63(LOCK.encode()), token)


def _digest(value: bytes | None) -> int:
    return 0 if value is None else digest_63(value)


async def disturb(servers: Servers, rng: Random, until_s: float, counts: Counter[str]) -> None:
    """Kill and stop replicas; leave a while in between, so that something gets done."""
    while time.monotonic() < until_s - 3:
        await asyncio.sleep(0.5 + rng.random())
        some = rng.sample(sorted(servers.running), rng.choice([1, 1, 1, 2]))
        kind = rng.choice(["kill", "stop"])
        counts[kind] += len(some)
        for number in some:
            (servers.kill if kind == "kill" else servers.stop)(number)
        await asyncio.sleep(rng.random() * 1.5)
        for number in some:
            if kind == "kill":
                servers.start(number)
            else:
                servers.go_on(number)


async def run(seconds: float, seed: int, state: Path) -> tuple[list[TraceRecord], Counter[str]]:
    """Run clients and faults; return what was recorded, in order, and what happened how often."""
    rng, records, counts = Random(seed), list[TraceRecord](), Counter[str]()
    servers = Servers(f"kv-{os.getpid()}-{seed}", state)
    try:
        for number in servers.peers:
            servers.start(number)
        clients = [Client(1001 + at, servers, Random(rng.random()), records.append) for at in range(CLIENTS)]
        async with clients[0].connect() as store:
            # The processes have to start first.
            store.timeout_s = 30.0
            await store.status()
        until_s = time.monotonic() + seconds
        watching = asyncio.create_task(clients[0].watch())
        async with asyncio.TaskGroup() as tasks:
            for each in clients:
                tasks.create_task(each.work(until_s))
            for each in clients[:3]:
                tasks.create_task(each.lock(until_s))
            tasks.create_task(disturb(servers, rng, until_s, counts))
        watching.cancel()
        for each in clients:
            counts += each.counts
    finally:
        servers.close()
    return records, counts


def judge(records: list[TraceRecord]) -> list[Violation]:
    """Return what is wrong with a record."""
    checkers = CheckerSet([each() for each in KV_CHECKERS.values()])
    for record in records:
        checkers(record)
    return checkers.finish()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        records, counts = asyncio.run(run(options.seconds, options.seed, Path(folder)))
    if options.keep is not None:
        from vivum.storage.traces import TraceWriter

        with TraceWriter(options.keep, "kv") as trace:
            for record in records:
                trace(record)
    violations = judge(records)
    for each in violations:
        sys.stderr.write(f"{each}\n")
    result = {"seconds": options.seconds, "seed": options.seed, "records": len(records), **counts}
    sys.stdout.write(json.dumps(result | {"violations": len(violations)}) + "\n")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
