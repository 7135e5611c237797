"""Take events from an inbox without waiting: the work for each message, without a coroutine.

`peek` makes the next event, `take` returns it. When there is none, or when the task must yield because it never had to
wait for a while (`vivum.runtime.turns`), a `Reader` goes on, which can be suspended.

Compiled as it is (`docs/design/compiled.md`), so the classes are not generic: the topic knows the types.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, NoReturn, Protocol

import msgspec

from vivum.core.ids import GroupId
from vivum.core.machine import Delivery
from vivum.live.event import TopicEvent
from vivum.live.inbox import Inbox
from vivum.live.messages import Codec
from vivum.runtime.turns import TURN_S, next_step

TURN_S_MAX = 0.25
"""A reader that never has to wait yields after `TURN_S` if it has read as much as came since it was last suspended, and
after this time in any case.

So the inbox does not grow, however fast the sender: while the loop waits for the reader the node takes nothing from the
network, and the sender waits too. But other nodes think that one is dead which is silent for seconds.
"""


class Names(Protocol):
    """What knows the names of topics by their groups: a seat only its own, a node all."""

    def name_of(self, group: GroupId) -> str:
        """Return the name of the topic of a group."""


class Taker:
    """A place in the messages of an inbox, which are taken one by one. One task reads at a time.

    Invariant: `_event` is that of message `_index` of `_delivery`, if it is made.
    """

    def __init__(self, inbox: Inbox, codec: Codec[Any], names: Names) -> None:
        self.inbox = inbox
        self.undecodable = 0
        self._decode = codec.decode
        self._is_raw = codec.is_raw
        self._names = names
        self._delivery: Delivery | None = None
        self._index = 0
        self._event: TopicEvent[Any] | None = None
        # Of the run: its payloads, and what its events have in common.
        self._payloads: Any = ()
        self._count = 0
        self._first = 0
        self._topic = ""
        self._sender: Any = None
        self._view: Any = None
        self._sent_ns: Any = None
        self.must_yield = False
        """Whether `peek` found that the task must yield before it reads on."""

        # The loop's clock, messages until the next look at it, and how many were to come between the last two looks.
        self._time: Callable[[], float] | None = None
        self._unlooked = 0
        self._step = 1
        # When the last look was; when the reader was last suspended, and the bytes that waited then.
        self._looked_s = 0.0
        self._turned_s: float | None = None
        self._behind = 0

    def peek(self) -> bool:
        """Make the next event; return whether it can be taken without waiting."""
        if self._event is not None:
            return True
        while True:
            while self._index < self._count:
                if self._unlooked > 0:
                    self._unlooked -= 1
                elif self.is_due():
                    self.must_yield = True
                    return False
                self._event = self._make(self._index)
                if self._event is not None:
                    return True
                self._index += 1
            if self._count:
                # Let go of what was read, while nothing else comes.
                self.begin(None)
            if not self.inbox.has_delivery():
                return False
            self.begin(self.inbox.take())

    def take(self) -> TopicEvent[Any]:
        """Take the event that `peek` made."""
        event, self._event = self._event, None
        if event is None:
            raise RuntimeError(f"two tasks read topic {self._topic} at once; let one read and hand on")
        self._index += 1
        return event

    def begin(self, delivery: Any) -> None:
        """Begin to read a run; None for nothing."""
        self._event, self._delivery, self._payloads, self._index, self._count = None, delivery, (), 0, 0
        if delivery is not None:
            self._payloads, self._count = delivery.payloads, len(delivery.payloads)
            self._topic = self._names.name_of(delivery.group)
            self._first, self._sender = delivery.first_sequence, delivery.sender
            self._view, self._sent_ns = delivery.view, delivery.sent_ns

    def is_due(self) -> bool:
        """Look at the clock: return whether the task must yield."""
        now_s = self._now_s()
        if self._turned_s is None:
            self._turned_s = self._looked_s = now_s
            return False
        since_s = now_s - self._turned_s
        if since_s > TURN_S and (self.inbox.size <= self._behind or since_s > TURN_S_MAX):
            return True
        self._step = next_step(self._step, now_s - self._looked_s)
        self._looked_s = now_s
        self._unlooked = self._step - 1
        return False

    def on_suspended(self, behind: int) -> None:
        """Note that the task was suspended just now, when this many bytes waited."""
        self._turned_s = self._looked_s = self._now_s()
        # One message is free: most tasks that waited wait again behind it.
        self._unlooked = self._step = 1
        self._behind, self.must_yield = behind, False

    def _now_s(self) -> float:
        if self._time is None:
            self._time = asyncio.get_running_loop().time
        return self._time()

    def _make(self, index: int) -> TopicEvent[Any] | None:
        """Make the event of a message of the run; None if it cannot be decoded."""
        value = self._payloads[index]
        if not self._is_raw:
            try:
                value = self._decode(value)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                # A peer must not raise into an application: count it, and skip the message.
                self.undecodable += 1
                return None
        return TopicEvent(self._topic, value, self._sender, self._first + index, self._view, self._sent_ns)

    def take_rest(self) -> Delivery | None:
        """Return the rest of a run whose first messages were read one by one."""
        delivery, index, count = self._delivery, self._index, self._count
        self.begin(None)
        if delivery is None or index == count:
            return None
        first = delivery.first_sequence + index
        return msgspec.structs.replace(delivery, first_sequence=first, payloads=delivery.payloads[index:])

    def events_of(self, delivery: Any) -> list[TopicEvent[Any]]:
        """Make the events of a run of messages."""
        self.begin(delivery)
        made = [self._make(index) for index in range(self._count)]
        self.begin(None)
        return [event for event in made if event is not None]


class Ready:
    """An awaitable that returns the next event of a taker: it is there, and is taken at the first step, not before.

    Acts as a coroutine, so that tasks can be made of it: one that is cancelled before it begins takes nothing.
    """

    def __init__(self, taker: Taker) -> None:
        self._taker = taker

    def __await__(self) -> Iterator[Any]:
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> NoReturn:
        raise StopIteration(self._taker.take())

    def send(self, _: Any) -> NoReturn:
        """Return the event, as a coroutine does at its end."""
        raise StopIteration(self._taker.take())

    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> NoReturn:  # noqa: ARG002
        """Raise what is thrown in, as a coroutine does that was not begun: a task that is cancelled in time."""
        raise kind if value is None else value

    def close(self) -> None:
        """Do nothing: the event stays where it is."""


class Events:
    """An iterator over the events of a taker. Where there is none yet, `wait` waits for it; None is the end."""

    def __init__(self, taker: Taker, wait: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._taker = taker
        self._ready = Ready(taker)
        self._wait = wait

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    def __anext__(self) -> Any:
        return self._ready if self._taker.peek() else self._next()

    async def _next(self) -> Any:
        item = await self._wait()
        if item is None:
            raise StopAsyncIteration
        return item
