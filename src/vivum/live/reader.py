"""Turn the contents of an inbox into events or batches, for one topic or for all topics of a pattern.

Safe to cancel: what a cancelled read did not return, the next read returns, even in the middle of a run.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Generic, Protocol, TypeVar

import msgspec

from vivum.core.ids import GroupId
from vivum.core.machine import Delivery
from vivum.live.event import Batch, TopicEvent, TopicView
from vivum.live.inbox import Inbox

T = TypeVar("T")


class Names(Protocol):
    """Returns a topic's name by its group. A seat knows only its own, a node knows all."""

    def name_of(self, group: GroupId) -> str:
        """Return the name of the topic of a group."""


class Reader(Generic[T]):
    """The reading side of a topic. One task reads at a time."""

    __slots__ = ("_decode", "_delivery", "_index", "_names", "inbox", "undecodable")

    def __init__(self, inbox: Inbox, decode: Callable[[bytes], T], names: Names) -> None:
        self.inbox = inbox
        self.undecodable = 0
        self._decode = decode
        self._names = names
        self._delivery: Delivery | None = None
        self._index = 0

    async def next_event(self) -> TopicEvent[T] | None:
        """Return the next message; None at the end. Views are skipped."""
        while True:
            item = await self.next_item()
            if not isinstance(item, TopicView):
                return item

    async def next_item(self) -> TopicEvent[T] | TopicView | None:
        """Return the next message or view, in order; None at the end."""
        while True:
            delivery, index = self._delivery, self._index
            if delivery is not None and index < len(delivery.payloads):
                self._index = index + 1
                event = self._event(delivery, index)
                if event is not None:
                    return event
                continue
            self._delivery = None
            item = self.inbox.take()
            if isinstance(item, TopicView):
                return item
            if item is not None:
                self._delivery, self._index = item, 0
            elif not await self.inbox.wait():
                return None

    async def next_batch(self) -> Batch[T] | None:
        """Return the next run of messages; None at the end."""
        rest = self.take_rest()
        if rest is not None:
            return self.batch_of(rest)
        while True:
            item = self.inbox.take()
            if isinstance(item, Delivery):
                return self.batch_of(item)
            if item is None and not await self.inbox.wait():
                return None

    async def next_batches(self, batches_max: int) -> list[Batch[T]]:
        """Wait for messages; return all runs that are here, up to a number. Empty only at the end."""
        first = await self.next_batch()
        found = [] if first is None else [first]
        while found and len(found) < batches_max and self.inbox.has_delivery:
            delivery = self.inbox.take()
            assert isinstance(delivery, Delivery)
            found.append(self.batch_of(delivery))
        return found

    async def next_events(self, batches_max: int) -> list[TopicEvent[T]]:
        """Return what `next_batches` would, as single messages. Empty only at the end."""
        first = await self.next_event()
        if first is None:
            return []
        found = [first]
        delivery, start, self._delivery = self._delivery, self._index, None
        for _ in range(batches_max):
            if delivery is not None:
                made = (self._event(delivery, index) for index in range(start, len(delivery.payloads)))
                found += [event for event in made if event is not None]
            if not self.inbox.has_delivery:
                break
            item, start = self.inbox.take(), 0
            assert isinstance(item, Delivery)
            delivery = item
        else:
            self._delivery, self._index = delivery, start
        return found

    def _event(self, delivery: Delivery, index: int) -> TopicEvent[T] | None:
        try:
            value = self._decode(delivery.payloads[index])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # A peer must not raise into an application: count it, and skip the message.
            self.undecodable += 1
            return None
        return TopicEvent(
            self._names.name_of(delivery.group),
            value,
            delivery.sender,
            delivery.first_sequence + index,
            delivery.view,
            delivery.sent_ns,
        )

    def take_rest(self) -> Delivery | None:
        """Return the rest of a run whose first messages were read one by one."""
        delivery, index = self._delivery, self._index
        self._delivery = None
        if delivery is None or index == len(delivery.payloads):
            return None
        first = delivery.first_sequence + index
        return msgspec.structs.replace(delivery, first_sequence=first, payloads=delivery.payloads[index:])

    def events_of(self, delivery: Delivery) -> list[TopicEvent[T]]:
        """Make the events of a run of messages."""
        made = (self._event(delivery, index) for index in range(len(delivery.payloads)))
        return [event for event in made if event is not None]

    def batch_of(self, delivery: Delivery) -> Batch[T]:
        """Make the batch of a run of messages."""
        return Batch(
            self._names.name_of(delivery.group),
            delivery.payloads,
            delivery.sender,
            delivery.first_sequence,
            delivery.view,
            delivery.sent_ns,
            self._decode,
        )


class Items(Generic[T]):
    """Iterates over what a reader's method returns until it returns None."""

    __slots__ = ("_next",)

    def __init__(self, next_one: Callable[[], Coroutine[None, None, T | None]]) -> None:
        self._next = next_one

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        item = await self._next()
        if item is None:
            raise StopAsyncIteration
        return item
