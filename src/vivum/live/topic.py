"""Topics: typed channels that many nodes use at once."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from vivum.core.errors import UsageError
from vivum.core.ids import Member
from vivum.core.machine import Delivery
from vivum.live.catching_up import CatchingUp
from vivum.live.event import Batch, TopicEvent, TopicView
from vivum.live.guarantees import Guarantee
from vivum.live.inbox import Inbox
from vivum.live.messages import Codec
from vivum.live.reader import Batches, Events, Reader
from vivum.live.seat import VIEWS_MAX, Receiver, Seat
from vivum.wire.codec import measure

if TYPE_CHECKING:
    from vivum.live.handle import NodeHandle

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TopicStatistics:
    """What one node did in one topic; messages, unless it says otherwise."""

    sent: int
    stable: int
    """Of this life of the node: known to be at every member."""

    failed: int
    delivered: int
    """Handed over by the protocol here, own messages included."""

    queued_bytes: int
    """Wait for the reader, estimated."""

    missed: int
    """Not given to the reader: it was too slow, or they could not be had."""

    undecodable: int
    """Of another type than the topic's; passed over."""

    repeated: int
    """Of a `KEYED` topic: came again with the same key, by whichever sender; passed over."""

    view: int
    members: int


class Topic(Generic[T]):
    """A topic that this node has entered. Made by `NodeHandle.enter`; `async with` leaves it at the end."""

    def __init__(
        self,
        node: "NodeHandle",
        seat: Seat,
        codec: Codec[T],
        *,
        receive: bool,
        own: bool,
        inbox: Inbox,
        catching_up: CatchingUp | None = None,
    ) -> None:
        self._node = node
        self._seat = seat
        self._codec = codec
        self._own = own
        self._catching_up = catching_up
        self._is_left = False
        self._reader: Reader[T] = Reader(inbox, codec.decode, seat.name_of)
        self._receiver: Receiver | None = None
        seat.holders += 1
        if receive:
            self._receive_by(inbox.put)
            self._interrupt = inbox.interrupt if catching_up is None else catching_up.on_missed
            seat.interruptible.append(self._interrupt)
        self._receives = receive

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self._seat.name

    @property
    def guarantee(self) -> Guarantee:
        """What the topic promises."""
        return self._seat.guarantee

    @property
    def is_live(self) -> bool:
        """Tell whether the reader gets what comes now; before, with `replay=`, it gets back copies."""
        return self._catching_up is None or self._catching_up.is_live

    @property
    def view(self) -> TopicView | None:
        """The present view; None while the node is out of the topic for a moment."""
        return self._seat.view

    @property
    def members(self) -> tuple[Member, ...]:
        """Who is in the present view, oldest first."""
        return () if self._seat.view is None else self._seat.view.members

    @property
    def reader(self) -> Reader[T]:
        """What turns messages into events and batches; for other kinds of reading than those here."""
        self._must_receive()
        return self._reader

    async def begin_replay(self) -> None:
        """Begin with back copies, if the topic was entered so; `NodeHandle.enter` does."""
        if self._catching_up is not None:
            await self._catching_up.begin()

    # Sending.

    async def send(self, value: T) -> None:
        """Send a message. Waits while the queue is full; returns when it is accepted, not when it has arrived."""
        await self._seat.send((self._codec.encode(value),))

    def try_send(self, value: T) -> bool:
        """Send a message if the queue has room for it now; False if not."""
        return self._seat.try_send((self._codec.encode(value),))

    async def send_many(self, values: Sequence[T]) -> None:
        """Send a list of messages at once, all or none: the way to high rates.

        The list itself is used, so do not change it afterwards.
        """
        if values:
            await self._seat.send(self._encoded(values))

    def try_send_many(self, values: Sequence[T]) -> bool:
        """Send a list of messages if the queue has room for all of them now; False if not."""
        return not values or self._seat.try_send(self._encoded(values))

    def _encoded(self, values: Sequence[T]) -> Sequence[bytes]:
        if not self._codec.is_raw:
            return list(map(self._codec.encode, values))
        try:
            # The cheapest way to see that all are `bytes`: it is compiled.
            measure(values)  # type: ignore[arg-type]
        except TypeError:
            return list(map(self._codec.encode, values))
        return values  # type: ignore[return-value]

    async def flush(self) -> None:
        """Wait until all that this node sent to the topic is stable: at every member of its view, or reported.

        Raises `SendFailedError` if something sent since the last flush failed.
        """
        await self._seat.flush()

    # Receiving.

    def _receive_by(self, receiver: Receiver) -> None:
        if self._receiver is not None:
            self._seat.receivers.remove(self._receiver)
        if not self._own:
            wanted = receiver

            def receiver(delivery: Delivery) -> None:
                if delivery.sender != self._node.member:
                    wanted(delivery)

        if self._catching_up is not None:
            self._catching_up.sink = receiver
            receiver = self._catching_up.on_live
        self._receiver = receiver
        self._seat.receivers.append(receiver)

    def __aiter__(self) -> AsyncIterator[TopicEvent[T]]:
        self._must_receive()
        return Events(self._reader)

    def batches(self) -> AsyncIterator[Batch[T]]:
        """Iterate over runs of messages as they came in: nothing is done for each message."""
        self._must_receive()
        return Batches(self._reader)

    async def receive(self) -> TopicEvent[T]:
        """Wait for the next message. Raises `ClosedError` when the topic was left and all was read."""
        self._must_receive()
        event = await self._reader.next_event()
        if event is None:
            raise self._node.closed_error(f"topic {self.name} was left")
        return event

    def _must_receive(self) -> None:
        if not self._receives:
            raise UsageError(f"topic {self.name} was entered with receive=False")

    def on(self, callback: Callable[[TopicEvent[T]], None]) -> None:
        """Call back for every message from now on, also for those that wait; nothing is queued any more.

        The callback runs inside the event loop: it must be short. What it raises goes to the loop's exception handler.
        """
        reader = self._reader

        def deliver(delivery: Delivery) -> None:
            for event in reader.events_of(delivery):
                self._node.call_safely(callback, event)

        self._divert(deliver)

    def on_batch(self, callback: Callable[[Batch[T]], None]) -> None:
        """As `on`, for whole runs of messages."""
        reader = self._reader
        self._divert(lambda delivery: self._node.call_safely(callback, reader.batch_of(delivery)))

    def _divert(self, receiver: Receiver) -> None:
        self._must_receive()
        self._receive_by(receiver)
        while (waiting := self._reader.inbox.take()) is not None:
            receiver(waiting)

    async def views(self) -> AsyncIterator[TopicView]:
        """Iterate over the views of the topic: the present one first, then each change."""
        seat = self._seat
        waiting: deque[TopicView] = deque(maxlen=VIEWS_MAX)
        if seat.view is not None:
            waiting.append(seat.view)
        seat.watchers.append(waiting)
        try:
            while not self._is_left:
                while waiting:
                    yield waiting.popleft()
                await seat.wait_for_change()
        finally:
            seat.watchers.remove(waiting)

    async def wait_for_members(self, count: int) -> tuple[Member, ...]:
        """Wait until the view has at least so many members, this node included."""
        while len(self.members) < count:
            self._node.check_open()
            await self._seat.wait_for_change()
        return self.members

    # The end.

    def statistics(self) -> TopicStatistics:
        """Tell what this node did in the topic so far."""
        seat, inbox = self._seat, self._reader.inbox
        view, seen = seat.view, seat.seen
        return TopicStatistics(
            seat.sent,
            seat.stable,
            seat.failed,
            seat.delivered,
            inbox.size,
            inbox.missed,
            self._reader.undecodable + (0 if seen is None else seen.malformed),
            0 if seen is None else seen.repeated,
            0 if view is None else view.number,
            0 if view is None else len(view.members),
        )

    async def leave(self) -> None:
        """Leave the topic. What was received can still be read; what was sent is seen through by the protocol."""
        if self._is_left:
            return
        self.let_go()
        self._node.release(self._seat)
        await asyncio.sleep(0)

    def let_go(self) -> None:
        """Take no more messages, without a word to anybody."""
        if self._is_left:
            return
        self._is_left = True
        if self._catching_up is not None:
            self._catching_up.stop()
        seat = self._seat
        seat.holders -= 1
        if self._receiver is not None:
            seat.receivers.remove(self._receiver)
            self._receiver = None
        if self._receives:
            seat.interruptible.remove(self._interrupt)
        self._reader.inbox.close()
        seat.notify()
        self._node.forget(self)

    async def __aenter__(self) -> "Topic[T]":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()
