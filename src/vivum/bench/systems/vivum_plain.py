"""Vivum as people write it first: `await topic.send(x)` for each message, and `async for` at the receiver.

With the option `typed` messages are `Quote`s, which are encoded and decoded; otherwise they are bytes.
"""

import asyncio
import time
from functools import partial
from typing import Any

import vivum
from vivum.bench.counting import BATCH_MESSAGES, Source
from vivum.bench.systems.vivum_topics import POLL_S, join, prepare
from vivum.bench.worker import Control, Meter, Window, report_sent
from vivum.runtime.loop_thread import run_on_loop

__all__ = ["prepare", "receive", "send"]

TYPED_BYTES = 26
"""What the fields of a `Quote` before its note take on the wire, and the note's length."""


class Quote(vivum.Message):
    """A typed message as large as bytes of the same cell; the note tells which one it is."""

    symbol: str
    bid: float
    ask: float
    note: bytes


def send(control: Control, options: dict[str, Any]) -> None:
    """Send message after message."""
    run_on_loop(_send(control, options))


async def _send(control: Control, options: dict[str, Any]) -> None:
    control.tell(ready=True)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, control.wait_for, "meet")
    kind, size, make = _kind(options)
    place = await join(options, kind, receive=False)
    await place.meet(options["receivers"] + options["senders"])
    control.tell(met=True, **place.told)
    window = Window(await loop.run_in_executor(None, control.wait_for, "go"))
    source, (topic,), before = Source(size, make=make), place.topics, 0
    while (now := time.monotonic()) < window.stop:
        if now < window.start:
            before = source.sent
        for message in source.batch(BATCH_MESSAGES):
            await topic.send(message)
    counters = place.node.statistics().counters
    report_sent(control, source.sent, window, counted=source.sent - before, counters=counters)
    await loop.run_in_executor(None, control.hear)


def receive(control: Control, options: dict[str, Any]) -> None:
    """Take event after event."""
    run_on_loop(_receive(control, options))


async def _receive(control: Control, options: dict[str, Any]) -> None:
    kind, size, _ = _kind(options)
    place = await join(options, kind)
    control.tell(ready=True, **place.told)
    loop = asyncio.get_running_loop()
    window = Window(await loop.run_in_executor(None, control.wait_for, "go"))
    meter, batch = Meter(control, size, 1, window), list[bytes]()
    read = _read_typed if options["typed"] else _read_bytes
    reading = loop.create_task(read(place.topics[0], meter, batch))
    while not meter.is_over():
        await asyncio.sleep(POLL_S)
        if reading.done():
            reading.result()
        if time.monotonic() > window.stop:
            # The last batch is not full.
            _count(meter, batch)
    meter.report(counters=place.node.statistics().counters)
    reading.cancel()
    # The others may need us for repair until all have everything.
    await loop.run_in_executor(None, control.hear)


async def _read_bytes(topic: vivum.Topic[bytes], meter: Meter, batch: list[bytes]) -> None:
    async for event in topic:
        batch.append(event.value)
        if len(batch) == BATCH_MESSAGES:
            _count(meter, batch)


async def _read_typed(topic: vivum.Topic[Quote], meter: Meter, batch: list[bytes]) -> None:
    async for event in topic:
        batch.append(event.value.note)
        if len(batch) == BATCH_MESSAGES:
            _count(meter, batch)


def _count(meter: Meter, batch: list[bytes]) -> None:
    meter.take(batch)
    batch.clear()


def _kind(options: dict[str, Any]) -> tuple[type[Any], int, Any]:
    """Return the type of the topic, the bytes by which messages are told apart, and what makes a message of them."""
    if options["typed"]:
        return Quote, options["size"] - TYPED_BYTES, partial(Quote, "NESN", 101.2, 101.4)
    return bytes, options["size"], bytes
