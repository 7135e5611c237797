"""A node's seat in one topic: what it sent, what is stable, its view, and who here wants what comes.

All handles of one topic on one node share its seat. It stays when the last handle has left, so that numbers go on.

Invariants: `stable <= accepted`; both count messages of this life of this node, as the protocol numbers them.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from vivum.core.errors import NotNowError
from vivum.core.ids import GroupId, Member
from vivum.core.machine import Delivery
from vivum.live.event import TopicView
from vivum.live.failures import ClosedError, MissedMessages, SendFailedError
from vivum.live.guarantees import Guarantee
from vivum.live.keys import SeenKeys, bare_run, with_keys, without_keys
from vivum.protocols.commands import SendFailed, SendMessages, SlowMembers
from vivum.protocols.unrepaired.machine import SendOnce
from vivum.runtime.member_host import MemberHost
from vivum.wire.codec import PackedRun

TURN_NS = 2_000_000
"""A task that sends without ever having to wait lets others run after this time."""

VIEWS_MAX = 256
"""Views that wait for who watches them; the oldest go, since the newest says all."""


class Listener(Protocol):
    """Who takes what is delivered in a topic here: an inbox, callbacks, a recorder."""

    @property
    def wants_own(self) -> bool:
        """Also what this node sent itself."""

    @property
    def wants_heads(self) -> bool:
        """Messages of a keyed topic with their heads, in which the keys are."""

    @property
    def wants_packed(self) -> bool:
        """Runs of messages uncut, as `PackedRun`s, where they come so."""

    def put(self, delivery: Delivery) -> None:
        """Take a run of messages."""

    def interrupt(self, told: MissedMessages) -> None:
        """Learn that messages are missing at this place."""


class Seat:
    """One topic at one node. Thousands of them are common, so what few need is made when it is needed."""

    __slots__ = (
        "_changed",
        "_failure",
        "_host",
        "_repairs",
        "_turn",
        "_waiting",
        "accepted",
        "delivered",
        "failed",
        "fault",
        "group",
        "guarantee",
        "holders",
        "is_leaving",
        "is_moving",
        "listeners",
        "name",
        "packs",
        "schema",
        "seen",
        "sent",
        "slow",
        "stable",
        "view",
        "watchers",
    )

    def __init__(self, host: MemberHost, name: str, group: GroupId, schema: str, guarantee: Guarantee) -> None:
        self.name = name
        self.group = group
        self.schema = schema
        self.guarantee = guarantee
        self.slow = SlowMembers.ISOLATE
        # Somebody here wants no objects for messages: the group is joined so.
        self.packs = False
        self.holders = 0
        # The last holder has left, but the group may deliver to us still: not to those who come now.
        self.is_leaving = False
        # A new life under another service, whose group for the topic is not known yet: nothing can be sent.
        self.is_moving = False
        self.accepted = 0
        self.stable = 0
        self.sent = 0
        self.delivered = 0
        self.failed = 0
        self.seen: SeenKeys | None = SeenKeys() if guarantee is Guarantee.KEYED else None
        self.view: TopicView | None = None
        self.listeners: tuple[Listener, ...] = ()
        self.watchers: tuple[deque[TopicView], ...] = ()
        self.fault: Exception | None = None
        self._changed: asyncio.Event | None = None
        self._host = host
        self._repairs = guarantee is not Guarantee.BEST_EFFORT
        self._failure: SendFailed | None = None
        self._turn: asyncio.Lock | None = None
        self._waiting = 0

    def name_of(self, group: GroupId) -> str:  # noqa: ARG002
        """Tell the name of the topic, whatever group it has now."""
        return self.name

    # Out.

    def try_send(self, payloads: Sequence[bytes], measured: tuple[int, int] | None = None) -> bool:
        """Hand messages over, unless something must be waited for."""
        if self._waiting:
            # Others were here first.
            return False
        if self.seen is None:
            return self._submit(payloads, measured)
        return self._submit(without_keys(payloads))

    def _submit(self, payloads: Sequence[bytes], measured: tuple[int, int] | None = None) -> bool:
        if not self.holders:
            raise ClosedError(f"topic {self.name} was left; enter it again")
        if self.fault is not None:
            raise self.fault
        if self.is_moving:
            return False
        try:
            self._host.send(
                SendMessages(self.group, payloads, measured) if self._repairs else SendOnce(self.group, payloads)
            )
        except NotNowError:
            return False
        self.sent += len(payloads)
        return True

    def send(self, payloads: Sequence[bytes], measured: tuple[int, int] | None = None) -> Coroutine[Any, Any, None]:
        """Hand messages over, and wait while there is no room. Cancelled while it waits, nothing was sent."""
        if self.seen is None:
            return self._send(payloads, measured)
        return self._send(without_keys(payloads))

    def send_keyed(self, query: bytes, batch: int, first: int, payloads: Sequence[bytes]) -> Coroutine[Any, Any, None]:
        """As `send`, with keys from (query, batch, first) on. The topic must be `KEYED`, the query of 16 bytes."""
        assert self.seen is not None, self.name
        return self._send(with_keys(query, batch, first, payloads))

    def send_headed(self, payloads: Sequence[bytes]) -> Coroutine[Any, Any, None]:
        """As `send`, for messages that have their heads already. The topic must be `KEYED`."""
        assert self.seen is not None, self.name
        return self._send(payloads)

    async def _send(self, payloads: Sequence[bytes], measured: tuple[int, int] | None = None) -> None:
        if self._waiting or not self._submit(payloads, measured):
            if measured is not None:
                # Whoever waits for long may use its list again, and what was measured would not be true any more.
                payloads = payloads[:]
            self._waiting += 1
            if self._turn is None:
                self._turn = asyncio.Lock()
            try:
                async with self._turn:
                    while not self._submit(payloads, measured):
                        await self._host.wait_for_room()
            finally:
                self._waiting -= 1
        host = self._host
        # Of the node, not of the topic: who sends to thousands in turn would give way after every message.
        if host.monotonic_ns() - host.yielded_ns > TURN_NS:
            await asyncio.sleep(0)
            host.yielded_ns = host.monotonic_ns()

    def on_confirmed(self, stop: int) -> None:
        """All below are stable."""
        if stop > self.stable:
            self.stable = stop
            self.notify()

    def on_failed(self, event: SendFailed) -> None:
        """Some may not have arrived."""
        self.failed += event.stop - event.first
        self._failure = event
        self.stable = max(self.stable, event.stop)
        self.notify()

    async def flush(self) -> None:
        """Wait until all that was sent is stable."""
        # What was just sent is numbered in the next turn of the loop.
        await asyncio.sleep(0)
        target = self.accepted
        while self._failure is None and self.stable < target and self.accepted >= target:
            await self.wait_for_change()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise SendFailedError(
                f"messages {failure.first} to {failure.stop - 1} of {self.name} may not have reached "
                f"{'all members' if failure.receiver is None else f'node {failure.receiver}'}: {failure.cause}"
            )

    def notify(self) -> None:
        """Wake all who wait for a change."""
        if self._changed is not None:
            self._changed.set()

    async def wait_for_change(self) -> None:
        """Wait until something about this seat changes."""
        if self._changed is None:
            self._changed = asyncio.Event()
        self._changed.clear()
        await self._changed.wait()

    # In.

    def on_delivery(self, delivery: Delivery, is_own: bool) -> None:
        """Hand a run of messages to all who want it."""
        count = len(delivery.payloads)
        if is_own:
            self.accepted = delivery.first_sequence + count
        self.delivered += count
        if self.is_leaving:
            return
        if self.packs and isinstance(delivery.payloads, PackedRun):
            self._put_packed(delivery, delivery.payloads)
            return
        if self.seen is None:
            for listener in self.listeners:
                if not is_own or listener.wants_own:
                    listener.put(delivery)
            return
        headed = tuple(self.seen.new_runs(delivery))
        runs = tuple(map(bare_run, headed))
        for listener in self.listeners:
            if not is_own or listener.wants_own:
                for run in headed if listener.wants_heads else runs:
                    listener.put(run)

    def _put_packed(self, delivery: Delivery, run: PackedRun) -> None:
        """Hand over a run that was not cut, and cut it once for all who want it so. Nobody gets his own packed."""
        plain: Delivery | None = None
        for listener in self.listeners:
            if listener.wants_packed:
                listener.put(delivery)
            else:
                plain = plain or replace(delivery, payloads=run.cut())
                listener.put(plain)

    def interrupt(self, told: MissedMessages) -> None:
        """Let all who listen know that messages are missing."""
        for listener in self.listeners:
            listener.interrupt(told)

    def listen(self, listener: Listener) -> None:
        """Hand over all that comes from now on."""
        self.listeners += (listener,)
        # Where keys are looked at, messages are cut in any case.
        self.packs = self.packs or (listener.wants_packed and self.seen is None)

    def unlisten(self, listener: Listener) -> None:
        """Hand over no more; nothing happens if it did not listen."""
        self.listeners = tuple(each for each in self.listeners if each is not listener)

    # Views.

    def on_view(self, number: int, members: tuple[Member, ...]) -> None:
        """Note a view, if it is a new one."""
        before = self.view
        if before is not None and before.number == number:
            return
        known = () if before is None else before.members
        joined = tuple(each for each in members if each not in known)
        left = tuple(each for each in known if each not in members)
        self.view = TopicView(self.name, number, members, joined, left)
        for watcher in self.watchers:
            watcher.append(self.view)
        self.notify()

    def on_life_lost(self) -> None:
        """This life of the node has ended: numbers begin anew, and there is no view."""
        self.accepted = self.stable = 0
        self.view = None
        self.notify()
