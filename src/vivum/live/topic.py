"""Topics: typed channels that many nodes use at once."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from vivum.core.errors import UsageError
from vivum.core.ids import Member
from vivum.core.machine import Delivery
from vivum.guarantees import Guarantee
from vivum.live.event import Batch, TopicEvent, TopicView
from vivum.live.failures import ClosedError, MissedMessages
from vivum.live.inbox import Inbox
from vivum.live.messages import Codec
from vivum.live.reader import Batches, Reader
from vivum.live.replay.catching_up import CatchingUp
from vivum.live.seat import VIEWS_MAX, Listener, Seat
from vivum.live.taking import Events
from vivum.wire.codec import measure

if TYPE_CHECKING:
    from vivum.live.handle import NodeHandle

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TopicStatistics:
    """What one node has done in one topic, counted in messages unless a field says otherwise."""

    sent: int
    stable: int
    """Confirmed in this life of the node: every member has them."""

    failed: int
    delivered: int
    """Handed over by this node's protocol, own messages included."""

    queued_bytes: int
    """Estimated bytes that wait for the reader."""

    missed: int
    """Not given to the reader: it was too slow, or the messages could not be recovered."""

    undecodable: int
    """Not of the topic's type; skipped."""

    repeated: int
    """In a `KEYED` topic: repetitions of a key, from any sender; skipped."""

    view: int
    members: int


class _Callback:
    """A listener that calls back for deliveries and for missing messages."""

    wants_packed = False
    __slots__ = ("interrupt", "put", "wants_own")

    def __init__(
        self, deliver: Callable[[Delivery], None], missed: Callable[[MissedMessages], None], wants_own: bool
    ) -> None:
        self.put = deliver
        self.interrupt = missed
        self.wants_own = wants_own

    def on_view(self, view: TopicView) -> None:
        """Ignore views: callbacks get messages, and `Topic.views` has the views."""


class Topic(Generic[T]):
    """A topic that this node has entered. Made by `NodeHandle.enter`; `async with` leaves it at the end."""

    __slots__ = (
        "__weakref__",
        "_catching_up",
        "_codec",
        "_encode",
        "_is_left",
        "_node",
        "_reader",
        "_receives",
        "_seat",
        "listener",
    )

    def __init__(
        self,
        node: "NodeHandle",
        seat: Seat,
        codec: Codec[T],
        *,
        receive: bool,
        inbox: Inbox,
        catching_up: CatchingUp | None = None,
    ) -> None:
        self._node = node
        self._seat = seat
        self._codec = codec
        self._encode = codec.encode
        self._catching_up = catching_up
        self._is_left = False
        self._reader: Reader = Reader(inbox, codec, seat)
        self.listener: Listener | None = (catching_up or inbox) if receive else None
        """The listener at the seat; None if the topic only sends."""

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
        """Whether the reader gets the live stream; with `replay=` it gets back copies before that."""
        return self._catching_up is None or self._catching_up.is_live

    @property
    def view(self) -> TopicView | None:
        """The present view; None while the node is out of the topic."""
        return self._seat.view

    @property
    def members(self) -> tuple[Member, ...]:
        """The members of the present view, oldest first."""
        # Read once: `vivum.sync` asks from other threads.
        view = self._seat.view
        return () if view is None else view.members

    @property
    def reader(self) -> Reader:
        """The reader that makes events and batches, for other ways of reading than those here."""
        self._must_receive()
        return self._reader

    async def begin_replay(self) -> None:
        """Begin with back copies, if the topic was entered with `replay=`; `NodeHandle.enter` calls it."""
        if self._catching_up is not None:
            await self._catching_up.begin()

    # Sending.

    def send(self, value: T) -> Coroutine[Any, Any, None]:
        """Send a message: `await topic.send(value)`. Waits while the queue is full; done when it is accepted.

        It is accepted before `send` returns if there is room; then nothing is left to wait for, and `await` goes on at
        once. A task that only sends still yields to others every few milliseconds. Errors are raised by `await`.

        All sends that are done return one object. Where they must be told apart, as in `asyncio.as_completed`, which
        takes equal ones as one, make tasks of them.
        """
        try:
            return self._seat.send_one(self._encode(value))
        except Exception as error:
            return _refuse(error)

    def try_send(self, value: T) -> bool:
        """Send a message if the queue has room now; return whether it was sent."""
        return self._seat.try_send_one(self._encode(value))

    async def send_many(self, values: Sequence[T]) -> None:
        """Send a list of messages, all or none: `await topic.send_many([a, b, c])`. For high rates.

        The list itself is kept, so do not change it afterwards.
        """
        if values or _is_no_list(values):
            await self._seat.send(*self._encoded(values))

    def try_send_many(self, values: Sequence[T]) -> bool:
        """Send a list of messages if the queue has room for all now; return whether they were sent."""
        return not (values or _is_no_list(values)) or self._seat.try_send(*self._encoded(values))

    def _encoded(self, values: Sequence[T]) -> tuple[Sequence[bytes], tuple[int, int] | None]:
        """Encode values; return the messages, and their sizes if known."""
        if self._codec.is_raw:
            try:
                # `measure` is compiled: the cheapest check that all are `bytes`.
                return values, measure(values)  # type: ignore[arg-type, return-value]
            except TypeError:
                # Not `bytes`, or not in a list: encode one by one below.
                pass
        if _is_no_list(values):
            raise UsageError(f"topic {self.name} takes a list of messages, not {values!r}")
        return list(map(self._codec.encode, values)), None

    async def flush(self) -> None:
        """Wait until all that this node sent to the topic is confirmed or reported as failed.

        Raises `SendFailedError` if something sent since the last flush failed.
        """
        await self._seat.flush()

    # Receiving.

    def _listen_by(self, listener: Listener) -> None:
        if self._catching_up is not None:
            # Catching up stands between the seat and the listener.
            self._catching_up.sink = listener
            return
        if self.listener is not None:
            self._seat.unlisten(self.listener)
        self.listener = listener
        self._seat.listen(listener)

    def __aiter__(self) -> AsyncIterator[TopicEvent[T]]:
        self._must_receive()
        return Events(self._reader.taker, self._reader.next_event)

    def with_views(self) -> AsyncIterator[TopicEvent[T] | TopicView]:
        """Iterate over messages and views in the order in which this node delivers them.

            async for item in topic.with_views():
                if isinstance(item, vivum.TopicView):
                    print("members", item.members, "left", item.left)

        The first call begins with the present view, a later one goes on where the reader is. No message comes before
        the view in which it was sent. With `RELIABLE` a late message of an older view may come after a newer view: look
        at `TopicEvent.view`.
        """
        self._must_receive()
        reader = self._reader
        if not reader.inbox.wants_views:
            reader.inbox.begin_views(self._seat.view, reader.taker.take_rest())
        return Events(reader.taker, reader.next_item)

    def batches(self) -> AsyncIterator[Batch[T]]:
        """Iterate over runs of messages as they arrived, without work for each message."""
        self._must_receive()
        return Batches(self._reader)

    async def receive(self) -> TopicEvent[T]:
        """Wait for the next message. Raises `ClosedError` when the topic was left and all was read."""
        self._must_receive()
        reader = self._reader
        event: TopicEvent[T] | None = reader.taker.take() if reader.taker.peek() else await reader.next_event()
        if event is None:
            raise self._left_error()
        return event

    def _left_error(self) -> ClosedError:
        return self._node.closed_error(f"topic {self.name} was left")

    def _must_receive(self) -> None:
        if not self._receives:
            raise UsageError(f"topic {self.name} was entered with receive=False")

    def on(
        self, callback: Callable[[TopicEvent[T]], None], missed: Callable[[MissedMessages], None] | None = None
    ) -> None:
        """Call back for every message, including those that wait already. From now on nothing is queued.

        `missed` is called where messages are missing; without it what `on_missed=` of `enter` says is done, or the
        loop's exception handler is called, as it is for what a callback raises. Callbacks run inside the event loop:
        they must be short.
        """
        reader = self._reader

        def deliver(delivery: Delivery) -> None:
            for event in reader.taker.events_of(delivery):
                self._node.call_safely(callback, event)

        self._divert(deliver, missed)

    def on_batch(
        self, callback: Callable[[Batch[T]], None], missed: Callable[[MissedMessages], None] | None = None
    ) -> None:
        """Call back for every run of messages; otherwise like `on`."""
        node, reader = self._node, self._reader
        self._divert(lambda delivery: node.call_safely(callback, reader.batch_of(delivery)), missed)

    def _divert(self, deliver: Callable[[Delivery], None], missed: Callable[[MissedMessages], None] | None) -> None:
        self._must_receive()
        inbox = self._reader.inbox
        tell = missed or inbox.on_missed or _raised
        self._listen_by(_Callback(deliver, lambda told: self._node.call_safely(tell, told), inbox.wants_own))
        rest = self._reader.taker.take_rest()
        if rest is not None:
            deliver(rest)
        while inbox:
            try:
                waiting = inbox.take()
            except MissedMessages as told:
                self._node.call_safely(tell, told)
            else:
                if isinstance(waiting, Delivery):
                    deliver(waiting)

    async def views(self) -> AsyncIterator[TopicView]:
        """Iterate over the views of the topic: first the present one, then each new one."""
        seat = self._seat
        waiting: deque[TopicView] = deque(maxlen=VIEWS_MAX)
        if seat.view is not None:
            waiting.append(seat.view)
        seat.watchers += (waiting,)
        try:
            while not self._is_left:
                while waiting:
                    yield waiting.popleft()
                await seat.wait_for_change()
        finally:
            seat.watchers = tuple(each for each in seat.watchers if each is not waiting)

    async def wait_for_members(self, count: int) -> tuple[Member, ...]:
        """Wait until the view has at least `count` members, this node included; return them, oldest first.

        members = await topic.wait_for_members(2)
        """
        while len(self.members) < count:
            self._node.check_open()
            if self._is_left:
                raise self._left_error()
            if self._seat.fault is not None:
                raise self._seat.fault
            await self._seat.wait_for_change()
        return self.members

    # The end.

    def statistics(self) -> TopicStatistics:
        """Return what this node has done in the topic so far."""
        seat, inbox = self._seat, self._reader.inbox
        seat.end_run()
        view = seat.view
        return TopicStatistics(
            seat.sent,
            seat.stable,
            seat.failed,
            seat.delivered,
            inbox.size,
            inbox.missed,
            self._reader.taker.undecodable + seat.unreadable,
            seat.repeated,
            0 if view is None else view.number,
            0 if view is None else len(view.members),
        )

    async def leave(self) -> None:
        """Leave the topic. What was received can still be read; the protocol completes what was sent."""
        if self._is_left:
            return
        self.let_go()
        await asyncio.sleep(0)

    def let_go(self) -> None:
        """Give the seat back and stop receiving."""
        if self._is_left:
            return
        self._is_left = True
        if self._catching_up is not None:
            self._catching_up.stop()
        listener, self.listener = self.listener, None
        self._node.give_back(self._seat, listener)
        self._reader.inbox.close()
        self._seat.notify()
        self._node.forget(self)

    def disown(self) -> None:
        """End reading in a forked child; what was received can still be read."""
        self._reader.inbox.closed = True

    async def __aenter__(self) -> "Topic[T]":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()


async def _refuse(error: Exception) -> None:
    raise error


def _is_no_list(values: object) -> bool:
    return not hasattr(values, "__iter__")


def _raised(told: MissedMessages) -> None:
    raise told
