"""The processes of the demo that have a node: publishers, subscribers, the desk that gets the alerts, the recorder.

Each is a task of `vivum.bench.worker`: it tells `ready` when it is in its topics, `seen` now and then, does what the
parent says, and leaves the domain in order when it hears `end`, or when the parent's end of the line is gone.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import vivum
from vivum.bench.worker import Control
from vivum.demo.exchange import Exchange, Planting
from vivum.demo.topics import (
    ALERTS,
    ALERTS_GUARANTEE,
    EVERYTHING,
    FEED_GUARANTEE,
    ORDERS,
    TRADES,
    quote_topic,
    topic_of,
)
from vivum.pipeline.market_messages import MarketOrder, MarketQuote, MarketTrade, SurveillanceAlert
from vivum.pipeline.recording.recorder import Recorder
from vivum.runtime.loop_thread import run_on_loop
from vivum.storage.segment_log import SegmentLog

STEP_S = 0.1
"""The market moves so often; what happened in between is sent together."""

TELL_S = 0.5
"""How often a process tells what it has seen."""

JOIN_S = 60.0
"""On a busy computer, with packets lost on purpose, joining may take seconds."""


class _Place:
    """One node, and its line to the parent."""

    def __init__(self, control: Control, node: vivum.NodeHandle) -> None:
        self.control = control
        self.node = node
        self.told: dict[str, Any] = {}
        self.changed = asyncio.Event()
        self.received = 0
        self.missed = 0

    def count(self, messages: int) -> None:
        """Note messages that came."""
        self.received += messages
        self.changed.set()

    async def listen(self) -> None:
        """Take what the parent says until it says `end`."""
        loop = asyncio.get_running_loop()
        while "end" not in self.told:
            # A thread of its own: the node must go on meanwhile.
            heard = await loop.run_in_executor(None, self.control.hear)
            self.told |= heard or {}
            self.changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something that messages or the parent bring about."""
        while not holds():
            self.changed.clear()
            await self.changed.wait()

    def numbers(self) -> dict[str, Any]:
        """Return the node's figures."""
        statistics = self.node.statistics()
        counters = statistics.counters
        return {
            "received": self.received,
            "missed": self.missed,
            "delivered": counters["messages_delivered"],
            "lost_on_purpose": statistics.lost_on_purpose,
            "repaired": counters["repairs_received"],
            "unhad": counters["messages_lost"],
            "failed": counters["messages_failed"],
        }

    async def tell_now_and_then(self) -> None:
        """Report to the parent what was seen so far, again and again."""
        while True:
            await asyncio.sleep(TELL_S)
            self.control.tell(seen=self.numbers())


def _run(control: Control, options: dict[str, Any], play: Callable[[_Place, dict[str, Any]], Awaitable[None]]) -> None:
    """Join, play a part, and leave in order whatever ends it."""

    async def run() -> None:
        connecting = vivum.connect(
            options["domain"],
            name=options["name"],
            trace=options["trace"],
            loss=options["loss"],
            timeout_s=JOIN_S,
        )
        async with connecting as node:
            place = _Place(control, node)
            listening = asyncio.create_task(place.listen())
            playing = asyncio.ensure_future(play(place, options))
            telling = asyncio.create_task(place.tell_now_and_then())
            try:
                await asyncio.wait([listening, playing, telling], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in (playing, telling):
                    each.cancel()
                await asyncio.wait([playing, telling])
            for each in (listening, playing):
                if each.done() and not each.cancelled():
                    each.result()
            last = place.numbers()
        control.tell(ended=last)

    with suppress(SystemExit):
        # The connection to the parent is closed: nobody waits for an answer.
        run_on_loop(run())


# Publishers.


def publish_market(control: Control, options: dict[str, Any]) -> None:
    """Be the market of some symbols."""
    _run(control, options, _publish)


async def _publish(place: _Place, options: dict[str, Any]) -> None:
    node, names = place.node, options["symbols"]
    alone: dict[str, Any] = {"guarantee": FEED_GUARANTEE, "receive": False}
    topics: dict[str, Any] = {}
    for topic in await node.enter_many([quote_topic(name) for name in names], MarketQuote, **alone):
        topics[topic.name] = topic
    topics[TRADES] = await node.enter(TRADES, MarketTrade, **alone)
    topics[ORDERS] = await node.enter(ORDERS, MarketOrder, **alone)
    place.control.tell(ready=True)
    await place.until(lambda: "members" in place.told)
    for topic in topics.values():
        await topic.wait_for_members(place.told["members"][topic.name])
    place.control.tell(met=True)
    await place.until(lambda: "go" in place.told)
    sent: Counter[str] = Counter()
    exchange = Exchange(options["number"], names, options["rate"], Random(options["seed"]))
    began = time.monotonic()
    while (now_s := time.monotonic() - began) < options["seconds"] or not exchange.is_settled:
        by_topic: dict[str, list[Any]] = {}
        for message in exchange.step(now_s, closing=now_s >= options["seconds"]):
            by_topic.setdefault(topic_of(message), []).append(message)
        for name, messages in by_topic.items():
            await topics[name].send_many(messages)
            sent[name] += len(messages)
        place.control.tell(sent=sent.total())
        await asyncio.sleep(STEP_S)
    for topic in topics.values():
        await topic.flush()
    place.control.tell(closed=sent, planted=_listed(exchange.planted), decoys=_listed(exchange.decoys))
    await place.until(lambda: "end" in place.told)


def _listed(plantings: list[Planting]) -> list[list[str]]:
    return [[each.pattern, each.symbol, each.who] for each in plantings]


# Subscribers.


def subscribe(control: Control, options: dict[str, Any]) -> None:
    """Follow some topics."""
    _run(control, options, _subscribe)


async def _subscribe(place: _Place, options: dict[str, Any]) -> None:
    types = {TRADES: MarketTrade, ORDERS: MarketOrder}
    by_type: dict[Any, list[str]] = {}
    for name in options["topics"]:
        by_type.setdefault(types.get(name, MarketQuote), []).append(name)
    for kind, names in by_type.items():
        for topic in await place.node.enter_many(names, kind, guarantee=FEED_GUARANTEE):
            topic.on_batch(lambda batch: place.count(len(batch)))
    await _stay(place)


async def _stay(place: _Place) -> None:
    """Say that all is well, and later that all that was expected has come."""
    place.control.tell(ready=True)
    await place.until(lambda: "expect" in place.told)
    await place.until(lambda: place.received >= place.told["expect"])
    place.control.tell(complete=place.received)
    await place.until(lambda: "end" in place.told)


def watch_alerts(control: Control, options: dict[str, Any]) -> None:
    """Be the desk to which the alerts come back."""
    _run(control, options, _watch_alerts)


async def _watch_alerts(place: _Place, _: dict[str, Any]) -> None:
    topic = await place.node.enter(ALERTS, SurveillanceAlert, guarantee=ALERTS_GUARANTEE)

    def show(event: vivum.TopicEvent[SurveillanceAlert]) -> None:
        alert = event.value
        place.control.tell(alert=[alert.pattern, alert.symbol, alert.who, alert.evidence])
        place.count(1)

    topic.on(show)
    await _stay(place)


# The recorder.


def record(control: Control, options: dict[str, Any]) -> None:
    """Write the feed to a log."""
    _run(control, options, _record)


async def _record(place: _Place, options: dict[str, Any]) -> None:
    with SegmentLog(Path(options["log"])) as log:
        recorder = Recorder(place.node, [EVERYTHING], log)
        recording = asyncio.create_task(recorder.run())
        place.control.tell(ready=True)
        try:
            while not recording.done():
                await asyncio.wait([recording], timeout=TELL_S)
                place.missed, place.received = recorder.missed, recorder.recorded
                place.control.tell(recorded=recorder.recorded, topics=len(recorder.topics))
                if place.received >= place.told.get("expect", 1 << 62):
                    place.control.tell(complete=place.received)
                    place.told.pop("expect")
        finally:
            recording.cancel()
            await asyncio.wait([recording])
        recording.result()
