"""A node in the hands of a program: enters topics, installs views, and follows the domain when its service changes.

Maps names, types and readers (`vivum.live`) to groups and deliveries (`MemberHost`). Design note:
`docs/design/runtime.md`.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, TypeVar, overload
from weakref import WeakSet

from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint, GroupId, Member
from vivum.core.machine import Command, Delivery, Event, InstallView
from vivum.core.ranges import RangeSet
from vivum.core.text import check_text
from vivum.core.time import MILLISECOND
from vivum.core.topic_names import check_name, check_pattern, is_pattern
from vivum.guarantees import DEFAULT, Guarantee, guarantee_of
from vivum.live.browsing import Browser, NodeInfo, TopicInfo
from vivum.live.described import JsonType
from vivum.live.failures import (
    ClosedError,
    MissedMessages,
    MissedPolicy,
    NoServiceError,
    TypeMismatch,
    missed_handler,
)
from vivum.live.inbox import Inbox
from vivum.live.measuring import node_metrics
from vivum.live.messages import check_fit, codec_of
from vivum.live.replay.back_copies import ReplayLine
from vivum.live.replay.catching_up import CatchingUp, ReplayStart
from vivum.live.reporting import Reporter
from vivum.live.seat import Listener, MemberChanges, Seat, install_views
from vivum.live.statistics import NodeStatistics
from vivum.live.subscription import Subscription
from vivum.live.topic import Topic
from vivum.live.tracing import NodeTrace
from vivum.protocols.commands import (
    GapReported,
    GroupsLeft,
    LeaveGroup,
    LifeBegan,
    LifeEnded,
    MessagesLeftOut,
    SendConfirmed,
    SendFailed,
    SlowMembers,
    Tuning,
)
from vivum.protocols.directory.client import AskAnew
from vivum.protocols.discovery.finder import ServiceFound
from vivum.runtime.member_host import HostOptions, MemberHost
from vivum.runtime.metrics import MetricsServer
from vivum.wire.directory import LoadReport, TopicEntry, TopicRecord

T = TypeVar("T")

RECEIVE_BYTES_MAX = 64 * 1024 * 1024
"""Default limit of the bytes that may wait for the reader of a topic."""

LEAVE_S = 0.5
"""How long `close` waits for the service to confirm that the node has left."""


FORKED = "is in the process that this one was forked from"

_handles: "WeakSet[NodeHandle]" = WeakSet()


def _disown_all() -> None:
    for each in list(_handles):
        each.disown()


# A hook, so that sending need not compare process ids each time.
os.register_at_fork(after_in_child=_disown_all)


def _tuning_of(guarantee: Guarantee, deadline_ms: float | None, repair: tuple[int, int] | None) -> Tuning | None:
    """Return the wishes for a topic; raises `UsageError` where its guarantee takes none."""
    if deadline_ms is None and repair is None:
        return None
    if not guarantee.is_tunable:
        raise UsageError(f"deadline_ms= and repair= are for timely topics; this one is {guarantee!r}")
    if deadline_ms is not None and not deadline_ms >= 0:
        raise UsageError(f"deadline_ms is {deadline_ms}; expected a number of milliseconds, 0 for none")
    return Tuning(None if deadline_ms is None else int(deadline_ms * MILLISECOND), repair)


async def _all_or_none(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all of these at once. If one fails, cancel the others, wait for their end, and raise its error."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class NodeHandle:
    """A node of a domain. Made by `vivum.connect`; an async context manager that leaves the domain at its end."""

    def __init__(self, domain: str, options: HostOptions, trace: NodeTrace | None = None) -> None:
        self.domain = domain
        self.name = options.name
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._is_forked = False
        self._seats: dict[str, Seat] = {}
        self._by_group: dict[GroupId, Seat] = {}
        self._topics: dict[Any, None] = {}
        self._subscriptions: dict[Any, None] = {}
        self._entering: dict[Seat, None] = {}
        self._changes = MemberChanges()
        self._life: Member | None = None
        self._service: Endpoint | None = None
        # Changes of the service whose groups the seats do not have yet.
        self._moves = 0
        self._progress = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        # Why the node is closed, once it is.
        self._end = "was closed"
        self._trace = trace
        self._replay_line: ReplayLine | None = None
        self._metrics: MetricsServer | None = None
        self._host = MemberHost(
            options, self._on_delivery, self._on_view, self._on_event, self._progress.set, self._on_failed, trace
        )
        if trace is not None:
            trace.watch(self._host)
        self._browser = Browser(self._host, self._loop)
        reporter = Reporter(self, self._host.parts.counters)
        self._host.parts.surveyor.report = reporter.report_load
        self._host.parts.surveyor.report_sending = reporter.report_sending
        self._host.start()
        _handles.add(self)

    # What is known.

    @property
    def member(self) -> Member | None:
        """This life of this node: id and incarnation. None while it is out of the domain."""
        return self._life

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint for unicast datagrams; other nodes can use it as a seed."""
        return self._host.endpoint

    @property
    def carries_service(self) -> bool:
        """Whether the domain's configuration service runs in this process."""
        return self._host.carries_service

    def statistics(self) -> NodeStatistics:
        """Return what the node has done so far, and its present state."""
        host, info = self._host, self._host.service_info
        return NodeStatistics(
            self._life,
            self.domain,
            host.endpoint,
            None if info is None else info.endpoint,
            self.carries_service,
            sum(1 for seat in self._seats.values() if seat.holders),
            host.settings.frame_bytes_max,
            host.settings.window_frames,
            host.receive_buffer_bytes,
            host.lost_on_purpose,
            *host.shared_frames,
            host.counters.as_dict(),
            host.parts.qsm.memory(),
        )

    async def topics(self, pattern: str = "/**") -> list[TopicInfo]:
        """List the topics of the domain that match a pattern, by name: `await node.topics("/swx/**")`."""
        self.check_open()
        return await self._browser.topics(check_pattern(check_text(pattern, "pattern")))

    async def nodes(self) -> list[NodeInfo]:
        """List the nodes of the domain."""
        self.check_open()
        return await self._browser.nodes()

    async def loads(self, timeout_s: float = 0.5) -> list[LoadReport]:
        """Ask all nodes of the domain for their load; return the answers that come within this time, by node."""
        return await self._browser.loads(await self.nodes(), timeout_s)

    async def serve_metrics(self, place: Endpoint) -> Endpoint:
        """Serve Prometheus metrics and probes until the node is closed; return where. `connect(metrics=)` does."""
        self.check_open()
        if self._metrics is not None:
            raise UsageError(f"node {self.name!r} serves metrics already")
        self._metrics = MetricsServer(
            lambda: node_metrics(self.statistics(), self.name), lambda: self._life is not None
        )
        return await self._metrics.start(place)

    # Joining.

    async def join(self, timeout_s: float) -> None:
        """Wait until the node is in the domain; `connect` does."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._until(lambda: self._life is not None)
        except TimeoutError:
            options = self._host.options
            where = "the beacon channel" if options.multicast else "no multicast"
            seeds = ", ".join(map(str, options.seeds)) or "no seeds"
            advice = (
                "let one node be a seed, or start `vivum up`"
                if options.embedded
                else "start `vivum up`, pass seeds=, or let embedded=True carry one"
            )
            raise NoServiceError(
                f"no configuration service of domain {self.domain!r} answered within {timeout_s:g} s "
                f"({where} on {options.interface}, {seeds}); {advice}"
            ) from None

    @overload
    async def enter(self, name: str, *, guarantee: Guarantee | str = ...) -> Topic[bytes]: ...

    @overload
    async def enter(
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
    ) -> Topic[T]: ...

    @overload
    async def enter(
        self,
        name: str,
        kind: JsonType,
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
    ) -> Topic[bytes]: ...

    async def enter(self, name: str, kind: Any = bytes, **options: Any) -> Any:
        """Enter a topic, which is created if it does not exist. Returns when this node is in its view.

            quotes = await node.enter("/swx/NESN", Quote, guarantee=vivum.RELIABLE)

        `kind` is `bytes` or a `vivum.Message` type, `guarantee` what the topic promises, as an entry
        (`vivum.RELIABLE`) or by name (`"reliable"`); both must fit those with which it was created. With
        `receive=False` the node only sends. With `own=False` the reader does not get the node's own messages. At most
        `receive_bytes_max` bytes wait for the reader; above that, reading raises `MissedMessages`, or with
        `drop_oldest=True` (the default for best effort) the oldest are dropped and counted. `on_missed` decides what
        happens where messages are missing: "raise" (`MissedMessages`, the default), "log", or a function that is
        called. `slow` decides what happens to members that cannot keep up with what this node sends. With `replay` the
        reader first gets back copies from a recorder: "all" that it has, or those from an offset of its log (int) or
        from a time (datetime, or seconds since 1970 as a float); then the live stream, without gap or duplicate. Raises
        `NoRecorderError`.

        In a timely topic, `deadline_ms` gives up what is missing for longer, and reports it; `repair=(r, c)` is what
        this node spends on repairs: of every r frames an XOR goes to c members. The last to enter here decides.
        """
        (topic,) = await self.enter_many([name], kind, **options)
        return topic

    async def enter_many(
        self,
        names: Iterable[str],
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
    ) -> list[Topic[T]]:
        """Enter many topics of one type at once; arguments as for `enter`. Thousands take little longer than one.

        topics = await node.enter_many([f"/swx/{symbol}" for symbol in symbols], Quote, receive=False)
        """
        wanted = [self._checked_name(name) for name in names]
        promised = guarantee_of(guarantee)
        tuning = _tuning_of(promised, deadline_ms, repair)
        codec = codec_of(kind)
        drops = not promised.is_gap_free if drop_oldest is None else drop_oldest
        handler = self._safely(missed_handler(on_missed))
        made: list[Topic[T]] = []

        def listen(seat: Seat) -> Listener | None:
            inbox = Inbox(seat.name, receive_bytes_max, drops, own, handler)
            catching_up = None if replay is None or not receive else CatchingUp(self, seat, inbox, replay)
            topic = Topic(self, seat, codec, receive=receive, inbox=inbox, catching_up=catching_up)
            made.append(topic)
            return topic.listener

        await self.take_seats(wanted, codec.schema, promised, listen, slow, tuning)
        self._topics |= dict.fromkeys(made)
        try:
            if replay is not None:
                await _all_or_none([topic.begin_replay() for topic in made])
        except BaseException:
            for topic in made:
                topic.let_go()
            raise
        return made

    @overload
    def subscribe(
        self,
        pattern: str,
        *,
        receive_bytes_max: int = ...,
        drop_oldest: bool | None = ...,
        on_missed: MissedPolicy = ...,
    ) -> Subscription[bytes]: ...

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
    ) -> Subscription[T]: ...

    def subscribe(
        self,
        pattern: str,
        kind: Any = None,
        *,
        guarantee: Guarantee | str | None = None,
        receive_bytes_max: int = RECEIVE_BYTES_MAX,
        drop_oldest: bool | None = None,
        on_missed: MissedPolicy = "raise",
    ) -> Subscription[Any]:
        """Receive from all topics that match a pattern (`/swx/*`, `/swx/**`), including those that appear later.

            async with node.subscribe("/swx/*", Quote) as quotes:
                async for event in quotes:
                    print(event.topic, event.value.bid)

        Topics of another type or guarantee are skipped and counted. Without `kind`, topics of every type and guarantee
        are entered, and values are the encoded bytes (`Subscription.schema_of`). Use it with `async with`.
        """
        self.check_open()
        if kind is None and guarantee is not None:
            raise UsageError("guarantee= needs a type; without one, topics of every guarantee are entered")
        promised = None if kind is None else guarantee_of(guarantee or DEFAULT)
        drops = drop_oldest if drop_oldest is not None else promised is not None and not promised.is_gap_free
        inbox = Inbox(pattern, receive_bytes_max, drops, on_missed=self._safely(missed_handler(on_missed)))
        checked = check_pattern(check_text(pattern, "pattern"))
        codec = codec_of(bytes if kind is None else kind)
        subscription: Subscription[Any] = Subscription(self, checked, codec, promised, inbox)
        self._subscriptions[subscription] = None
        return subscription

    @staticmethod
    def _checked_name(name: str) -> str:
        if is_pattern(name):
            raise UsageError(f"{name!r} is a pattern; use node.subscribe(pattern, type) to receive from all that match")
        return check_name(check_text(name, "topic"))

    # Seats.

    async def take_seats(
        self,
        names: Sequence[str],
        schema: str,
        guarantee: Guarantee,
        listen: Callable[[Seat], Listener | None],
        slow: SlowMembers | None = None,
        tuning: Tuning | None = None,
    ) -> list[Seat]:
        """Take a seat in each topic: find its group, check type and guarantee, listen, and join.

        `listen` returns the listener of a seat, or None. Returns when the node is in the view of each topic;
        `give_back` must follow for each. If anything fails, all are given back.
        """
        seats = await self._find_seats(names, schema, guarantee)
        taken: list[tuple[Seat, Listener | None]] = []
        try:
            for seat in seats:
                listener = listen(seat)
                seat.holders += 1
                taken.append((seat, listener))
                if listener is not None:
                    seat.listen(listener)
            await self._join_seats(seats, slow, tuning)
        except BaseException:
            for seat, listener in taken:
                self.give_back(seat, listener)
            raise
        return seats

    def give_back(self, seat: Seat, listener: Listener | None) -> None:
        """Give a seat back. The node leaves the group when nobody here holds the seat any more."""
        seat.holders -= 1
        if listener is not None:
            seat.unlisten(listener)
        if not seat.holders and not self._is_closed:
            self._entering.pop(seat, None)
            seat.view = None
            # If it is leaving already, no new stay has begun since, and the node may be out.
            seat.is_leaving = True
            # An expelled seat has no group any more: its number may be another topic's.
            if self._seats.get(seat.name) is seat:
                self._host.submit(LeaveGroup(seat.group))
                self._forget_if_done(seat)

    async def _find_seats(self, names: Sequence[str], schema: str, guarantee: Guarantee) -> list[Seat]:
        """Return the seats of topics, created where needed; check that type and guarantee fit."""
        self.check_open()
        # Repeat if a seat that nobody held was forgotten while we asked for others.
        while unknown := [name for name in dict.fromkeys(names) if name not in self._seats]:
            entries = [TopicEntry(name, schema, guarantee.name) for name in unknown]
            records, service = None, self._service
            while records is None or service != self._service:
                # Groups belong to one service: ask again if another one replaced it meanwhile.
                service = self._service
                records = await self._browser.enter(entries)
            for record in records:
                if record.name not in self._seats:
                    check_fit(record.name, schema, guarantee.name, record.schema, record.guarantee)
                    self._add_seat(record, schema, guarantee)
        seats = [self._seats[name] for name in names]
        for seat in seats:
            check_fit(seat.name, schema, guarantee.name, seat.schema, seat.guarantee.name)
        return seats

    def _add_seat(self, record: TopicRecord, schema: str, guarantee: Guarantee) -> None:
        # Topics of one type share the text of its schema.
        shared = schema if record.schema == schema else record.schema
        seat = Seat(self._host, record.name, GroupId(record.group), shared, guarantee)
        self._seats[record.name] = self._by_group[seat.group] = seat
        if self._trace is not None:
            self._trace.on_topic(seat.name, seat.group, guarantee)

    async def _join_seats(self, seats: Sequence[Seat], slow: SlowMembers | None, tuning: Tuning | None = None) -> None:
        """Join the groups of these seats, and wait until the node is in the view of each."""
        await self._end_former_stays(seats)
        wanted = self._host.client.wanted_groups
        joins = []
        for seat in seats:
            changes = slow is not None and slow is not seat.slow
            if changes and slow is not None:
                seat.slow = slow
            if tuning is not None and tuning != seat.tuning:
                seat.tuning, changes = tuning, True
            if changes or seat.group not in wanted:
                joins.append(seat.join_command())
        self._host.submit_all(joins)
        self._entering |= dict.fromkeys(seat for seat in seats if seat.view is None)
        self._look_at_entering()
        await self._until(lambda: all(seat.view is not None or seat.fault is not None for seat in seats))
        for seat in seats:
            if seat.fault is not None:
                raise seat.fault

    async def _end_former_stays(self, seats: Sequence[Seat]) -> None:
        """Wait until the node has left the groups that it is leaving: a new stay must not overlap the old one."""
        leaving = [seat for seat in seats if seat.is_leaving]
        if leaving:
            await self._until(lambda: not any(seat.group in self._host.client.groups for seat in leaving))
            for seat in leaving:
                if seat.is_leaving:
                    seat.is_leaving, seat.has_left, seat.view = False, False, None

    def _note_left(self, bounds: tuple[int, ...]) -> None:
        """Note that the node has left these groups; forget their seats if nobody needs them any more."""
        groups = RangeSet.from_bounds(bounds)
        few = groups.count() <= len(self._by_group)
        for group in list(groups) if few else [group for group in self._by_group if group in groups]:
            seat = self._by_group.get(GroupId(group))
            if seat is not None and seat.is_leaving:
                seat.has_left = True
                self._forget_if_done(seat)

    def _forget_if_done(self, seat: Seat) -> None:
        """Forget a seat that nobody holds, if its group was left and all that it sent is settled.

        Otherwise they would pile up: a recorder enters a topic for each joiner. Seats with layers stay, because layers
        know what was handed over before.
        """
        is_done = seat.has_left and not seat.holders and seat.is_settled and not seat.layers
        if is_done and self._seats.get(seat.name) is seat:
            del self._seats[seat.name]
            if self._by_group.get(seat.group) is seat:
                del self._by_group[seat.group]

    def forget(self, topic: Any) -> None:
        """Forget a topic or a subscription that was left."""
        self._topics.pop(topic, None)
        self._subscriptions.pop(topic, None)

    def name_of(self, group: GroupId) -> str:
        """Return the name of the topic of a group."""
        seat = self._by_group.get(group)
        # The topic may have another group since the message came.
        return f"group {group}" if seat is None else seat.name

    @property
    def replay_line(self) -> ReplayLine:
        """The line to recorders. It is opened when it is first needed."""
        if self._replay_line is None:
            self._replay_line = ReplayLine(self)
        return self._replay_line

    @property
    def seats(self) -> Collection[Seat]:
        """All topics that this node is in, or was in and has not settled yet."""
        return self._seats.values()

    def seat_of(self, name: str) -> Seat | None:
        """Return the seat of a topic; None if this node is not in it."""
        return self._seats.get(name)

    @property
    def browser(self) -> Browser:
        """The node's access to the directory."""
        return self._browser

    # From the host.

    def _on_delivery(self, delivery: Delivery) -> None:
        seat = self._by_group.get(delivery.group)
        if seat is not None:
            seat.on_delivery(delivery, delivery.sender == self._life)

    def _on_event(self, event: Event) -> None:
        if type(event) is SendConfirmed:
            seat = self._by_group.get(event.group)
            if seat is not None:
                seat.on_confirmed(event.first, event.stop)
                if seat.has_left:
                    self._forget_if_done(seat)
            return
        match event:
            case SendFailed(group):
                seat = self._by_group.get(group)
                if seat is not None:
                    seat.on_failed(event)
                    self._forget_if_done(seat)
            case GroupsLeft(bounds):
                self._note_left(bounds)
            case GapReported(group, sender, first, stop):
                seat = self._by_group.get(group)
                if seat is not None:
                    text = f"messages {first} to {stop - 1} of node {sender} in {seat.name} can no longer be had"
                    seat.interrupt(MissedMessages(text, stop - first, sender, first))
            case MessagesLeftOut(group):
                seat = self._by_group.get(group)
                if seat is not None:
                    seat.on_left_out(event)
            case LifeBegan(member):
                self._life = member
                if self._trace is not None:
                    self._trace.on_life(self._host.now_ns, member)
            case LifeEnded(member):
                self._life = None
                self._on_life_lost(member)
            case ServiceFound(service):
                if self._service is not None:
                    self._moves += 1
                    if self._life is None:
                        self._hold_sends()
                    self._loop.call_soon(self._start, self._enter_anew)
                else:
                    self._service = service.endpoint
            case _:
                self._browser.on_event(event)

    def _on_life_lost(self, life: Member) -> None:
        info, before = self._host.service_info, self._service
        if info is not None and before is not None and info.endpoint != before:
            cause = f"the service of domain {self.domain!r} at {before} was lost or replaced by {info.endpoint}"
        else:
            cause = f"node {life} was dropped from domain {self.domain!r}, or fell too far behind the others"
        text = f"{cause}; it joins again"
        if self._moves:
            self._hold_sends()
        for seat in list(self._seats.values()):
            seat.on_life_ended(life)
            if seat.is_leaving:
                # With the life all its groups have ended.
                seat.has_left = True
                self._forget_if_done(seat)
            if seat.holders:
                self._entering[seat] = None
                seat.interrupt(MissedMessages(f"{text}, and does not get what was sent to {seat.name} meanwhile", None))

    def _on_view(self, install: InstallView) -> None:
        self._install_views((install,))

    def _install_views(self, bundles: Iterable[InstallView]) -> None:
        for seat in install_views(bundles, self._by_group, self._changes):
            self._entering.pop(seat, None)
        self._progress.set()

    def _look_at_entering(self) -> None:
        """Install views at seats that wait for their first, if this node is in their groups already."""
        client = self._host.client
        groups = RangeSet((group, group + 1) for group in sorted(seat.group for seat in self._entering))
        self._install_views(client.bundles(groups.intersection(client.groups)))

    # Following another service.

    def _hold_sends(self) -> None:
        """Hold messages of a new life until its groups are known: the old groups may have no other member."""
        for seat in self._seats.values():
            seat.is_moving = True

    async def _enter_anew(self) -> None:
        """Register our topics with another service, and take the groups that it has for them."""
        try:
            await self._enter_all_again()
        finally:
            self._moves -= 1
            if not self._moves:
                for seat in self._seats.values():
                    seat.is_moving = False
                    seat.notify()

    async def _enter_all_again(self) -> None:
        info = self._host.service_info
        self._service = None if info is None else info.endpoint
        self._host.submit(AskAnew())
        held = [seat for seat in self._seats.values() if seat.holders]
        self._seats = {seat.name: seat for seat in held}
        if not held:
            return
        entries = [TopicEntry(seat.name, seat.schema, seat.guarantee.name, seat.group) for seat in held]
        self._move_seats(await self._browser.enter(entries))
        self._by_group = {seat.group: seat for seat in self._seats.values()}
        if self._trace is not None:
            for seat in self._by_group.values():
                self._trace.on_topic(seat.name, seat.group, seat.guarantee)
        self._look_at_entering()

    def _move_seats(self, records: Iterable[TopicRecord]) -> None:
        """Move seats to the groups that another service has for their topics. A type mismatch ends the stay."""
        moved: list[Seat] = []
        leaves: list[Command] = []
        for record in records:
            seat = self._seats.get(record.name)
            if seat is None:
                # Another service, followed meanwhile, has another type for the topic.
                continue
            if not seat.holders:
                # Left meanwhile. Entering again asks for the group anew.
                del self._seats[record.name]
                continue
            try:
                check_fit(seat.name, seat.schema, seat.guarantee.name, record.schema, record.guarantee)
            except TypeMismatch as error:
                # With this service the old number may be another topic's.
                leaves.append(LeaveGroup(seat.group))
                self._expel(seat, error)
                continue
            if seat.group != record.group:
                leaves.append(LeaveGroup(seat.group))
                seat.move_to(GroupId(record.group))
                moved.append(seat)
        # Leave all groups before joining any: one topic's old group may be another's new one.
        self._host.submit_all(leaves + [seat.join_command() for seat in moved])

    def _expel(self, seat: Seat, error: TypeMismatch) -> None:
        """End a stay in a topic that has another type with another service; raise in all who read, send or wait.

        Entering the topic again makes a new seat, with the type that it has now.
        """
        del self._seats[seat.name]
        self._entering.pop(seat, None)
        seat.view = None
        seat.interrupt(MissedMessages(f"{error}; nothing more comes of {seat.name}", None))
        seat.close(error)

    def _start(self, work: Callable[[], Any]) -> None:
        if self._is_closed:
            return
        task = self._loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, ClosedError):
            self._loop.call_exception_handler({"message": "a task of a vivum node failed", "exception": error})

    def call_safely(self, callback: Callable[[Any], None], argument: Any) -> None:
        """Call back into the application. What it raises is reported, and the node goes on."""
        try:
            callback(argument)
        except Exception as error:
            self._loop.call_exception_handler({"message": "a callback of a topic raised", "exception": error})

    def _safely(self, handler: Callable[[MissedMessages], None] | None) -> Callable[[MissedMessages], None] | None:
        return None if handler is None else lambda told: self.call_safely(handler, told)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.check_open()
            self._progress.clear()
            await self._progress.wait()

    # The end.

    def check_open(self) -> None:
        """Raise `ClosedError` if the node was closed."""
        if self._is_closed:
            raise self.closed_error(f"node {self.name!r} {self._end}")

    @staticmethod
    def closed_error(text: str) -> ClosedError:
        """Return the error for using what was closed or left."""
        return ClosedError(f"{text}; connect or enter again")

    async def close(self) -> None:
        """Leave the domain and close the sockets. Messages that are not stable yet may be lost: flush first."""
        if self._is_closed:
            return
        self._let_go()
        try:
            await self._host.close(LEAVE_S)
        finally:
            self.close_now()

    def close_now(self) -> None:
        """Close the sockets without leaving. Other nodes notice the silence."""
        if self._is_forked:
            return
        if not self._is_closed:
            self._let_go()
        self._host.close_now()
        for seat in self._seats.values():
            seat.close(self.closed_error(f"node {self.name!r} {self._end}"))
        if self._trace is not None:
            self._trace.close(self._host.now_ns)

    def _on_failed(self, error: Exception) -> None:
        """End the node after a fault: raise in all who read, send or wait."""
        self._end = f"stopped by a fault ({type(error).__name__}: {error})"
        for seat in list(self._seats.values()):
            if seat.holders:
                seat.interrupt(MissedMessages(f"node {self.name!r} {self._end}; nothing more comes", None))
        self.close_now()

    def _let_go(self) -> None:
        self._is_closed = True
        for each in [*self._subscriptions, *self._topics]:
            each.let_go()
        self._browser.close()
        if self._metrics is not None:
            self._metrics.close()
        for task in self._tasks:
            task.cancel()
        self._progress.set()

    def disown(self) -> None:
        """Refuse all use in a forked child: sockets and selector belong to the parent."""
        self._is_closed = self._is_forked = True
        self._end = FORKED
        for seat in self._seats.values():
            seat.disown(self.closed_error(f"node {self.name!r} {self._end}"))
        for each in [*self._subscriptions, *self._topics]:
            each.disown()

    async def __aenter__(self) -> "NodeHandle":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
