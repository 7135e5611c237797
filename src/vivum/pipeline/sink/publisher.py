"""Publishes sealed batches through a node of its own, on the driver.

Spark calls `commit` in a Python process beside the driver, and uses the same one again for the next batch. The node
stays there in between, since joining a domain costs more than publishing a small batch, and leaves after a while
without work, or when Spark ends the process. If the process is killed the others notice by the silence. The node never
carries the domain's service: it comes and goes with its query.
"""

import asyncio
import atexit
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NoReturn

import pyarrow

from vivum.core.errors import HostError, VivumError
from vivum.guarantees import KEYED
from vivum.live.connecting import connect
from vivum.live.failures import SendFailedError
from vivum.live.handle import NodeHandle
from vivum.live.seat import Seat
from vivum.pipeline.sink.options import Link
from vivum.pipeline.sink.staging import SinkFolder, SinkState
from vivum.protocols.keyed.keys import heads_of
from vivum.runtime.loop_thread import LoopThread

SEND_BYTES = 256 * 1024
"""Approximate size of the runs in which messages are handed over: less than a node's queue, so that one always fits."""

ATTEMPTS_MAX = 3
"""How often a batch is sent before its failure is reported. Each is the whole batch again, under the same keys."""

_kept: dict[Link, "Publisher"] = {}
_guard = threading.Lock()


def publish(link: Link, folder: SinkFolder, query: bytes, state: SinkState, *, keep: bool) -> None:
    """Publish a sealed batch; returns when it is stable at all members of its topics. `keep`: more will follow."""
    if keep:
        _watch_ending()
    with _guard:
        publisher = _kept.get(link)
        if publisher is None:
            publisher = _kept[link] = Publisher(link)
    try:
        publisher.publish(folder, query, state)
    except BaseException:
        keep = False
        raise
    finally:
        if not keep:
            with _guard:
                _kept.pop(link, None)
            publisher.close()


@cache
def _watch_ending() -> None:
    """Let nodes say goodbye when this process ends, as far as it is asked to end and not killed. Does so once.

    A worker of Spark is a process that was forked from a daemon. At its end it calls `os._exit`, which runs no exit
    handlers; and when Spark stops, the daemon kills its process group. Neither leaves time for a goodbye, so the worker
    that has a node leaves the group, in which case the end of its socket ends it, and closes its nodes in `os._exit`.
    """
    atexit.register(_close_kept)
    main = sys.modules["__main__"]
    if getattr(getattr(main, "__spec__", None), "name", "") != "pyspark.daemon":
        return
    leave_now = os._exit

    def close_and_exit(status: int) -> NoReturn:
        try:
            _close_kept()
        finally:
            leave_now(status)

    os.setpgid(0, 0)
    os._exit = close_and_exit


def _close_kept() -> None:
    with _guard:
        publishers = list(_kept.values())
        _kept.clear()
    for each in publishers:
        each.close()


class Publisher:
    """A node that publishes what one kind of query brings, on an event loop in a thread."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._thread = LoopThread("vivum-sink")
        self._node: NodeHandle | None = None
        self._seats: dict[str, Seat] = {}
        self._leaving: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def publish(self, folder: SinkFolder, query: bytes, state: SinkState) -> None:
        """Publish a sealed batch."""
        self._thread.call(lambda: self._publish(folder, query, state))

    def close(self) -> None:
        """Leave the domain."""
        with suppress(VivumError, TimeoutError):
            self._thread.call(self._leave, 5.0)
        self._thread.stop()

    async def _publish(self, folder: SinkFolder, query: bytes, state: SinkState) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        for attempt in range(1, ATTEMPTS_MAX + 1):
            node = await self._joined()
            life = node.member
            try:
                await self._enter(node, list(state.topics))
                await self._send_all(folder, query, state)
                if node.member != life:
                    raise SendFailedError(f"the sink's node lost its place in domain {self._link.domain!r}")
                break
            except SendFailedError:
                if attempt == ATTEMPTS_MAX:
                    raise
        loop = asyncio.get_running_loop()
        self._leaving = loop.call_later(self._link.linger_s, self._start_leaving)

    async def _joined(self) -> NodeHandle:
        if self._node is None:
            link = self._link
            self._node = await connect(
                link.domain,
                interface=link.interface,
                seeds=link.seeds,
                multicast=False if link.unicast else "probe",
                embedded=False,
                timeout_s=link.timeout_s,
                trace=link.trace,
            )
        return self._node

    async def _enter(self, node: NodeHandle, topics: Sequence[str]) -> None:
        """Enter the topics of a batch. If one has another type, nothing is sent to any."""
        new = [topic for topic in topics if topic not in self._seats]
        seats = await node.take_seats(new, self._link.schema, KEYED, lambda _: None)
        self._seats |= {seat.name: seat for seat in seats}
        for topic in topics:
            await self._wait_for_members(self._seats[topic])

    async def _wait_for_members(self, seat: Seat) -> None:
        wanted = self._link.wait_for_members
        try:
            async with asyncio.timeout(self._link.timeout_s):
                while _others(seat) < wanted:
                    await seat.wait_for_change()
        except TimeoutError:
            raise HostError(
                f"topic {seat.name} has {_others(seat)} other members after {self._link.timeout_s:g} s, and "
                f"waitForMembers is {wanted}; start them, or wait for fewer"
            ) from None

    async def _send_all(self, folder: SinkFolder, query: bytes, state: SinkState) -> None:
        positions = dict.fromkeys(state.topics, 0) | state.begins
        for file in state.files:
            for batch in folder.read_staged(file):
                for topic, payloads in _by_topic(batch):
                    for run in _runs(payloads):
                        heads = heads_of(query, state.batch, positions[topic], len(run))
                        await self._seats[topic].send(run, heads=heads)
                        positions[topic] += len(run)
        for topic in state.topics:
            await self._seats[topic].flush()

    def _start_leaving(self) -> None:
        task = asyncio.get_running_loop().create_task(self._leave())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _leave(self) -> None:
        node, self._node = self._node, None
        self._seats = {}
        if node is not None:
            await node.close()


def _others(seat: Seat) -> int:
    return 0 if seat.view is None else len(seat.view.members) - 1


def _by_topic(batch: Any) -> Iterator[tuple[str, list[bytes]]]:
    """Split a batch by topic; the messages of each keep their order."""
    topics, payloads = batch.column("topic"), batch.column("payload")
    there = topics.unique().to_pylist()
    for topic in there:
        mine = payloads if len(there) == 1 else payloads.filter(pyarrow.compute.equal(topics, topic))
        yield topic, mine.to_pylist()


def _runs(payloads: list[bytes]) -> Iterator[list[bytes]]:
    begin = size = 0
    for place, payload in enumerate(payloads):
        if size and size + len(payload) > SEND_BYTES:
            yield payloads[begin:place]
            begin, size = place, 0
        size += len(payload)
    if begin < len(payloads):
        yield payloads[begin:]
