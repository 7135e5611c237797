"""A program of a chaos run: enters topics, sends at random times, and writes down all that it does and is told.

    python member.py OPTIONS    (JSON: domain, interface, name, topics, seed, log)

Uses Vivum as any program does. Each record is one write to the log, so that a kill loses nothing that the program has
acted on. The one who directs it says on standard input, a line each: `settle N N …` (the members of each topic) to stop
the traffic and send some last messages, and `end`.
"""

import asyncio
import contextlib
import ctypes
import hashlib
import json
import os
import signal
import sys
from random import Random
from typing import Any

import vivum

PR_SET_PDEATHSIG = 1

BURST_MAX = 5
PAUSE_S = (0.02, 0.15)
SIZES = (30, 200, 1000, 1600, 4000)
FLUSH_S = (0.05, 0.6)
LAST_MESSAGES = 20
LIFE_LOOK_S = 0.02


class Program:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.run = options["run"]
        self.random = Random(f"{options['seed']} {self.run}")
        self.log = os.open(options["log"], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self.life: vivum.Member | None = None
        self.intended: dict[str, int] = {}
        self.accepted: dict[str, int] = {}
        self.asked: dict[str, int] = {}
        self.is_settling = False

    def write(self, *record: Any) -> None:
        os.write(self.log, json.dumps(record).encode() + b"\n")

    def look_at_life(self, node: vivum.NodeHandle) -> None:
        life = node.member
        if life is not None and life != self.life:
            self.life = life
            self.write("life", str(life))

    async def watch_life(self, node: vivum.NodeHandle) -> None:
        while True:
            self.look_at_life(node)
            await asyncio.sleep(LIFE_LOOK_S)

    # Sending.

    async def send(self, topic: vivum.Topic[bytes], count: int) -> None:
        for _ in range(count):
            name, number = topic.name, self.intended[topic.name]
            head = f"{self.run} {number} ".encode()
            payload = head + self.random.randbytes(self.random.choice(SIZES))
            self.write("send", name, number, digest(payload))
            self.intended[name] = number + 1
            await topic.send(payload)
            self.accepted[name] = number + 1

    async def keep_sending(self, topic: vivum.Topic[bytes]) -> None:
        while not self.is_settling:
            await self.send(topic, self.random.randint(1, BURST_MAX))
            await asyncio.sleep(self.random.uniform(*PAUSE_S))

    async def flush(self, topic: vivum.Topic[bytes]) -> None:
        """Flush, and write down what that tells of the messages since the last time."""
        name = topic.name
        first, stop = self.asked[name], self.accepted[name]
        try:
            await topic.flush()
        except vivum.SendFailedError as error:
            # It may tell of any message so far.
            stop = self.intended[name]
            self.write("unconfirmed", name, first, stop, str(error))
        else:
            if stop > first:
                self.write("confirmed", name, first, stop)
        self.asked[name] = max(first, stop)

    async def keep_flushing(self, topic: vivum.Topic[bytes]) -> None:
        while not self.is_settling:
            await asyncio.sleep(self.random.uniform(*FLUSH_S))
            await self.flush(topic)

    # Reading.

    async def read(self, node: vivum.NodeHandle, topic: vivum.Topic[bytes]) -> None:
        while True:
            try:
                async for item in topic.with_views():
                    if isinstance(item, vivum.TopicView):
                        self.look_at_life(node)
                        self.write("view", topic.name, item.number, list(map(str, item.members)))
                        continue
                    run, number, _ = item.value.split(b" ", 2)
                    told = (item.view, run.decode(), int(number), digest(item.value))
                    self.write("got", topic.name, str(item.sender), item.sequence, *told)
                return
            except vivum.MissedMessages as told_missed:
                sender = None if told_missed.sender is None else str(told_missed.sender)
                self.write("missed", topic.name, sender, told_missed.first, told_missed.count, str(told_missed))

    # The whole.

    async def main(self) -> None:
        options = self.options
        while True:
            connecting = vivum.connect(
                options["domain"], interface=options["interface"], embedded=False, name=self.run, timeout_s=60.0
            )
            with contextlib.suppress(vivum.NoServiceError):
                node = await connecting
                break
        async with node:
            self.look_at_life(node)
            tasks = [asyncio.create_task(self.watch_life(node))]
            topics = await node.enter_many(options["topics"], bytes)
            for topic in topics:
                self.intended[topic.name] = self.accepted[topic.name] = self.asked[topic.name] = 0
            readers = [asyncio.create_task(self.read(node, topic)) for topic in topics]
            traffic = [asyncio.create_task(self.keep_sending(topic)) for topic in topics]
            traffic += [asyncio.create_task(self.keep_flushing(topic)) for topic in topics]
            say("entered")
            *_, counts = (await hear("settle")).split(" ", 1)
            self.is_settling = True
            await asyncio.gather(*traffic)
            for topic, count in zip(topics, map(int, counts.split()), strict=True):
                while len(topic.members) != count:
                    await asyncio.sleep(LIFE_LOOK_S)
            say("together")
            await hear("last")
            for topic in topics:
                await self.flush(topic)
                await self.send(topic, LAST_MESSAGES)
                await self.flush(topic)
            say("settled")
            await hear("end")
            while any(topic.statistics().queued_bytes for topic in topics):
                await asyncio.sleep(LIFE_LOOK_S)
            for task in (*tasks, *readers):
                task.cancel()
            results = await asyncio.gather(*tasks, *readers, return_exceptions=True)
            self.look_at_life(node)
            for result in results:
                if not isinstance(result, asyncio.CancelledError):
                    raise RuntimeError("a task ended before its time") from result
            self.write("end")


def digest(payload: bytes) -> str:
    return hashlib.blake2b(payload, digest_size=8).hexdigest()


def say(word: str) -> None:
    os.write(1, word.encode() + b"\n")


async def hear(word: str) -> str:
    line = await asyncio.to_thread(sys.stdin.readline)
    if not line.startswith(word):
        raise SystemExit(f"heard {line!r} instead of {word!r}")
    return line.strip()


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    # Nothing must outlive the one who directs, not even a stopped process.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != asked["parent"]:
        raise SystemExit(1)
    asyncio.run(Program(asked).main())
