"""Replay: publishes a log again, at its own pace, faster, or as fast as the topics take it."""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any

from vivum.core.time import SECOND
from vivum.core.topic_names import OWN_TOPICS, TopicPatterns
from vivum.guarantees import DEFAULT, guarantee_of
from vivum.live.handle import NodeHandle
from vivum.live.seat import Seat
from vivum.storage.segment_reader import LogReader
from vivum.storage.topic_types import TopicTypes
from vivum.wire.schema import BYTES_SCHEMA, write_schema


async def replay(
    node: NodeHandle,
    log: LogReader,
    topics: TopicPatterns,
    *,
    speed: float | None = 1.0,
    wait_for: int = 0,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Send every message of these topics again, in the log's order; return how many. `speed` None: without pauses.

    The sender and the numbers are new: this node's. Topics promise what they did when they were recorded (the
    default, where the log does not tell). Messages of keyed topics have the keys that they had: who had one does not
    see it again. Waits for `wait_for` other members of each.
    """
    types = TopicTypes.read(log.directory)
    seats: dict[str, Seat] = {}
    for name in topics.chosen(types.types):
        if name.startswith(f"{OWN_TOPICS}/"):
            continue  # What the recorder says of itself was never sent.
        description = types.types[name]
        schema = BYTES_SCHEMA if description is None else write_schema(description)
        guarantee = guarantee_of(types.guarantees.get(name, DEFAULT.name))
        (seats[name],) = await node.take_seats([name], schema, guarantee, lambda _: None)
    try:
        while any(len(seat.view.members) <= wait_for for seat in seats.values() if seat.view is not None):
            await asyncio.sleep(0.02)
        return await _send_all(log, seats, types.headed, speed, progress)
    finally:
        for seat in seats.values():
            node.give_back(seat, None)


async def _send_all(
    log: LogReader,
    seats: dict[str, Seat],
    headed: Collection[str],
    speed: float | None,
    progress: Callable[[int], None] | None,
) -> int:
    sent = 0
    first_ns: int | None = None
    began_ns = time.monotonic_ns()
    for batch in log.batches(log.first_offset(), log.stop_offset()):
        for name, delivered_ns, payloads in _runs(batch):
            if name not in seats:
                continue
            first_ns = delivered_ns if first_ns is None else first_ns
            if speed is not None:
                ahead_ns = (delivered_ns - first_ns) / speed - (time.monotonic_ns() - began_ns)
                if ahead_ns > 0:
                    await asyncio.sleep(ahead_ns / SECOND)
            seat = seats[name]
            await (seat.send_headed(payloads) if name in headed else seat.send(payloads))
            sent += len(payloads)
        if progress is not None:
            progress(sent)
    for seat in seats.values():
        await seat.flush()
    return sent


def _runs(batch: Any) -> list[tuple[str, int, list[bytes]]]:
    """Cut a batch where topic or time of delivery change."""
    names, times = batch.column("topic").to_pylist(), batch.column("delivered_ns").to_pylist()
    payloads = batch.column("payload").to_pylist()
    runs: list[tuple[str, int, list[bytes]]] = []
    begin = 0
    for place in range(1, len(names) + 1):
        if place == len(names) or names[place] != names[begin] or times[place] != times[begin]:
            runs.append((names[begin], times[begin], payloads[begin:place]))
            begin = place
    return runs
