"""The recorder: a member of a domain that writes what it is delivered to a segment log.

It enters every topic that matches, of whatever type and guarantee, and takes runs of messages as they come: no step
for each message, and nothing is decoded. Runs are held until there are `BATCH_BYTES` of them or `LINGER_NS` went by,
then a thread appends them as one batch while the next are coming in. One append runs at a time.

What it cannot have it counts and tells: messages that its node missed, and messages that came while `HELD_BYTES_MAX`
were waiting for a disk that is too slow. When the log cannot be written it stops with the reason. Who joins
with `replay=` gets back copies from it (`serving`).
"""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from vivum.core.ids import Incarnation, Member, NodeId
from vivum.core.machine import Delivery
from vivum.core.time import MILLISECOND, SECOND
from vivum.live.back_copies import OWN_TOPICS
from vivum.live.failures import MissedMessages
from vivum.live.guarantees import Guarantee
from vivum.live.handle import NodeHandle
from vivum.live.seat import Seat
from vivum.pipeline.serving import BackCopyServer
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_log import PreparedBatch, SegmentLog
from vivum.storage.topic_types import FieldDescription, TypeDescription
from vivum.wire.directory import TopicRecord

LINGER_NS = 50 * MILLISECOND
"""How long messages wait for others to share a batch with. Less makes more and smaller batches, and rows sooner."""

BATCH_BYTES = 4 * 1024 * 1024
"""A batch of so much is written at once. A larger one would keep the node from its socket while it is made."""

HELD_BYTES_MAX = 256 * 1024 * 1024
"""What may wait for the disk. Past it, messages are counted as missed: a recorder must not slow the senders down."""

TIPS_MAX = 1024
"""Senders of a topic that are remembered for joiners. Past it, the one that was silent for longest is forgotten."""

_PLAIN = {"str", "int", "float", "bool", "bytes"}
_OPTIONAL = re.compile(r"(.+?) \| None|Optional\[(.+)\]")
_LIST = re.compile(r"list\[(.+)\]")


class Recorder:
    """Records a pattern of topics from a node into a log. `run()` goes on until it is cancelled or fails."""

    wants_own = True

    def __init__(self, node: NodeHandle, patterns: Sequence[str], log: SegmentLog) -> None:
        self.tips: dict[str, dict[Member, int]] = {}
        """Of each topic and each sender: up to which message the log goes."""

        self.recorded = 0
        self.missed = 0
        self.topics: set[str] = set()
        self._node = node
        self._log = log
        self._patterns = patterns
        self._held: list[RecordedRun] = []
        self._held_bytes = 0
        self._writing_bytes = 0
        self._new: list[TopicRecord] = []
        self._seats: list[Seat] = []
        self._declared: list[tuple[str, TypeDescription]] = []
        self._appending: asyncio.Future[None] | None = None
        self._delivered_runs = 0
        self._written_runs = 0
        self._has_written = asyncio.Event()
        self._wake = asyncio.Event()
        self._has_new = asyncio.Event()

    async def run(self) -> None:
        """Record. What was delivered when this is cancelled is still written."""
        watches = [self._node.browser.watch(pattern, self._on_topics) for pattern in self._patterns]
        server = BackCopyServer(self._node, self._log.directory, self.topics, self.tips, self.settle)
        entering = asyncio.create_task(self._enter_new())
        writing = asyncio.create_task(self._write_on())
        serving = asyncio.create_task(server.run())
        try:
            done, _ = await asyncio.wait([entering, writing, serving], return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for number in watches:
                self._node.browser.unwatch(number)
            for seat in self._seats:
                seat.unlisten(self)
                seat.holders -= 1
                self._node.release(seat)
            for task in (entering, writing, serving):
                task.cancel()
            await asyncio.wait([entering, writing, serving])
            if self._appending is not None:
                # A batch that is being written is finished first; if it failed, so does the next.
                await asyncio.wait([self._appending])
            self._write((), None)
            while self._held:
                runs = self._take()
                self._write(runs, self._log.prepare(runs))

    def _on_topics(self, records: Sequence[TopicRecord]) -> None:
        self._new += records
        self._has_new.set()

    async def _enter_new(self) -> None:
        while True:
            await self._has_new.wait()
            self._has_new.clear()
            records, self._new = self._new, []
            alike: dict[tuple[str, str], list[str]] = {}
            for each in records:
                if each.name not in self.topics and not each.name.startswith(f"{OWN_TOPICS}/"):
                    self.topics.add(each.name)
                    alike.setdefault((each.schema, each.guarantee), []).append(each.name)
            for (schema, guarantee), names in alike.items():
                description = type_of_schema(schema)
                if description is not None:
                    self._declared += [(name, description) for name in names]
                seats = await self._node.take_seats(names, schema, Guarantee(guarantee))
                for seat in seats:
                    seat.holders += 1
                    seat.listen(self)
                self._seats += seats
                await self._node.join_seats(seats)

    def put(self, delivery: Delivery) -> None:
        """Keep a run of messages until it is written."""
        payloads = delivery.payloads
        size = sum(map(len, payloads))
        if self._held_bytes + self._writing_bytes + size > HELD_BYTES_MAX:
            self.missed += len(payloads)
            return
        self._held.append(
            RecordedRun(
                self._node.name_of(delivery.group),
                delivery.sender.node,
                delivery.sender.incarnation,
                delivery.first_sequence,
                delivery.view,
                delivery.sent_ns,
                time.time_ns(),
                payloads,
            )
        )
        self._delivered_runs += 1
        self._held_bytes += size
        if self._held_bytes >= BATCH_BYTES or len(self._held) == 1:
            self._wake.set()

    def interrupt(self, told: MissedMessages) -> None:
        """Count what is missing."""
        self.missed += told.count or 1

    async def _write_on(self) -> None:
        while True:
            if not self._held:
                self._wake.clear()
                try:
                    await asyncio.wait_for(self._wake.wait(), 1.0)
                except TimeoutError:
                    # Nothing comes: what is not on the disk yet goes there now.
                    await asyncio.to_thread(self._log.sync_if_due)
                    self._node.check_open()
                    continue
            if self._held_bytes < BATCH_BYTES:
                await asyncio.sleep(LINGER_NS / SECOND)
            # Made here and only written by the thread: with every step of making it, two threads would take turns, and
            # each turn may take as long as the system likes. Meanwhile the socket overflows.
            runs = self._take()
            batch = self._log.prepare(runs)
            self._appending = asyncio.ensure_future(asyncio.to_thread(self._write, runs, batch))
            await asyncio.shield(self._appending)
            self._writing_bytes = 0
            self._written_runs += len(runs)
            self._has_written.set()

    async def settle(self) -> None:
        """Wait until all that was delivered so far is in the log."""
        target = self._delivered_runs
        while self._written_runs < target:
            self._has_written.clear()
            await self._has_written.wait()

    def _take(self) -> list[RecordedRun]:
        """Take what is held, up to a batch or a run more."""
        if self._held_bytes <= BATCH_BYTES:
            runs, self._held = self._held, []
            self._writing_bytes, self._held_bytes = self._held_bytes, 0
            return runs
        sizes = accumulate(sum(map(len, run.payloads)) for run in self._held)
        count, size = next((place, size) for place, size in enumerate(sizes, 1) if size >= BATCH_BYTES)
        runs, self._held = self._held[:count], self._held[count:]
        self._writing_bytes, self._held_bytes = size, self._held_bytes - size
        return runs

    def _write(self, runs: Sequence[RecordedRun], batch: PreparedBatch | None) -> None:
        declared, self._declared = self._declared, []
        for name, description in declared:
            self._log.declare(name, description)
        if batch is not None:
            self.recorded += len(self._log.append_prepared(batch))
        for run in runs:
            tips = self.tips.setdefault(run.topic, {})
            # Told anew it comes last, so those go first that were silent for longest.
            sender = Member(NodeId(run.sender), Incarnation(run.incarnation))
            tips.pop(sender, None)
            tips[sender] = run.first_sequence + len(run.payloads)
            if len(tips) > TIPS_MAX:
                del tips[next(iter(tips))]


def type_of_schema(schema: str) -> TypeDescription | None:
    """Return the type that a topic's schema describes; None for bytes, and for fields that have no column type."""
    try:
        told = json.loads(schema)
        if not isinstance(told, list):
            return None
        name, fields = told
        described = [FieldDescription(each, _field_type(kind), not optional) for each, kind, optional in fields]
    except (ValueError, TypeError):
        return None
    return TypeDescription(name, tuple(described), array_like=True)


def schema_of_type(description: TypeDescription) -> str:
    """Return the schema of a topic whose type this is: the other way round."""
    fields = [[each.name, _field_text(each.type), not each.required] for each in description.fields]
    return json.dumps([description.name, fields], separators=(",", ":"), ensure_ascii=False)


def _field_type(text: str) -> Any:
    if text in _PLAIN:
        return text
    for pattern, kind in ((_OPTIONAL, "optional"), (_LIST, "list")):
        match = pattern.fullmatch(text)
        if match is not None:
            return {kind: _field_type(next(filter(None, match.groups())))}
    raise ValueError(f"{text} has no column type")


def _field_text(described: Any) -> str:
    if isinstance(described, str):
        return described
    ((kind, inner),) = described.items()
    return f"list[{_field_text(inner)}]" if kind == "list" else f"{_field_text(inner)} | None"
