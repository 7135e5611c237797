"""The same API for programs without asyncio: `vivum.sync.connect()`.

    with vivum.sync.connect() as node, node.enter("/swx/NESN", Quote) as topic:
        topic.send(Quote("NESN", 101.2, 101.4))
        for event in topic:
            ...

The node lives on an event loop in a background thread; calls wait for their results and may come from any thread.
Only that thread touches the node: other threads hand it what they want (`LoopThread.call`, `ask`), and read themselves
no more than single attributes.
Reading takes everything that has come at once, so that a thread is not switched for each message.

Names, arguments and defaults are those of the asyncio API, and a test compares them; calls that wait take `timeout_s`
besides, and raise `TimeoutError`.
"""

import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, overload

from vivum.core.ids import Endpoint, Member
from vivum.core.limits import Limits
from vivum.guarantees import DEFAULT, Guarantee
from vivum.live.browsing import NodeInfo, TopicInfo
from vivum.live.connecting import JOIN_S, POLL_US, Connecting
from vivum.live.connecting import connect as _connect
from vivum.live.event import Batch, TopicEvent, TopicView
from vivum.live.failures import MissedMessages, MissedPolicy
from vivum.live.handle import RECEIVE_BYTES_MAX, NodeHandle
from vivum.live.replay.catching_up import ReplayStart
from vivum.live.statistics import NodeStatistics
from vivum.live.subscription import Subscription
from vivum.live.topic import Topic, TopicStatistics
from vivum.protocols.commands import SlowMembers
from vivum.runtime.environment import BUFFER_BYTES
from vivum.runtime.loop_thread import LoopThread
from vivum.wire.directory import LoadReport

T = TypeVar("T")
Item = TypeVar("Item")

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

    def _each_of(self, items: AsyncIterator[Item]) -> Iterator[Item]:
        """Bring the items of an asynchronous iterator over one by one."""
        end = object()

        async def following() -> Any:
            return await anext(items, end)

        while (item := self._thread.call(following)) is not end:
            yield item


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
    def guarantee(self) -> Guarantee:
        """What the topic promises."""
        return self._topic.guarantee

    @property
    def is_live(self) -> bool:
        """Whether the reader gets the live stream; with `replay=` it gets back copies before that."""
        return self._topic.is_live

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
        return self._attempt(lambda: self._topic.try_send(value))

    def send_many(self, values: Sequence[T], timeout_s: float | None = None) -> None:
        """Send a list of messages at once: the way to high rates."""
        self._thread.call(lambda: self._topic.send_many(values), timeout_s)

    def try_send_many(self, values: Sequence[T]) -> bool:
        """Send a list of messages if the queue has room for all now; False if not."""
        return self._attempt(lambda: self._topic.try_send_many(values))

    def _attempt(self, send: Callable[[], bool]) -> bool:
        async def attempt() -> bool:
            return send()

        accepted: bool = self._thread.call(attempt)
        return accepted

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all that was sent is confirmed. Raises `SendFailedError` if something of it failed."""
        self._thread.call(self._topic.flush, timeout_s)

    def with_views(self) -> Iterator[TopicEvent[T] | TopicView]:
        """Iterate over messages and views in the order in which this node delivers them."""

        async def begin() -> AsyncIterator[TopicEvent[T] | TopicView]:
            return self._topic.with_views()

        return self._each_of(self._thread.call(begin))

    def views(self) -> Iterator[TopicView]:
        """Iterate over the views of the topic: first the present one, then each new one."""
        return self._each_of(self._topic.views())

    def wait_for_members(self, count: int, timeout_s: float | None = None) -> tuple[Member, ...]:
        """Wait until the view has at least `count` members; return them."""
        found: tuple[Member, ...] = self._thread.call(lambda: self._topic.wait_for_members(count), timeout_s)
        return found

    def on(
        self, callback: Callable[[TopicEvent[T]], None], missed: Callable[[MissedMessages], None] | None = None
    ) -> None:
        """Call back, in the background thread, for every message. The callback must not call into vivum.sync."""

        async def register() -> None:
            self._topic.on(callback, missed)

        self._thread.call(register)

    def on_batch(
        self, callback: Callable[[Batch[T]], None], missed: Callable[[MissedMessages], None] | None = None
    ) -> None:
        """Call back, in the background thread, for every run of messages; otherwise like `on`."""

        async def register() -> None:
            self._topic.on_batch(callback, missed)

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
    def pattern(self) -> str:
        """The pattern of the topics' names."""
        return self._subscription.pattern

    @property
    def passed_over(self) -> dict[str, str]:
        """Matching topics that were not entered, and why."""
        return self._thread.ask(lambda: dict(self._subscription.passed_over))

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics that are received from now."""
        return self._thread.ask(lambda: self._subscription.topics)

    def schema_of(self, topic: str) -> str:
        """Return the description of a topic's type; that of bytes for a topic which was never entered."""
        return self._thread.ask(lambda: self._subscription.schema_of(topic))

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
    def domain(self) -> str:
        """The name of the domain."""
        return self._node.domain

    @property
    def name(self) -> str:
        """The name of the node."""
        return self._node.name

    @property
    def member(self) -> Member | None:
        """This life of this node."""
        return self._node.member

    @property
    def endpoint(self) -> Endpoint:
        """Where the node takes unicast datagrams."""
        return self._node.endpoint

    @property
    def carries_service(self) -> bool:
        """Whether the domain's configuration service runs in this process."""
        return self._node.carries_service

    @overload
    def enter(self, name: str, *, guarantee: Guarantee | str = ...) -> SyncTopic[bytes]: ...

    @overload
    def enter(
        self,
        name: str,
        kind: type[T],
        *,
        guarantee: Guarantee | str = ...,
        receive: bool = ...,
        own: bool = ...,
        receive_bytes_max: int = ...,
        drop_oldest: bool | None = ...,
        slow: SlowMembers = ...,
        replay: ReplayStart | None = ...,
        deadline_ms: float | None = ...,
        repair: tuple[int, int] | None = ...,
        on_missed: MissedPolicy = ...,
    ) -> SyncTopic[T]: ...

    def enter(self, name: str, kind: Any = bytes, **options: Any) -> Any:
        """Enter a topic; arguments as for `NodeHandle.enter`."""
        return self.enter_many([name], kind, **options)[0]

    def enter_many(
        self,
        names: Sequence[str],
        kind: type[T],
        *,
        guarantee: Guarantee | str = DEFAULT,
        receive: bool = True,
        own: bool = True,
        receive_bytes_max: int = RECEIVE_BYTES_MAX,
        drop_oldest: bool | None = None,
        slow: SlowMembers = SlowMembers.ISOLATE,
        replay: ReplayStart | None = None,
        deadline_ms: float | None = None,
        repair: tuple[int, int] | None = None,
        on_missed: MissedPolicy = "raise",
    ) -> list[SyncTopic[T]]:
        """Enter many topics of one type at once; arguments as for `NodeHandle.enter`."""
        topics: list[Topic[T]] = self._thread.call(
            lambda: self._node.enter_many(
                names,
                kind,
                guarantee=guarantee,
                receive=receive,
                own=own,
                receive_bytes_max=receive_bytes_max,
                drop_oldest=drop_oldest,
                slow=slow,
                replay=replay,
                deadline_ms=deadline_ms,
                repair=repair,
                on_missed=on_missed,
            )
        )
        return [SyncTopic(self._thread, topic) for topic in topics]

    @overload
    def subscribe(
        self,
        pattern: str,
        *,
        receive_bytes_max: int = ...,
        drop_oldest: bool | None = ...,
        on_missed: MissedPolicy = ...,
    ) -> SyncSubscription[bytes]: ...

    @overload
    def subscribe(
        self,
        pattern: str,
        kind: type[T],
        *,
        guarantee: Guarantee | str = ...,
        receive_bytes_max: int = ...,
        drop_oldest: bool | None = ...,
        on_missed: MissedPolicy = ...,
    ) -> SyncSubscription[T]: ...

    def subscribe(
        self,
        pattern: str,
        kind: Any = None,
        *,
        guarantee: Guarantee | str | None = None,
        receive_bytes_max: int = RECEIVE_BYTES_MAX,
        drop_oldest: bool | None = None,
        on_missed: MissedPolicy = "raise",
    ) -> SyncSubscription[Any]:
        """Receive from all topics that match a pattern, also from those that appear later.

        Without `kind`, topics of every type and guarantee, as bytes.
        """

        async def make() -> Subscription[Any]:
            return self._node.subscribe(
                pattern,
                kind,
                guarantee=guarantee,  # type: ignore[arg-type]
                receive_bytes_max=receive_bytes_max,
                drop_oldest=drop_oldest,
                on_missed=on_missed,
            )

        return SyncSubscription(self._thread, self._thread.call(make))

    def topics(self, pattern: str = "/**") -> list[TopicInfo]:
        """List the topics of the domain that match a pattern."""
        found: list[TopicInfo] = self._thread.call(lambda: self._node.topics(pattern))
        return found

    def nodes(self) -> list[NodeInfo]:
        """List the nodes of the domain."""
        found: list[NodeInfo] = self._thread.call(self._node.nodes)
        return found

    def loads(self, timeout_s: float = 0.5) -> list[LoadReport]:
        """Ask all nodes of the domain for their load; return the answers that come within this time, by node."""
        found: list[LoadReport] = self._thread.call(lambda: self._node.loads(timeout_s))
        return found

    def serve_metrics(self, place: Endpoint) -> Endpoint:
        """Serve Prometheus metrics and probes until the node is closed; return where."""
        where: Endpoint = self._thread.call(lambda: self._node.serve_metrics(place))
        return where

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


def connect(
    domain: str | None = None,
    *,
    name: str | None = None,
    interface: str | None = None,
    port: int = 0,
    seeds: Sequence[str] | None = None,
    embedded: bool = True,
    multicast: bool | Literal["probe"] = "probe",
    ttl: int = 1,
    timeout_s: float = JOIN_S,
    buffer_bytes: int = BUFFER_BYTES,
    limits: Limits | None = None,
    trace: str | os.PathLike[str] | None = None,
    loss: float = 0.0,
    poll_us: int = POLL_US,
    shared_memory: bool = True,
    metrics: int | str | None = None,
) -> SyncNode:
    """Join a domain; arguments as for `vivum.connect`. Use it with `with`, or close it."""
    connecting: Connecting = _connect(
        domain,
        name=name,
        interface=interface,
        port=port,
        seeds=seeds,
        embedded=embedded,
        multicast=multicast,
        ttl=ttl,
        timeout_s=timeout_s,
        buffer_bytes=buffer_bytes,
        limits=limits,
        trace=trace,
        loss=loss,
        poll_us=poll_us,
        shared_memory=shared_memory,
        metrics=metrics,
    )
    thread = LoopThread("vivum")
    try:
        return SyncNode(thread, thread.call(connecting.__aenter__))
    except BaseException:
        thread.stop()
        raise
