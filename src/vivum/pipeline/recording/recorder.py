"""The recorder: a member of a domain that writes what it is delivered to a segment log.

It enters every topic that matches, of whatever type and guarantee, and takes runs of messages as they come: no step
for each message, nothing is decoded, and where frames have messages of one topic these are not even cut (`PackedRun`).
Threads write them (`log_writer`) while the next are coming in.

What it cannot have it counts, and tells in the log itself (`vivum.storage.gaps`): what its node missed, what came while
too much was waiting for a disk that is too slow, since a recorder must not slow the senders down, and what was sent
while nobody recorded (`lives`). When the log cannot be written it stops with the reason. Who joins with `replay=` gets
back copies from it (`serving`).
"""

import asyncio
import time
from collections.abc import Sequence

from vivum.core.ids import Incarnation, Member, NodeId
from vivum.core.machine import Delivery
from vivum.core.topic_names import OWN_TOPICS
from vivum.guarantees import guarantee_of
from vivum.live.event import TopicView
from vivum.live.failures import MissedMessages
from vivum.live.handle import NodeHandle
from vivum.live.seat import Seat
from vivum.pipeline.recording.log_writer import HELD_BYTES_MAX, LogWriter
from vivum.pipeline.recording.missing import Missing
from vivum.pipeline.recording.serving import BackCopyServer
from vivum.storage.gaps import GAPS_TOPIC, Gap, gap_run
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_log import SegmentLog, TopicDeclaration
from vivum.storage.tips import TIPS_MAX
from vivum.wire.directory import TopicRecord
from vivum.wire.schema import read_schema

LOOK_S = 1.0
"""How often a recorder looks whether its node is still open."""


class TopicListener:
    """Takes what is delivered in one topic."""

    __slots__ = ("_recorder", "topic")

    wants_own = True
    wants_packed = True

    def __init__(self, recorder: "Recorder", topic: str) -> None:
        self._recorder = recorder
        self.topic = topic

    def put(self, delivery: Delivery) -> None:
        """Keep a run of messages until it is written."""
        self._recorder.put(self.topic, delivery)

    def on_view(self, view: TopicView) -> None:
        """Pass over: a log has messages."""

    def interrupt(self, told: MissedMessages) -> None:
        """Count what is missing."""
        self._recorder.interrupt(self.topic, told)


class Recorder:
    """Records a pattern of topics from a node into a log. `run()` goes on until it is cancelled or fails."""

    def __init__(
        self, node: NodeHandle, patterns: Sequence[str], log: SegmentLog, held_bytes_max: int = HELD_BYTES_MAX
    ) -> None:
        self.tips: dict[str, dict[Member, int]] = {}
        """Of each topic and each sender: up to which message the log goes."""

        self.recorded = 0
        self.topics: set[str] = set()
        self._node = node
        self._log = log
        self._patterns = patterns
        self._writer = LogWriter(log, self._on_written, held_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._new: list[TopicRecord] = []
        self._seats: list[tuple[Seat, TopicListener]] = []
        self._missing = Missing(log.tips, log.delivered_ns)
        self._has_gaps = False
        self._delivered_runs = 0
        self._written_runs = 0
        self._has_written = asyncio.Event()
        self._has_new = asyncio.Event()

    async def run(self) -> None:
        """Record. What was delivered when this is cancelled is still written."""
        watches = [self._node.browser.watch(pattern, self._on_topics) for pattern in self._patterns]
        server = BackCopyServer(self._node, self._log.directory, self.topics, self.tips, self.settle)
        entering = asyncio.create_task(self._enter_new())
        serving = asyncio.create_task(server.run())
        writing = asyncio.create_task(asyncio.to_thread(self._writer.run))
        tasks = [entering, serving, writing]
        self._missing.begin(time.time_ns())
        self._tell_gaps()
        try:
            while not (done := (await asyncio.wait(tasks, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED))[0]):
                self._node.check_open()
            for each in done:
                each.result()
        finally:
            for number in watches:
                self._node.browser.unwatch(number)
            for seat, listener in self._seats:
                self._node.give_back(seat, listener)
            entering.cancel()
            serving.cancel()
            self._tell_gaps()
            self._writer.stop()
            await asyncio.wait(tasks)
            # What a log could not take is missing in it.
            self._missing.count += self._writer.unwritten
            writing.result()

    @property
    def missed(self) -> int:
        """Messages that are not in the log, of those that were sent while this recorder was at work."""
        return self._missing.count

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
                description, entry = read_schema(schema), guarantee_of(guarantee)
                if entry.is_headed:
                    self._missing.headed.update(names)
                self._writer.declare(
                    [TopicDeclaration(name, description, entry.name, entry.is_headed) for name in names]
                )
                listeners = {name: TopicListener(self, name) for name in names}

                def listen(seat: Seat, known: dict[str, TopicListener] = listeners) -> TopicListener:
                    return known[seat.name]

                seats = await self._node.take_seats(names, schema, entry, listen)
                self._seats += [(seat, listeners[seat.name]) for seat in seats]

    def put(self, topic: str, delivery: Delivery) -> None:
        """Keep a run of messages until it is written. One with numbers that no log can have is missed."""
        payloads = delivery.payloads
        if delivery.heads:
            payloads = [head + payload for head, payload in zip(delivery.heads, payloads, strict=True)]
        now_ns = time.time_ns()
        sender, first = delivery.sender, delivery.first_sequence
        run = RecordedRun(
            topic, sender.node, sender.incarnation, first, delivery.view, delivery.sent_ns, now_ns, payloads
        )
        if not run.fits:
            self._missing.leave_out(len(payloads))
            return
        self._missing.look(topic, sender, first, first + len(payloads), now_ns)
        if not self._writer.put(run):
            self._missing.refuse(topic, sender, first, first + len(payloads), now_ns)
            return
        self._delivered_runs += 1
        if self._missing.gaps:
            self._tell_gaps()

    def _tell_gaps(self) -> None:
        """Write down what is missing, now that there is room for it."""
        gaps = self._missing.take()
        if gaps and not self._has_gaps:
            self._has_gaps = True
            self._writer.declare([TopicDeclaration(GAPS_TOPIC, Gap)])
        now_ns = time.time_ns()
        for each in gaps:
            self._writer.put(gap_run(each, now_ns), must=True)
            self._delivered_runs += 1

    def interrupt(self, topic: str, told: MissedMessages) -> None:
        """Count what is missing; as one where nobody knows how much, until the next message tells by its number."""
        self._missing.interrupt(topic, told, time.time_ns())
        self._tell_gaps()

    async def settle(self) -> None:
        """Wait until all that was delivered so far is in the log."""
        target = self._delivered_runs
        while self._written_runs < target:
            self._has_written.clear()
            await self._has_written.wait()

    def _on_written(self, runs: Sequence[RecordedRun]) -> None:
        """Let the loop know, from the thread that wrote."""
        self._loop.call_soon_threadsafe(self._note, runs)

    def _note(self, runs: Sequence[RecordedRun]) -> None:
        for run in runs:
            if run.topic == GAPS_TOPIC:
                continue
            self.recorded += len(run.payloads)
            tips = self.tips.setdefault(run.topic, {})
            # Told anew it comes last, so those go first that were silent for longest.
            sender = Member(NodeId(run.sender), Incarnation(run.incarnation))
            tips.pop(sender, None)
            tips[sender] = run.first_sequence + len(run.payloads)
            if len(tips) > TIPS_MAX:
                del tips[next(iter(tips))]
        self._written_runs += len(runs)
        self._has_written.set()
