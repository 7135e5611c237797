"""The bounded queue of messages that wait for the reader of a topic.

A slow reader must not hold up the network, so the queue has one of two policies at its limit. `raise`: new messages
are not kept, and reading raises `MissedMessages` with their number at the place where they are missing. `drop oldest`:
the newest are kept, and the dropped ones counted (`statistics`). The size is an estimate: only three messages of a
long run are measured.

What happens where messages are missing is one of three policies, `on_missed`, applied here and nowhere else: reading
raises `MissedMessages`, or it is logged, or a function is called, and reading goes on.

Invariants: `size` is the sum of the sizes in the queue. At the limit no two errors follow each other.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from vivum.core.machine import Delivery
from vivum.live.event import TopicView
from vivum.live.failures import MissedMessages

VIEW_BYTES, MEMBER_BYTES = 128, 16
"""Estimated size of a waiting view, and of each of its members."""

MARKER_BYTES = 512
"""Estimated size of a waiting error."""

Item = Delivery | TopicView | MissedMessages

EXACT_MESSAGES_MAX = 16
"""Runs up to this length are measured exactly; of longer ones only three messages, since measuring all is costly."""

PARTS_MIN = 4
"""If the queue has no room for a run, and the run is larger than `bytes_max / PARTS_MIN`, it is cut in halves.

The queue drops or refuses whole runs. With large ones much of its room would be lost at a time. An empty queue takes a
run of any size.
"""


def estimated_bytes(delivery: Delivery) -> int:
    """Return an estimate of the bytes in a run of messages."""
    payloads = delivery.payloads
    count = len(payloads)
    if count <= EXACT_MESSAGES_MAX:
        return sum(map(len, payloads)) + 64 * count
    looked = len(payloads[0]) + len(payloads[count // 2]) + len(payloads[-1])
    return count * (looked // 3 + 64)


def _halves(delivery: Delivery) -> tuple[Delivery, Delivery]:
    payloads, heads = delivery.payloads, delivery.heads
    middle = len(payloads) // 2
    return (
        replace(delivery, payloads=payloads[:middle], heads=heads[:middle]),
        replace(
            delivery,
            first_sequence=delivery.first_sequence + middle,
            payloads=payloads[middle:],
            heads=heads[middle:],
        ),
    )


class Inbox:
    """A bounded queue of deliveries with one reader."""

    wants_packed = False
    __slots__ = (
        "_drops_oldest",
        "_items",
        "_room",
        "_topic",
        "_waiter",
        "bytes_max",
        "closed",
        "missed",
        "on_missed",
        "size",
        "wants_own",
        "wants_views",
    )

    def __init__(
        self,
        topic: str,
        bytes_max: int,
        drops_oldest: bool,
        wants_own: bool = True,
        on_missed: Callable[[MissedMessages], None] | None = None,
    ) -> None:
        self.wants_own = wants_own
        self.on_missed = on_missed
        """Called, when the reader comes there, with what would be raised; None to raise it."""

        self.wants_views = False
        self._topic = topic
        self.bytes_max = bytes_max
        self._drops_oldest = drops_oldest
        self._items: deque[tuple[int, Item]] | tuple[()] = ()
        # Made on demand: an empty deque takes 600 bytes.
        self._waiter: asyncio.Future[None] | None = None
        self._room: asyncio.Event | None = None
        self.closed = False
        self.size = 0
        self.missed = 0

    def __len__(self) -> int:
        return len(self._items)

    def has_delivery(self) -> bool:
        """Whether `take` would return a delivery."""
        items = self._items
        return isinstance(items, deque) and bool(items) and isinstance(items[0][1], Delivery)

    def put(self, delivery: Delivery) -> None:
        """Queue a delivery, or apply the policy if there is no room."""
        size = estimated_bytes(delivery)
        items = self._queue()
        if self.size and self.size + size > self.bytes_max:
            if size * PARTS_MIN > self.bytes_max and len(delivery.payloads) > 1:
                for half in _halves(delivery):
                    self.put(half)
                return
            if not self._drops_oldest:
                self._overrun(len(delivery.payloads))
                return
            self._drop_for(size)
        items.append((size, delivery))
        self.size += size
        if self._waiter is not None:
            self._wake()

    def _overrun(self, count: int) -> None:
        self.missed += count
        items = self._queue()
        size, last = items[-1]
        if isinstance(last, MissedMessages) and last.count is not None:
            count += last.count
            self.size -= size
            items.pop()
        items.append((0, self._overrun_error(count)))

    def _queue(self) -> deque[tuple[int, Item]]:
        if not isinstance(self._items, deque):
            self._items = deque()
        return self._items

    def _overrun_error(self, count: int) -> MissedMessages:
        what = f"{count} messages" if count else "views"
        return MissedMessages(
            f"{what} of {self._topic} came while its reader was {self.bytes_max} bytes behind "
            "(receive_bytes_max) and were not kept; read faster, or enter with a larger limit",
            count,
        )

    def on_view(self, view: TopicView) -> None:
        """Queue a view at its place between messages, if the reader asked for views. It counts as messages do."""
        if not self.wants_views:
            return
        size = VIEW_BYTES + MEMBER_BYTES * len(view.members)
        if self.size and self.size + size > self.bytes_max:
            if not self._drops_oldest:
                self._overrun(0)
                return
            self._drop_for(size)
        self._queue().append((size, view))
        self.size += size
        self._wake()

    def begin_views(self, view: TopicView | None, rest: Delivery | None = None) -> None:
        """From now on queue views; the present one goes in front of what waits of this life.

        `rest` is what the reader took and did not read: it is queued again, in front of all else.
        """
        self.wants_views = True
        if rest is not None:
            size = estimated_bytes(rest)
            self._queue().appendleft((size, rest))
            self.size += size
        if view is None:
            return
        items = list(self._queue())
        ends = [at for at, (_, item) in enumerate(items, 1) if isinstance(item, MissedMessages) and item.count is None]
        size = VIEW_BYTES + MEMBER_BYTES * len(view.members)
        self._queue().insert(ends[-1] if ends else 0, (size, view))
        self.size += size
        self._wake()

    def _drop_for(self, size: int) -> None:
        items = self._queue()
        while items and self.size + size > self.bytes_max:
            old_size, old = items.popleft()
            self.size -= old_size
            if isinstance(old, Delivery):
                self.missed += len(old.payloads)

    def interrupt(self, told: MissedMessages) -> None:
        """Mark this place: reading raises `MissedMessages` here."""
        self.missed += told.count or 0
        if self._drops_oldest:
            return
        items = self._queue()
        size, last = items[-1] if items else (0, None)
        if isinstance(last, MissedMessages) and self.size + MARKER_BYTES > self.bytes_max:
            # An error waits here already: merge them, with the newest reason and the total count.
            count = None if last.count is None or told.count is None else last.count + told.count
            items[-1] = (size, MissedMessages(str(told), count))
        else:
            items.append((MARKER_BYTES, told))
            self.size += MARKER_BYTES
        self._wake()

    def take(self) -> Delivery | TopicView | None:
        """Return the next delivery or view, or None; raise `MissedMessages` where messages are missing."""
        items = self._items
        while isinstance(items, deque) and items:
            size, item = items.popleft()
            self.size -= size
            if self._room is not None:
                self._room.set()
            if not isinstance(item, MissedMessages):
                return item
            if self.on_missed is None:
                raise item
            self.on_missed(item)
        return None

    async def wait(self) -> bool:
        """Wait until something is queued; return False if the inbox is closed and empty."""
        while not self._items:
            if self.closed:
                return False
            if self._waiter is not None and not self._waiter.done():
                raise RuntimeError(f"two tasks read topic {self._topic} at once; let one read and hand on")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return True

    async def wait_for_room(self, size: int) -> None:
        """Wait until `size` more bytes fit, or the queue is empty or closed. One task may wait."""
        while self.size and self.size + size > self.bytes_max and not self.closed:
            self._room = self._room or asyncio.Event()
            self._room.clear()
            await self._room.wait()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Close the queue; what is in it can still be read."""
        self.closed = True
        if self._room is not None:
            self._room.set()
        self._wake()
