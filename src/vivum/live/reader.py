"""Wait for events or batches of an inbox, for one topic or for all topics of a pattern.

What is here is taken by a `Taker`; a reader is suspended where there is nothing, and yields where a task never had to
wait for a while.

Safe to cancel: what a cancelled read did not return, the next read returns, even in the middle of a run.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from vivum.core.machine import Delivery
from vivum.live.event import Batch, TopicEvent, TopicView
from vivum.live.inbox import Inbox
from vivum.live.messages import Codec
from vivum.live.taking import Names, Taker


class Reader:
    """The reading side of a topic. One task reads at a time."""

    __slots__ = ("_decode", "_names", "inbox", "taker")

    def __init__(self, inbox: Inbox, codec: Codec[Any], names: Names) -> None:
        self.inbox = inbox
        self.taker = Taker(inbox, codec, names)
        self._decode = codec.decode
        self._names = names

    def next_event(self) -> Coroutine[Any, Any, TopicEvent[Any] | None]:
        """Return the next message; None at the end. Views are skipped."""
        return self._next(with_views=False)

    def next_item(self) -> Coroutine[Any, Any, TopicEvent[Any] | TopicView | None]:
        """Return the next message or view, in order; None at the end."""
        return self._next(with_views=True)

    async def _next(self, with_views: bool) -> Any:
        while True:
            if self.taker.peek():
                return self.taker.take()
            if self.taker.must_yield:
                await self._give_way()
                continue
            item = self.inbox.take()
            if item is None:
                if not await self.inbox.wait():
                    return None
                self.taker.on_suspended(0)
            elif not isinstance(item, TopicView):
                self.taker.begin(item)
            elif with_views:
                return item

    async def next_batch(self) -> Batch[Any] | None:
        """Return the next run of messages; None at the end."""
        rest = self.taker.take_rest()
        if rest is not None:
            return self.batch_of(rest)
        while True:
            if self.taker.is_due():
                await self._give_way()
            item = self.inbox.take()
            if isinstance(item, Delivery):
                return self.batch_of(item)
            if item is None:
                if not await self.inbox.wait():
                    return None
                self.taker.on_suspended(0)

    async def next_batches(self, batches_max: int) -> list[Batch[Any]]:
        """Wait for messages; return all runs that are here, up to a number. Empty only at the end."""
        first = await self.next_batch()
        found = [] if first is None else [first]
        while found and len(found) < batches_max and self.inbox.has_delivery():
            found.append(self.batch_of(self.inbox.take()))
        return found

    async def next_events(self, batches_max: int) -> list[TopicEvent[Any]]:
        """Return what `next_batches` would, as single messages. Empty only at the end."""
        first = await self.next_event()
        if first is None:
            return []
        found = [first]
        rest = self.taker.take_rest()
        if rest is not None:
            found += self.taker.events_of(rest)
        for _ in range(batches_max - 1):
            if not self.inbox.has_delivery():
                break
            found += self.taker.events_of(self.inbox.take())
        return found

    async def _give_way(self) -> None:
        behind = self.inbox.size
        await asyncio.sleep(0)
        self.taker.on_suspended(behind)

    def batch_of(self, delivery: Any) -> Batch[Any]:
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


class Batches:
    """An iterator over the runs of a reader."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        batch = await self._reader.next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch
