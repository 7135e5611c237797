"""Vivum as programs use it: `vivum.connect`, topics, `send_many`, `batches()`; the service in a process of its own.

One topic is read by `batches()`, many by `on_batch`. Settings of QSM that are to be tried out (`--set`) replace those
that the runtime finds for the path; programs have no such way.
"""

import asyncio
import dataclasses
import time
from typing import Any, Generic, TypeVar

import vivum
from vivum.bench.cell import Cell
from vivum.bench.counting import BATCH_MESSAGES, Source, resident_kb
from vivum.bench.crew import Crew
from vivum.bench.worker import Control, Meter, Window, report_sent
from vivum.node.sizing import fitting_settings
from vivum.runtime import member_host
from vivum.runtime.loop_thread import run_on_loop

T = TypeVar("T")

LABEL = "Vivum, reliable topics"
BATCH_BYTES_MAX = 1 << 19
"""At most this is handed over at once; of messages of up to 1,000 bytes, as many as other systems get."""

POLL_S = 0.02
"""How often a receiver looks whether it is over; nothing that is measured waits for it."""

TOPICS_LOOKED_AT = 64
"""How many of many topics are asked whether all members are there."""

JOIN_S_MAX = 60.0

CONNECT_OPTIONS = ("poll_us", "shared_memory", "buffer_bytes", "multicast")
"""Options of a cell that go to `vivum.connect`."""


def prepare(crew: Crew, cell: Cell) -> dict[str, Any]:
    """Start the node that carries the service of a domain of our own."""
    prefix, where = cell.place(0)
    options = {"domain": f"bench {time.monotonic_ns()}", **where, **_asked(cell.options)}
    service = crew.start("service", f"{__name__}:serve", options, prefix)
    return options | {"service": service.hear("ready", cell.patience_s)["endpoint"]}


def _asked(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that are those of `vivum.connect`."""
    return {name: options[name] for name in CONNECT_OPTIONS if name in options}


def serve(control: Control, options: dict[str, Any]) -> None:
    """Carry the service until the parent is gone."""

    async def run() -> None:
        async with vivum.connect(options["domain"], interface=options["interface"], **_asked(options)) as node:
            service = node.statistics().service
            control.tell(ready=True, endpoint=list(service or node.endpoint))
            await asyncio.get_running_loop().run_in_executor(None, control.hear)

    run_on_loop(run())


def _try_settings(settings: dict[str, Any]) -> None:
    """Let every node of this process have these settings, whatever fits its path."""
    if settings:
        setattr(  # noqa: B010 - mypy minds the assignment, rightly so anywhere else
            member_host, "fitting_settings", lambda *path: dataclasses.replace(fitting_settings(*path), **settings)
        )


class Place(Generic[T]):
    """A node of the benchmark's domain, in all its topics."""

    def __init__(self, node: vivum.NodeHandle, topics: list[vivum.Topic[T]], told: dict[str, Any]) -> None:
        self.node = node
        self.life = node.member
        self.topics = topics
        self.told = told

    async def meet(self, members: int) -> None:
        """Wait until this many members are in the topics."""
        looked_at = self.topics[:: max(1, len(self.topics) // TOPICS_LOOKED_AT)]
        for topic in [self.topics[-1], *looked_at]:
            await topic.wait_for_members(members)
        self.told["rss_kb_joined"] = resident_kb()


async def join(options: dict[str, Any], kind: type[T], receive: bool = True) -> Place[T]:
    """Make a node of the benchmark's domain and enter all its topics."""
    _try_settings(options.get("settings", {}))
    asked = _asked(options)
    if not asked.get("multicast", True):
        # Nodes of other hosts hear no beacon.
        host, port = options["service"]
        asked["seeds"] = [f"{host}:{port}"]
    node = await vivum.connect(
        options["domain"], interface=options["interface"], embedded=False, timeout_s=JOIN_S_MAX, **asked
    )
    before_kb, began = resident_kb(), time.monotonic()
    names = [f"/bench/{number}" for number in range(options["groups"] * options.get("senders", 1))]
    topics = await node.enter_many(names, kind, receive=receive, own=False)
    told = {"began": began, "rss_kb_before": before_kb, "rss_kb_joined": resident_kb()}
    return Place(node, topics, told | {"endpoint": list(node.endpoint)})


def send(control: Control, options: dict[str, Any]) -> None:
    """Send to every topic of this sender in turn."""
    run_on_loop(_send(control, options))


async def _send(control: Control, options: dict[str, Any]) -> None:
    control.tell(ready=True)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, control.wait_for, "meet")
    place = await join(options, bytes, receive=False)
    await place.meet(options["receivers"] + options["senders"])
    control.tell(met=True, **place.told)
    window = Window(await loop.run_in_executor(None, control.wait_for, "go"))
    source, groups = Source(options["size"], options["groups"]), options["groups"]
    topics = place.topics[groups * options["number"] :][:groups]
    count = options.get("batch") or max(1, min(BATCH_MESSAGES, BATCH_BYTES_MAX // options["size"]))
    per_s, began = options.get("per_s", 0.0), time.monotonic()
    before = turn = 0
    while (now := time.monotonic()) < window.stop:
        if now < window.start:
            before = source.sent
        await topics[turn].send_many(source.batch(count, turn))
        turn = (turn + 1) % len(topics)
        if per_s:
            await asyncio.sleep(max(0.0, began + source.sent / per_s - time.monotonic()))
    counters = place.node.statistics().counters
    report_sent(control, source.sent, window, counted=source.sent - before, counters=counters)
    await loop.run_in_executor(None, control.hear)


def receive(control: Control, options: dict[str, Any]) -> None:
    """Take what is delivered."""
    run_on_loop(_receive(control, options))


async def _receive(control: Control, options: dict[str, Any]) -> None:
    place = await join(options, bytes)
    control.tell(ready=True, **place.told)
    loop = asyncio.get_running_loop()
    window = Window(await loop.run_in_executor(None, control.wait_for, "go"))
    meter = Meter(control, options["size"], len(place.topics), window)
    missed: list[str] = []
    ended: list[str] = []
    if len(place.topics) == 1:
        reader = loop.create_task(_read(place.topics[0], meter, missed, ended))
    else:
        reader = None
        for number, topic in enumerate(place.topics):
            topic.on_batch(lambda batch, number=number: meter.take(batch.payloads, number))  # type: ignore[misc]
    while not meter.is_over():
        await asyncio.sleep(POLL_S)
        if reader is not None and reader.done():
            reader.result()
    life = place.node.member
    if life != place.life:
        missed.append(f"the node was dropped and joined again: it was {place.life}, and is {life}")
    told = {"told": bool(missed), "missed": missed[:3], "lives": 1 + len(ended)}
    meter.report(counters=place.node.statistics().counters, **told)
    # The others may need us for repair until all have everything.
    await loop.run_in_executor(None, control.hear)


async def _read(topic: vivum.Topic[bytes], meter: Meter, missed: list[str], ended: list[str]) -> None:
    told = 0
    while True:
        try:
            async for batch in topic.batches():
                if len(missed) > told:
                    told = len(missed)
                    meter.tally.skip(batch.payloads)
                meter.take(batch.payloads)
        except vivum.MissedMessages as error:
            # Told, as it must be; what comes after it counts.
            missed.append(str(error))
            if error.count is None:
                ended.append(str(error))


# Round trips.


def echo(control: Control, options: dict[str, Any]) -> None:
    """Send every message back to its topic; `vivum.bench.latency` runs it."""

    async def run() -> None:
        place = await join(options, bytes)
        for each in place.topics:
            _send_back(each)
        control.tell(ready=True)
        await asyncio.get_running_loop().run_in_executor(None, control.hear)

    run_on_loop(run())


def _send_back(topic: vivum.Topic[bytes]) -> None:
    topic.on_batch(lambda batch: None if topic.try_send_many(batch.payloads) else _refused())


def _refused() -> None:
    raise RuntimeError("the queue of one message was full")


def ping(control: Control, options: dict[str, Any]) -> None:
    """Send one message at a time and wait for it to come back, when told how often.

    In one topic by a callback, in another by `await topic.receive()`.
    """

    async def run() -> None:
        place = await join(options, bytes)
        await place.meet(2)
        called, awaited = place.topics
        loop, clock, warm = asyncio.get_running_loop(), time.perf_counter_ns, options["warm"]
        payload = bytes(options["size"])
        times: list[int] = []
        done = loop.create_future()
        began = rounds = 0

        def on_batch(_: vivum.Batch[bytes]) -> None:
            nonlocal began
            times.append(clock() - began)
            if len(times) == rounds:
                done.set_result(None)
            else:
                began = clock()
                called.try_send(payload)

        called.on_batch(on_batch)
        control.tell(ready=True)
        while True:
            rounds = warm + await loop.run_in_executor(None, control.wait_for, "rounds")
            began = clock()
            called.try_send(payload)
            async with asyncio.timeout(60.0):
                await done
            by_callback = times[warm:]
            times.clear()
            done = loop.create_future()
            for _ in range(rounds):
                began = clock()
                await awaited.send(payload)
                await awaited.receive()
                times.append(clock() - began)
            control.tell(times={"": by_callback, "awaited_": times[warm:]})
            times.clear()

    run_on_loop(run())
