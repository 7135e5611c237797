"""A node's seat in one topic: what it sent and what became of that, its view, and its listeners.

All handles of one topic on one node share its seat. It outlives the last handle, so that numbering goes on.

Invariants: `settled <= accepted`; both count messages of one life of this node, as the protocol numbers them. What is
settled was confirmed or reported as failed, and so was everything before it.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from vivum.core.errors import NotNowError, UsageError
from vivum.core.ids import Channel, GroupId, Member
from vivum.core.machine import Delivery, InstallView
from vivum.core.ranges import RangeSet
from vivum.guarantees import Guarantee
from vivum.live.done import DONE
from vivum.live.event import TopicView
from vivum.live.failures import ClosedError, MissedMessages, SendFailedError
from vivum.protocols.commands import JoinGroup, MessagesLeftOut, SendFailed, SendMessages, SlowMembers, Tuning
from vivum.protocols.layer import Layer
from vivum.runtime.member_host import MemberHost
from vivum.wire.codec import PackedRun

NO_CHANNEL = Channel(0)
"""Membership chooses the channels; the one that a join names is not used."""

RUN_BYTES_MAX = 65_536
"""Bytes of messages that are collected before the node gets them: as many as the largest frame takes. At the limit the
node gets them at once."""

MESSAGE_BYTES = 16
"""What a collected message counts beside its own bytes, so that there is a limit for empty ones too."""

_Members = tuple[Member, ...]

VIEWS_MAX = 256
"""Views that wait for a watcher at most. The oldest are dropped: the newest is what counts."""


class Listener(Protocol):
    """Takes what this node delivers in a topic: an inbox, callbacks, a recorder."""

    @property
    def wants_own(self) -> bool:
        """Whether it takes messages that this node sent itself."""

    @property
    def wants_packed(self) -> bool:
        """Whether it takes runs uncut, as `PackedRun`s, where they arrive so."""

    def put(self, delivery: Delivery) -> None:
        """Take a run of messages."""

    def on_view(self, view: TopicView) -> None:
        """Learn that a view is installed at this place."""

    def interrupt(self, told: MissedMessages) -> None:
        """Learn that messages are missing at this place."""


class MemberChanges:
    """Who joined and who left between two views, computed once for all topics with the same two lists of members.

    Lists are compared by identity. Holds the newest one, and those that it was compared with.
    """

    __slots__ = ("_after", "_found", "compared")

    def __init__(self) -> None:
        self._after: _Members | None = None
        self._found: dict[int, tuple[_Members, tuple[_Members, _Members]]] = {}
        self.compared = 0
        """The number of pairs compared so far."""

    def between(self, before: _Members, after: _Members) -> tuple[_Members, _Members]:
        """Return who joined, and who left."""
        if after is not self._after:
            self._found.clear()
            self._after = after
        found = self._found.get(id(before))
        if found is None:
            self.compared += 1
            known, present = set(before), set(after)
            joined = tuple(each for each in after if each not in known)
            left = tuple(each for each in before if each not in present)
            found = self._found[id(before)] = (before, (joined, left))
        return found[1]

    @property
    def held(self) -> int:
        """The number of lists that the newest one was compared with."""
        return len(self._found)


def install_views(
    bundles: Iterable[InstallView], seats: Mapping[GroupId, "Seat"], changes: MemberChanges
) -> list["Seat"]:
    """Install views at those seats of their groups that somebody holds; return these seats."""
    installed: list[Seat] = []
    for bundle in bundles:
        number, members = bundle.number, bundle.members
        groups = RangeSet.from_bounds(bundle.groups)
        # Ranges come from the service, and may span too many groups to walk.
        here = groups if groups.count() <= len(seats) else [group for group in seats if group in groups]
        for group in here:
            seat = seats.get(GroupId(group))
            if seat is not None and seat.holders:
                seat.on_view(number, members, changes)
                installed.append(seat)
    return installed


class Seat:
    """One topic at one node. Thousands are common, so rarely used parts are made on demand."""

    __slots__ = (
        "_accepted_life",
        "_changed",
        "_failure",
        "_first",
        "_host",
        "_is_queued",
        "_room",
        "_run",
        "_settled_beyond",
        "_turn",
        "_unlooked",
        "_waiting",
        "accepted",
        "delivered",
        "failed",
        "fault",
        "group",
        "guarantee",
        "has_left",
        "holders",
        "is_leaving",
        "is_moving",
        "layers",
        "listeners",
        "name",
        "packs",
        "repeated",
        "schema",
        "sent",
        "settled",
        "slow",
        "stable",
        "tuning",
        "unreadable",
        "view",
        "watchers",
    )

    def __init__(self, host: MemberHost, name: str, group: GroupId, schema: str, guarantee: Guarantee) -> None:
        self.name = name
        self.group = group
        self.schema = schema
        self.guarantee = guarantee
        self.layers: tuple[Layer, ...] = guarantee.make_layers()
        self.slow = SlowMembers.ISOLATE
        self.tuning: Tuning | None = None
        # A listener wants messages uncut: the group is joined with `packed`.
        self.packs = False
        self.holders = 0
        # The last holder has left, but the group may still deliver. Drop that: new holders must not get it.
        self.is_leaving = False
        # While leaving: whether the node is out of the group, so that nothing more is delivered.
        self.has_left = False
        # In a new life with another service, whose group for the topic is not known yet: nothing can be sent.
        self.is_moving = False
        self.accepted = 0
        self.settled = 0
        self.stable = 0
        self.sent = 0
        self.delivered = 0
        self.failed = 0
        self.repeated = 0
        self.unreadable = 0
        self.view: TopicView | None = None
        self.listeners: tuple[Listener, ...] = ()
        self.watchers: tuple[deque[TopicView], ...] = ()
        self.fault: Exception | None = None
        self._changed: asyncio.Event | None = None
        self._host = host
        # The life that numbered the accepted messages, and the first number.
        self._accepted_life: Member | None = None
        self._first = 0
        # Settled messages behind some that are not.
        self._settled_beyond: RangeSet | None = None
        self._failure: SendFailed | None = None
        self._turn: asyncio.Lock | None = None
        self._waiting = 0
        # Messages that were accepted and that the node gets before anything else, and room for more of them.
        self._run: list[bytes] | None = None
        self._room = 0
        # Messages until the next look at the clock.
        self._unlooked = 0
        # Whether the last messages share frames with those that follow, so that these may be collected.
        self._is_queued = False

    def name_of(self, group: GroupId) -> str:  # noqa: ARG002
        """Return the name of the topic, whatever its group is now."""
        return self.name

    @property
    def is_settled(self) -> bool:
        """Whether all that was sent is confirmed or reported as failed."""
        return self.settled >= self.accepted

    @property
    def numbered(self) -> int:
        """How many messages this life has numbered in the topic, including those before this seat was made."""
        return self.accepted if self._accepted_life is not None else self._host.next_sequence(self.group)

    def join_command(self) -> JoinGroup:
        """Make the command that enters the topic's group with its guarantee."""
        guarantee = self.guarantee
        return JoinGroup(
            self.group, NO_CHANNEL, (), self.slow, self.packs, guarantee.transport, self.layers, self.tuning
        )

    # Sending.

    def send_one(self, payload: bytes) -> Coroutine[Any, Any, None]:
        """Send a message as `send` does, at once if there is room; what is returned is done then."""
        if not self.try_send_one(payload):
            return self.send((payload,))
        if self._run and self._unlooked > 0:
            self._unlooked -= 1
            return DONE
        step = self._host.sender_turns.look()
        self._unlooked = step - 1
        return DONE if step else self._give_way()

    def try_send_one(self, payload: bytes) -> bool:
        """Send a message if there is room now; return whether it was sent.

        What follows other messages in a turn of the loop is collected, so that the node takes it as one run.
        """
        run = self._run
        if run is not None and not self.is_moving:
            size = len(payload) + MESSAGE_BYTES
            if size <= self._room:
                self._room -= size
                run.append(payload)
                return True
        if not self.try_send((payload,)):
            return False
        if self._is_queued:
            room = self._host.collect(self.group, self._hand_over)
            if room:
                self._run, self._room = [], min(room, RUN_BYTES_MAX)
        return True

    def end_run(self) -> None:
        """Hand over what was collected, so that it is numbered and counted."""
        if self._run is not None:
            self._host.end_run()

    def _hand_over(self) -> None:
        run, self._run = self._run, None
        if not run:
            return
        try:
            self._host.submit(SendMessages(self.group, run))
        except Exception as error:
            # It must not be; but what was accepted is never lost in silence.
            self._fail_run(run, error)
            if not isinstance(error, UsageError):
                raise
        else:
            self._count(len(run))

    def _fail_run(self, run: list[bytes], cause: Exception) -> None:
        """Report collected messages, which the node will never get, as failed."""
        self.sent += len(run)
        self.failed += len(run)
        self._failure = SendFailed(self.group, self.accepted, self.accepted + len(run), None, str(cause))
        self.notify()

    def try_send(self, payloads: Sequence[bytes], measured: tuple[int, int] | None = None) -> bool:
        """Send messages if there is room now; return whether they were sent."""
        # Senders that wait go first.
        return not self._waiting and self._submit(payloads, measured, None)

    def _submit(
        self, payloads: Sequence[bytes], measured: tuple[int, int] | None, heads: Sequence[bytes] | None
    ) -> bool:
        if not self.holders:
            raise ClosedError(f"topic {self.name} was left; enter it again")
        if self.fault is not None:
            raise self.fault
        if self.is_moving:
            return False
        host = self._host
        try:
            self._is_queued = host.send(SendMessages(self.group, payloads, measured, heads))
        except NotNowError:
            return False
        self._count(len(payloads))
        return True

    def _count(self, count: int) -> None:
        """Count messages that the node just took."""
        host = self._host
        life = host.member
        if life is not self._accepted_life and life != self._accepted_life:
            # Not from 0 where this life sent to the group before this seat was made.
            self._begin_numbers(life, host.next_sequence(self.group) - count)
        self.accepted += count
        self.sent += count

    async def send(
        self,
        payloads: Sequence[bytes],
        measured: tuple[int, int] | None = None,
        heads: Sequence[bytes] | None = None,
    ) -> None:
        """Send messages; wait while there is no room. If cancelled while waiting, nothing was sent."""
        if self._waiting or not self._submit(payloads, measured, heads):
            if measured is not None:
                # The caller may reuse its list while we wait, which would invalidate the measurement.
                payloads = payloads[:]
            self._waiting += 1
            if self._turn is None:
                self._turn = asyncio.Lock()
            try:
                async with self._turn:
                    while not self._submit(payloads, measured, heads):
                        await self._host.wait_for_room()
            finally:
                self._waiting -= 1
        if not self._host.sender_turns.look():
            await self._give_way()

    async def _give_way(self) -> None:
        await asyncio.sleep(0)
        self._host.sender_turns.on_yielded()

    def send_headed(self, payloads: Sequence[bytes]) -> Coroutine[Any, Any, None]:
        """Send recorded messages, each behind its head. The topic's guarantee must have heads."""
        (layer,) = (each for each in self.layers if each.is_headed)
        sizes = [layer.head_bytes(each) for each in payloads]
        bare = [each[size:] for each, size in zip(payloads, sizes, strict=True)]
        return self.send(bare, heads=[each[:size] for each, size in zip(payloads, sizes, strict=True)])

    # What became of messages.

    def on_confirmed(self, first: int, stop: int) -> None:
        """Note that these messages are confirmed."""
        self.stable += max(0, stop - max(first, self._first))
        self._settle(first, stop)

    def on_failed(self, event: SendFailed) -> None:
        """Note that these messages may not have arrived."""
        self.failed += event.stop - event.first
        self._failure = event
        self._settle(event.first, event.stop)

    def _settle(self, first: int, stop: int) -> None:
        if first > self.settled:
            # Another region settled a later message first.
            if self._settled_beyond is None:
                self._settled_beyond = RangeSet()
            self._settled_beyond.add_range(first, stop)
            return
        self.settled = max(self.settled, stop)
        if self._settled_beyond:
            for start, end in list(self._settled_beyond.ranges()):
                if start > self.settled:
                    break
                self.settled = max(self.settled, end)
            self._settled_beyond.discard_range(0, self.settled)
        self.notify()

    async def flush(self) -> None:
        """Wait until all that was sent is settled; raise `SendFailedError` if something failed."""
        self.end_run()
        life, target = self._accepted_life, self.accepted
        while self._failure is None and self.settled < target and self._accepted_life == life:
            if self.fault is not None:
                raise self.fault
            await self.wait_for_change()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise SendFailedError(
                f"messages {failure.first} to {failure.stop - 1} of {self.name} may not have reached "
                f"{'all members' if failure.receiver is None else f'node {failure.receiver}'}: {failure.cause}"
            )

    def notify(self) -> None:
        """Wake all tasks that wait for a change."""
        if self._changed is not None:
            self._changed.set()

    async def wait_for_change(self) -> None:
        """Wait until something about this seat changes."""
        if self._changed is None:
            self._changed = asyncio.Event()
        self._changed.clear()
        await self._changed.wait()

    def close(self, fault: Exception) -> None:
        """From now on refuse to send with this error; raise it in tasks that wait for a confirmation."""
        self.end_run()
        run, self._run = self._run, None
        if run:
            # The driver is closed, and asked for them no more.
            self._fail_run(run, fault)
        self.fault = fault
        self.notify()

    def disown(self, fault: Exception) -> None:
        """In a forked child, refuse to send with this error. Tasks that waited for room wait in the parent."""
        self.fault, self._waiting, self._turn, self._run = fault, 0, None, None

    # Receiving.

    def on_delivery(self, delivery: Delivery, is_own: bool) -> None:
        """Hand a run of messages to the listeners."""
        self.delivered += len(delivery.payloads)
        if self.is_leaving:
            return
        if self.packs and isinstance(delivery.payloads, PackedRun):
            self._put_packed(delivery, delivery.payloads)
            return
        for listener in self.listeners:
            if not is_own or listener.wants_own:
                listener.put(delivery)

    def _put_packed(self, delivery: Delivery, run: PackedRun) -> None:
        """Hand an uncut run to listeners, cut once for those that want it cut. Own messages never come packed."""
        plain: Delivery | None = None
        for listener in self.listeners:
            if listener.wants_packed:
                listener.put(delivery)
            else:
                plain = plain or replace(delivery, payloads=run.cut())
                listener.put(plain)

    def on_left_out(self, event: MessagesLeftOut) -> None:
        """Count messages that a layer left out."""
        if event.are_repeated:
            self.repeated += event.stop - event.first
        else:
            self.unreadable += event.stop - event.first

    def interrupt(self, told: MissedMessages) -> None:
        """Report to all listeners that messages are missing."""
        for listener in self.listeners:
            listener.interrupt(told)

    def listen(self, listener: Listener) -> None:
        """Add a listener."""
        self.listeners += (listener,)
        # Layers work on single messages, so runs are cut in any case.
        self.packs = self.packs or (listener.wants_packed and not self.layers)

    def unlisten(self, listener: Listener) -> None:
        """Remove a listener, if it is there."""
        self.listeners = tuple(each for each in self.listeners if each is not listener)

    # Views and lives.

    def on_view(self, number: int, members: tuple[Member, ...], changes: MemberChanges) -> None:
        """Install a view, if it is a new one."""
        before = self.view
        if before is None:
            known: tuple[Member, ...] = ()
        elif before.number == number:
            return
        else:
            known = before.members
        self.view = TopicView(self.name, number, members, *changes.between(known, members))
        for watcher in self.watchers:
            watcher.append(self.view)
        for listener in self.listeners:
            listener.on_view(self.view)
        self.notify()

    def on_life_ended(self, life: Member) -> None:
        """Note that a life of the node has ended: there is no view, and the next life numbers from 0."""
        if life == self._accepted_life:
            self._begin_numbers(None)
        self.view = None
        self.notify()

    def move_to(self, group: GroupId) -> None:
        """Move to the group that another service has for the topic; report what is not settled as failed."""
        self.end_run()
        if self.settled < self.accepted:
            cause = "another service took over, and gave the topic another group"
            self.on_failed(SendFailed(self.group, self.settled, self.accepted, None, cause))
        self.group = group
        self._begin_numbers(None)

    def _begin_numbers(self, life: Member | None, first: int = 0) -> None:
        self._accepted_life, self._first = life, first
        self.accepted = self.settled = first
        self.stable = 0
        self._settled_beyond = None
