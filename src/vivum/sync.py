"""The same API for programs without asyncio: `vivum.sync.connect()`.

The node lives on an event loop in a background thread; calls wait for their results and may come from any thread.
Only that thread touches the node: other threads hand it what they want (`LoopThread.call`, `ask`), and read themselves
no more than single attributes.
Reading takes everything that has come at once, so that a thread is not switched for each message.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from vivum.core.ids import Endpoint, Member
from vivum.guarantees import DEFAULT, Guarantee
from vivum.live.browsing import NodeInfo, TopicInfo
from vivum.live.connecting import Connecting
from vivum.live.connecting import connect as _connect
from vivum.live.event import Batch, TopicEvent, TopicView
from vivum.live.handle import NodeHandle
from vivum.live.statistics import NodeStatistics
from vivum.live.subscription import Subscription
from vivum.live.topic import Topic, TopicStatistics
from vivum.runtime.loop_thread import LoopThread

T = TypeVar("T")

READ_BATCHES_MAX = 256
"""Runs of messages that one read brings over at most."""


class _SyncReading(Generic[T]):
    """The reading side that a topic and a subscription have in common."""

    def __init__(self, thread: LoopThread, source: Any) -> None:
        self._thread = thread
        self._source = source
        # What was brought over and not read yet. The loop's thread puts it here: a caller whose time is over just then
        # reads it the next time.
        self._events: deque[TopicEvent[T]] = deque()
        self._batches: deque[Batch[T]] = deque()

    def batches(self) -> Iterator[Batch[T]]:
        """Iterate over runs of messages as they came in."""
        while self._batches or self._fill_batches(None):
            yield self._batches.popleft()

    def __iter__(self) -> Iterator[TopicEvent[T]]:
        while self._events or self._fill_events(None):
            yield self._events.popleft()

    def receive(self, timeout_s: float | None = None) -> TopicEvent[T] | None:
        """Return the next message; None at the end. Raises `TimeoutError` after `timeout_s`."""
        return self._events.popleft() if self._events or self._fill_events(timeout_s) else None

    def _fill_events(self, timeout_s: float | None) -> bool:
        """Wait for messages, and bring all over that are here; return False at the end."""
        reader = self._source.reader

        async def fill() -> bool:
            self._events += await reader.next_events(READ_BATCHES_MAX)
            return bool(self._events)

        return bool(self._thread.call(fill, timeout_s))

    def _fill_batches(self, timeout_s: float | None) -> bool:
        reader = self._source.reader

        async def fill() -> bool:
            self._batches += await reader.next_batches(READ_BATCHES_MAX)
            return bool(self._batches)

        return bool(self._thread.call(fill, timeout_s))


class SyncTopic(_SyncReading[T]):
    """A topic, as `vivum.Topic`, for threads."""

    def __init__(self, thread: LoopThread, topic: Topic[T]) -> None:
        super().__init__(thread, topic)
        self._topic = topic

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self._topic.name

    @property
    def view(self) -> TopicView | None:
        """The present view."""
        return self._topic.view

    @property
    def members(self) -> tuple[Member, ...]:
        """The members of the present view, oldest first."""
        return self._topic.members

    def send(self, value: T, timeout_s: float | None = None) -> None:
        """Send a message; waits while the queue is full."""
        self._thread.call(lambda: self._topic.send(value), timeout_s)

    def try_send(self, value: T) -> bool:
        """Send a message if the queue has room for it now; False if not."""

        async def attempt() -> bool:
            return self._topic.try_send(value)

        accepted: bool = self._thread.call(attempt)
        return accepted

    def send_many(self, values: Sequence[T], timeout_s: float | None = None) -> None:
        """Send a list of messages at once: the way to high rates."""
        self._thread.call(lambda: self._topic.send_many(values), timeout_s)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all that was sent is stable."""
        self._thread.call(self._topic.flush, timeout_s)

    def wait_for_members(self, count: int, timeout_s: float | None = None) -> tuple[Member, ...]:
        """Wait until the view has at least `count` members; return them."""
        found: tuple[Member, ...] = self._thread.call(lambda: self._topic.wait_for_members(count), timeout_s)
        return found

    def on(self, callback: Callable[[TopicEvent[T]], None]) -> None:
        """Call back, in the background thread, for every message. The callback must not call into vivum.sync."""

        async def register() -> None:
            self._topic.on(callback)

        self._thread.call(register)

    def statistics(self) -> TopicStatistics:
        """Return what this node did in the topic so far."""
        return self._thread.ask(self._topic.statistics)

    def leave(self) -> None:
        """Leave the topic. Does nothing in a child that was forked: it was never in it."""
        if self._thread.is_here:
            self._thread.call(self._topic.leave)

    def __enter__(self) -> "SyncTopic[T]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()


class SyncSubscription(_SyncReading[T]):
    """A subscription to a pattern, as `vivum.Subscription`, for threads."""

    def __init__(self, thread: LoopThread, subscription: Subscription[T]) -> None:
        super().__init__(thread, subscription)
        self._subscription = subscription
        thread.call(subscription.__aenter__)

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics that are received from now."""
        return self._thread.ask(lambda: self._subscription.topics)

    def wait_for_topics(self, count: int, timeout_s: float | None = None) -> tuple[str, ...]:
        """Wait until at least `count` topics are entered; return their names."""
        found: tuple[str, ...] = self._thread.call(lambda: self._subscription.wait_for_topics(count), timeout_s)
        return found

    def close(self) -> None:
        """Leave the topics of the pattern. Does nothing in a child that was forked."""
        if self._thread.is_here:
            self._thread.call(self._subscription.close)

    def __enter__(self) -> "SyncSubscription[T]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncNode:
    """A node, as `vivum.NodeHandle`, for threads."""

    def __init__(self, thread: LoopThread, node: NodeHandle) -> None:
        self._thread = thread
        self._node = node
        self._is_closed = False

    @property
    def member(self) -> Member | None:
        """This life of this node."""
        return self._node.member

    @property
    def endpoint(self) -> Endpoint:
        """Where the node takes unicast datagrams."""
        return self._node.endpoint

    def enter(self, name: str, kind: type[T], **options: Any) -> SyncTopic[T]:
        """Enter a topic; options as for `NodeHandle.enter`."""
        return self.enter_many([name], kind, **options)[0]

    def enter_many(self, names: Sequence[str], kind: type[T], **options: Any) -> list[SyncTopic[T]]:
        """Enter many topics of one type at once."""
        topics: list[Topic[T]] = self._thread.call(lambda: self._node.enter_many(names, kind, **options))
        return [SyncTopic(self._thread, topic) for topic in topics]

    def subscribe(self, pattern: str, kind: type[T], *, guarantee: Guarantee = DEFAULT) -> SyncSubscription[T]:
        """Receive from all topics that match a pattern, also from those that appear later."""

        async def make() -> Subscription[T]:
            return self._node.subscribe(pattern, kind, guarantee=guarantee)

        return SyncSubscription(self._thread, self._thread.call(make))

    def topics(self, pattern: str = "/**") -> list[TopicInfo]:
        """List the topics of the domain that match a pattern."""
        found: list[TopicInfo] = self._thread.call(lambda: self._node.topics(pattern))
        return found

    def nodes(self) -> list[NodeInfo]:
        """List the nodes of the domain."""
        found: list[NodeInfo] = self._thread.call(self._node.nodes)
        return found

    def statistics(self) -> NodeStatistics:
        """Return what the node did so far, and its present state."""
        return self._thread.ask(self._node.statistics)

    def close(self) -> None:
        """Leave the domain and end the background thread. May be called again; does nothing in a forked child."""
        if self._is_closed or not self._thread.is_here:
            return
        self._thread.check_caller()
        self._is_closed = True
        try:
            self._thread.call(self._node.close)
        finally:
            self._thread.stop()

    def __enter__(self) -> "SyncNode":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(domain: str = "default", **options: Any) -> SyncNode:
    """Join a domain; options as for `vivum.connect`. Use it with `with`, or close it."""
    connecting: Connecting = _connect(domain, **options)
    thread = LoopThread(f"vivum {domain}")
    try:
        return SyncNode(thread, thread.call(connecting.__aenter__))
    except BaseException:
        thread.stop()
        raise
