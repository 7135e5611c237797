"""Subscriptions: receive from all topics that match a pattern, including those that appear later."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from vivum.core.errors import VivumError
from vivum.core.ids import GroupId
from vivum.core.topic_names import OWN_TOPICS
from vivum.guarantees import GUARANTEES, Guarantee, guarantee_of
from vivum.live.event import Batch, TopicEvent
from vivum.live.failures import ClosedError, TypeMismatch
from vivum.live.inbox import Inbox
from vivum.live.messages import Codec, check_types
from vivum.live.reader import Batches, Reader
from vivum.live.seat import Seat
from vivum.live.taking import Events
from vivum.wire.directory import TopicRecord
from vivum.wire.schema import BYTES_SCHEMA

if TYPE_CHECKING:
    from vivum.live.handle import NodeHandle

T = TypeVar("T")


class Subscription(Generic[T]):
    """Receives from many topics. Made by `NodeHandle.subscribe`; begins with `async with`, and ends with it."""

    def __init__(
        self, node: "NodeHandle", pattern: str, codec: Codec[T], guarantee: Guarantee | None, inbox: Inbox
    ) -> None:
        """Prepare. `guarantee` is None for topics of every type and guarantee; then the codec is that of bytes."""
        self.pattern = pattern
        self.passed_over: dict[str, str] = {}
        """Matching topics that were not entered, and why."""

        self._node = node
        self._codec = codec
        self._guarantee = guarantee
        self._inbox = inbox
        self._reader: Reader = Reader(inbox, codec, self)
        self._seats: dict[str, Seat] = {}
        self._schemas: dict[str, str] = {}
        # Names of topics that were left, for messages of theirs that can still be read.
        self._left: dict[GroupId, str] = {}
        self._watch: int | None = None
        self._new: list[TopicRecord] = []
        self._has_new = asyncio.Event()
        self._has_entered = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def reader(self) -> Reader:
        """The reader that makes events and batches, for other ways of reading than those here."""
        return self._reader

    def name_of(self, group: GroupId) -> str:
        """Return the name of the topic of a group, also when the node has left it."""
        return self._left.get(group) or self._node.name_of(group)

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the entered topics."""
        return tuple(self._seats)

    async def __aenter__(self) -> "Subscription[T]":
        self._node.check_open()
        self._watch = self._node.browser.watch(self.pattern, self._on_topics)
        self._task = asyncio.get_running_loop().create_task(self._enter_new())
        return self

    def _on_topics(self, records: Sequence[TopicRecord]) -> None:
        self._new += records
        self._has_new.set()

    async def _enter_new(self) -> None:
        while not self._is_closed:
            await self._has_new.wait()
            self._has_new.clear()
            records, self._new = self._new, []
            # Each once: a directory that took over lists all topics again, including those that already wait here.
            named = {each.name: each for each in records}
            fitting = [name for name, each in named.items() if name not in self._seats and self._fits(each)]
            if not fitting:
                continue
            alike: dict[tuple[str, Guarantee], list[str]] = {}
            for name in fitting:
                if self._guarantee is None:
                    kind = named[name].schema, guarantee_of(named[name].guarantee)
                else:
                    kind = self._codec.schema, self._guarantee
                alike.setdefault(kind, []).append(name)
            for (schema, guarantee), names in alike.items():
                # Before messages can come: a reader may want to know the type of the first.
                self._schemas |= dict.fromkeys(names, schema)
                try:
                    seats = await self._node.take_seats(names, schema, guarantee, lambda _: self._inbox)
                    self._seats |= {seat.name: seat for seat in seats}
                except ClosedError:
                    return
                except VivumError as error:
                    self.passed_over |= dict.fromkeys(names, str(error))
                self._has_entered.set()

    def _fits(self, record: TopicRecord) -> bool:
        if self._guarantee is None:
            return self._takes_any(record)
        try:
            if record.guarantee != self._guarantee.name:
                raise TypeMismatch(f"topic {record.name} has the guarantee {record.guarantee!r}")
            check_types(record.name, self._codec.schema, record.schema)
        except TypeMismatch as error:
            self.passed_over[record.name] = str(error)
            return False
        return True

    def _takes_any(self, record: TopicRecord) -> bool:
        if record.guarantee not in GUARANTEES:
            self.passed_over[record.name] = f"topic {record.name} has the unknown guarantee {record.guarantee!r}"
            return False
        # Lines of Vivum's own, such as those of recorders, only for those who ask for them.
        return not record.name.startswith(f"{OWN_TOPICS}/") or self.pattern.startswith(f"{OWN_TOPICS}/")

    def schema_of(self, topic: str) -> str:
        """Return the description of a topic's type; that of bytes for a topic which was never entered."""
        return self._schemas.get(topic, BYTES_SCHEMA)

    async def wait_for_topics(self, count: int) -> tuple[str, ...]:
        """Wait until at least `count` topics are entered; return their names."""
        while True:
            self._node.check_open()
            if self._is_closed:
                raise self._node.closed_error(f"the subscription to {self.pattern} was closed")
            entered = [seat for seat in self._seats.values() if seat.fault is None]
            outside = next((seat for seat in entered if seat.view is None), None)
            if len(self._seats) < count:
                self._has_entered.clear()
                await self._has_entered.wait()
            elif outside is not None:
                # The node lost its life and enters again.
                await outside.wait_for_change()
            else:
                return self.topics

    def __aiter__(self) -> AsyncIterator[TopicEvent[T]]:
        return Events(self._reader.taker, self._reader.next_event)

    def batches(self) -> AsyncIterator[Batch[T]]:
        """Iterate over runs of messages as they arrived, each of one topic and one sender."""
        return Batches(self._reader)

    def let_go(self) -> None:
        """Give all seats back."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        self._left = {seat.group: seat.name for seat in self._seats.values()}
        for seat in self._seats.values():
            self._node.give_back(seat, self._inbox)
            seat.notify()
        self._inbox.close()
        self._has_entered.set()
        self._node.forget(self)

    async def close(self) -> None:
        """Leave the topics of the pattern. What was received can still be read."""
        if self._is_closed:
            return
        if self._watch is not None:
            self._node.browser.unwatch(self._watch)
        self.let_go()
        if self._task is not None:
            await asyncio.wait([self._task])

    def disown(self) -> None:
        """End reading in a forked child; what was received can still be read."""
        self._is_closed = self._inbox.closed = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
