"""QSM as one machine: the node's membership, its region views, its streams out and in.

Design note: `docs/design/qsm.md`. The machine routes: frames to the region view in their header, messages to the
streams of their group's regions, view changes to everybody. What is due is noted, and made in `make_frames` from
the state of that moment.
"""

from collections import deque

from vivum.core.errors import LimitError, NotNowError
from vivum.core.ids import Channel, Endpoint, GroupId, Incarnation, Member, NodeId, ViewNumber
from vivum.core.limits import Limits
from vivum.core.machine import Command, Datagram, Delivery, Effect
from vivum.core.ranges import RangeSet
from vivum.protocols.commands import (
    GroupsEntered,
    GroupsLeft,
    JoinGroup,
    LeaveGroup,
    LifeBegan,
    LifeEnded,
    SendMessages,
    SlowMembers,
)
from vivum.protocols.dissemination.channels import Channels
from vivum.protocols.dissemination.ways import choose_destinations
from vivum.protocols.membership.client.changes import ConfigurationChanged, Removed, Welcomed
from vivum.protocols.membership.client.client import ClientState, MembershipClient
from vivum.protocols.membership.client.health import LocalHealth
from vivum.protocols.membership.region_config import RegionConfig
from vivum.protocols.qsm.departures import note_departures
from vivum.protocols.qsm.memory import MemoryHeld, MemoryWatch, measure_memory
from vivum.protocols.qsm.region import RegionMember
from vivum.protocols.qsm.send.control_frames import ControlFrames
from vivum.protocols.qsm.send.hybrid import pick
from vivum.protocols.qsm.send.sender import Sender
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.streams.marks import streams_before
from vivum.protocols.streams.receiver import Receiver
from vivum.protocols.streams.region_sender import RegionSender, SendRoute, ViewKey
from vivum.protocols.streams.runs import ReceiveRoute, ReceiveRoutes, take_run
from vivum.protocols.streams.sender_fifo import NEVER
from vivum.protocols.streams.taps import FrameTap, as_repair
from vivum.wire.codec import Frame, FrameBuilder, measure, single_frames
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind
from vivum.wire.rings import TokenReceipt
from vivum.wire.tokens import RegionReport, StreamProgress, Token

SUSPECTS_MAX = 3
"""Members of a silent region that are reported at once."""

HOUSEKEEPING_NS = 100_000_000
"""How often stuck streams, replaced views and silent members are checked: their timeouts are seconds."""


class QsmMachine:
    """Reliable multicast to many groups through regions of overlap."""

    transport = "qsm"
    kinds = frozenset({Kind.DATA, Kind.SPREAD, Kind.RESENT, Kind.ACK, Kind.HEARTBEAT, Kind.TOKEN, Kind.CONFIGURATION})
    commands = frozenset({JoinGroup, LeaveGroup, SendMessages})

    def __init__(
        self,
        client: MembershipClient,
        gate: Gate,
        settings: QsmSettings | None = None,
        limits: Limits | None = None,
        builder: FrameBuilder | None = None,
    ) -> None:
        """Prepare. If there is a `builder`, it makes the frames; its frames must have the settings' size."""
        self.effects: list[Effect] = []
        self.settings = settings or QsmSettings()
        self.limits = limits or Limits()
        self.counters = gate.counters
        self.client = client
        self.identity: Member | None = None
        self.regions: dict[ViewKey, RegionMember] = {}
        # Endpoints of senders that left before we joined, from their first own frame. They are no members: only their
        # own streams are accepted from there.
        self.homes: dict[Member, Endpoint] = {}
        # Called with every new frame of other nodes' streams after it was taken: whole runs, repairs included.
        self.taps: tuple[FrameTap, ...] = ()
        self.sending = Sender(self.settings, self.limits, gate.counters, self.effects, builder)
        self._control_frames = ControlFrames(gate, self.limits, self.sending)
        self._gate = gate
        self._channels = Channels(self.settings.means, self.settings.spread_delay_ns, self.settings.linger_ns)
        self._now_ns = 0
        self._started = False
        self._fifos = Receiver(self.limits, self.counters, lambda: client.epoch)
        self._early: deque[tuple[Endpoint, Frame]] = deque(maxlen=self.settings.early_frames_max)
        self._housekeeping_ns: int | None = None
        self._memory_watch = MemoryWatch(self.settings)
        self._health = LocalHealth(HOUSEKEEPING_NS, 10 * HOUSEKEEPING_NS)
        self._progress: list[RegionSender] = []
        self._joined: RangeSet = RangeSet()
        # Routes of messages and frames, valid until the configuration changes or a region view ends.
        self._routes: dict[GroupId, SendRoute] = {}
        # When regions that this node sends to without being a member last reported, or had nothing to report.
        self._reported_ns: dict[ViewKey, int] = {}
        self._receive_routes: ReceiveRoutes = {}

    def memory(self) -> MemoryHeld:
        """Return what is kept in memory. Adds it up, so do not call it for every datagram."""
        return measure_memory(self.sending.waiting_bytes, self.sending.streams.values(), self.regions.values())

    @property
    def held_bytes(self) -> int:
        """Bytes of messages and frames that are kept."""
        return self.memory().total_bytes

    @property
    def member(self) -> Member | None:
        """This life of this node, as the configuration service gave it."""
        return self.client.member

    # Commands.

    def submit(self, now_ns: int, command: Command) -> None:
        """Join, leave or send."""
        self._now_ns = now_ns
        if not self._started:
            self._started = True
            if self.client.state is ClientState.IDLE:
                self.client.start(now_ns)
        if type(command) is SendMessages:
            self._send(command)
        elif isinstance(command, JoinGroup):
            self.sending.treat_slow(command.group, command.slow)
            self._fifos.pack(command.group, command.packed)
            self.client.subscribe(now_ns, RangeSet([(command.group, command.group + 1)]))
        elif isinstance(command, LeaveGroup):
            self.sending.treat_slow(command.group, SlowMembers.ISOLATE)
            self._fifos.pack(command.group, False)
            self.client.unsubscribe(now_ns, RangeSet([(command.group, command.group + 1)]))

    def _send(self, command: SendMessages, at_once: list[Datagram] | None = None) -> None:
        """Take messages. If they can leave before all else, their frame is added to a list `at_once`."""
        group, payloads = command.group, command.payloads
        if command.measured is None and not isinstance(payloads, (list, tuple)):
            payloads = list(payloads)
        size, largest = command.measured or measure(payloads)  # type: ignore[arg-type]
        now_ns, me, first = self._now_ns, self.client.member, None
        limit = self.limits.message_bytes_max
        if largest > limit:
            raise LimitError(f"a message of {largest} bytes is over message_bytes_max={limit}")
        route = self._routes.get(group) or self._find_route(group)
        assert me is not None
        if at_once is not None:
            header = (Kind.DATA, self._gate.domain, *me)
            first = self.sending.send_alone(now_ns, header, group, payloads, size, route, at_once)
        if first is not None:
            region = self.regions.get(route[1][0].key)
            if region is not None:
                region.on_sent(now_ns)
        else:
            channel = self._channels.spread_channel_of(now_ns, group)
            first = self.sending.accept(group, payloads, size, route[1], route[0], channel)
        self.effects.append(Delivery(group, me, first, payloads, route[0], now_ns))

    def next_sequence(self, group: GroupId) -> int:
        """Return the number that the next own message of a group gets."""
        return self.sending.next_message_of(group)

    def room_bytes(self, group: GroupId) -> int:
        """Return how many bytes of messages of a group are sure to be accepted, until the next input."""
        route = self._routes.get(group)
        # One message may have them all.
        return 0 if route is None else min(self.sending.room_bytes(group, route[1]), self.limits.message_bytes_max)

    def view_of(self, group: GroupId) -> ViewNumber:
        """Return the view in which the next own message of a group is sent."""
        return self.client.group_view(group)

    def spread_channel_of(self, now_ns: int, group: GroupId) -> Channel | None:
        """Return the channel on which all members of a group listen now, if it goes the hybrid way."""
        return self._channels.spread_channel_of(now_ns, group)

    def _find_route(self, group: GroupId) -> SendRoute:
        """Find the streams that messages must go into: one for each region of the group that has other members."""
        me = self.member
        if me is None or group not in self._joined:
            raise NotNowError(f"group {group} is not entered yet; wait for its first view, or join it")
        streams = []
        for config in self.client.regions_of(group):
            if any(member != me and not config.lacks_group(member, group) for member in config.members):
                stream = self.sending.streams.get((config.region, config.view))
                streams.append(self._open_stream(config, me) if stream is None or stream.closing else stream)
        route = self._routes[group] = (ViewNumber(self.client.group_view(group)), tuple(streams))
        return route

    def _open_stream(self, config: RegionConfig, me: Member) -> RegionSender:
        others = [member.node for member in config.members if member.node != me.node]
        endpoints = self.client.endpoints
        destinations = choose_destinations(others, config.channel, endpoints, self.settings.multicast)
        stream = self.sending.open(config, destinations)
        if stream.key in self.regions:
            self.regions[stream.key].send_by(stream)
        return stream

    # Frames.

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a well-formed frame: find what it is about, and act by kind."""
        self._now_ns = now_ns
        kind = frame.kind
        if kind == Kind.DATA or kind == Kind.RESENT:
            self._on_data(source, frame)
        elif kind == Kind.SPREAD:
            self.on_frames(now_ns, source, [frame])
        elif kind == Kind.CONFIGURATION:
            self.client.on_frame(now_ns, source, frame)
            self._follow_client()
        else:
            self._on_control(source, frame)

    def on_frames(self, now_ns: int, source: Endpoint, frames: list[Frame]) -> None:
        """Take frames that arrived together. Frames that follow each other in a stream are taken as one run."""
        self._now_ns = now_ns
        if frames[0].kind is Kind.SPREAD:
            frames = [mine for frame in frames if (mine := self._pick(source, frame))]
        index = 0
        # Data is dated when it came to this host, however long it waited for us: only that shows the queues on the way.
        came_ns = now_ns - self._gate.waited_ns
        while index < len(frames):
            taken = take_run(self._receive_routes, came_ns, source, frames, index, self.effects)
            if taken:
                if self.taps:
                    self._show(single_frames(frames[index : index + taken]))
                index += taken
            elif frames[index].count > 1:
                # Of those of a train each goes its own way.
                frames = [*frames[:index], *frames[index].cut(), *frames[index + 1 :]]
            else:
                self.on_frame(now_ns, source, frames[index])
                index += 1

    def on_rebuilt(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a data frame that another protocol rebuilt with the help of `source`, as if `source` had repaired it."""
        self._now_ns = now_ns
        frame = as_repair(frame)
        if frame.kind == Kind.RESENT:
            self._on_data(source, frame)
        else:
            self._refuse(source, frame, "rebuilt, but not a frame of one stream")

    def _show(self, frames: list[Frame]) -> None:
        for tap in self.taps:
            tap(self._now_ns, frames)

    def _pick(self, source: Endpoint, frame: Frame) -> Frame | None:
        if (frame.sender, frame.incarnation) == self.member:
            return None
        mine = pick(frame, reversed(self.regions))
        if mine is None and self.member is not None and frame.view > self.client.epoch:
            self._early.append((source, frame))
        elif mine is None:
            self.counters.frames_unwanted += 1  # Of another group on one of our channels, or of views that are over.
        return mine

    def _on_data(self, source: Endpoint, frame: Frame) -> None:
        route = self._receive_routes.get(frame.stream) or self._find_receive_route(source, frame)
        if route is None:
            return
        region, stream, fifo, home = route
        if frame.kind == Kind.DATA:
            is_known = source == home
        else:
            is_known = source in self.client.endpoints.values() or source == self.homes.get(fifo.sender)
        if not is_known:
            self._refuse(source, frame, "not from the endpoint of its sender, nor a repair from a member")
            return
        if not region.on_data(self._now_ns - self._gate.waited_ns, stream, frame):
            return
        if frame.sequence == 0:
            named = streams_before(frame)
            for before in named:
                older = self.regions.get(before)
                if older is not None and before[1] < frame.view:
                    older_stream = older.stream_of(fifo.sender, self._now_ns)
                    if older_stream is not None:
                        older_stream.window.announce(1)
            fifo.on_begin(stream, named)
        fifo.deliver(self.effects)
        if self.taps:
            self._show([frame])

    def _find_receive_route(self, source: Endpoint, frame: Frame) -> ReceiveRoute | None:
        """Find the route of a stream's frames; return None if there is none, or none yet."""
        region = self.regions.get((frame.region, frame.view))
        if region is None:
            if self.member is not None and frame.view > self.client.epoch:
                # From a node that knows of a new view before we do.
                self._early.append((source, frame))
            else:
                self._refuse(source, frame, "of a region view that this node is not in")
            return None
        sender = Member(NodeId(frame.sender), Incarnation(frame.incarnation))
        if sender == self.member:
            return None
        home = self._home_of(region, sender, source, is_word_of_its_own=frame.kind == Kind.DATA)
        if home is None:
            self._refuse(source, frame, "of a sender that nobody vouches for")
            return None
        stream = region.stream_of(sender, self._now_ns)
        if stream is None:
            return None
        route = (region, stream, self._fifos.of(sender), home)
        if sender.node in self.client.endpoints or sender in self.homes:
            self._receive_routes[frame.stream] = route
        return route

    def _home_of(
        self, region: RegionMember, life: Member, source: Endpoint, *, is_word_of_its_own: bool
    ) -> Endpoint | None:
        """Return the endpoint of a life that sends into a region view of ours; None if no member vouches for it.

        A sender that left before we joined is in no configuration of ours. If a token reports its stream, members vouch
        for it: its first own frame shows its endpoint, and it must hear from us what became of its frames. The endpoint
        itself is not verified (`docs/design/qsm.md`, Receiving).
        """
        home = self.client.endpoints.get(life.node) or self.homes.get(life)
        if home is None and life in region.streams:
            if is_word_of_its_own:
                self.homes[life] = source
            home = source
        return home

    def _on_control(self, source: Endpoint, frame: Frame) -> None:
        body = self._gate.decode(self._now_ns, source, frame)
        if body is None:
            return
        key = (frame.region, frame.view)
        if isinstance(body, RegionReport):
            stream = self.sending.streams.get(key)
            me = self.member
            if stream is None or me is None or body.incarnation != me.incarnation or body.stable > stream.next_frame:
                self._refuse(source, frame, "reports on a stream that does not exist")
                return
            reporter = Member(NodeId(frame.sender), Incarnation(frame.incarnation))
            if reporter not in stream.config.members or source != self.client.endpoints.get(reporter.node):
                self._refuse(source, frame, "reports on a region view without being a member of it")
                return
            self.counters.acks_received += 1
            self._reported_ns[key] = self._now_ns
            if (own_region := self.regions.get(key)) is not None:
                own_region.on_report(self._now_ns, body.sharers)
            self.sending.on_report(self._now_ns, stream, body)
            return
        region = self.regions.get(key)
        life = Member(NodeId(frame.sender), Incarnation(frame.incarnation))
        is_own = isinstance(body, StreamProgress)
        if region is None or source != self._home_of(region, life, source, is_word_of_its_own=is_own):
            self._refuse(source, frame, "of a region view that this node is not in, or not from its sender's endpoint")
        elif isinstance(body, StreamProgress):
            region.on_progress(self._now_ns, life, body.stop, body.closed)
        elif isinstance(body, Token | TokenReceipt):
            self._on_token(source, frame, region, life, body)

    def _on_token(
        self, source: Endpoint, frame: Frame, region: RegionMember, life: Member, body: Token | TokenReceipt
    ) -> None:
        ring = region.ladder.find(body.level, body.ring)
        if ring is None or life not in region.config.members:
            self._refuse(source, frame, "of a ring that this node is not in, or from a stranger")
        elif isinstance(body, Token) and (cause := self._fault_of(region, body)) is not None:
            self._refuse(source, frame, cause)
        elif isinstance(body, Token):
            ring.on_token(self._now_ns, life.node, body)
            self._fifos.look_after(region.streams, self.effects)
        else:
            ring.on_receipt(self._now_ns, life.node, body)

    def _fault_of(self, region: RegionMember, token: Token) -> str | None:
        """Check the numbers of a token, which become bounds of loops and floors; return what is wrong, or None."""
        frames_max = self.settings.cache_frames_max + self.settings.window_frames
        for request in token.requests:
            if RangeSet.from_bounds(request.bounds).count() > frames_max:
                return "asks for more frames than caches can have"
        me = self.member
        own_stop = self.sending.next_frame_of((region.config.region, region.config.view))
        for record in token.streams:
            if (record.sender, record.incarnation) == me and record.stop > own_stop:
                return "tells of frames that this node never sent"
        return None

    def _refuse(self, source: Endpoint, frame: Frame, cause: str) -> None:
        self._gate.refuse_state(self._now_ns, source, frame, cause)

    # Views.

    def _follow_client(self) -> None:
        for change in self.client.take_changes():
            self._routes.clear()
            self._receive_routes.clear()
            match change:
                case Welcomed(member):
                    self.identity = member
                    self.effects.append(LifeBegan(member))
                    self._housekeeping_ns = self._now_ns + HOUSEKEEPING_NS
                case Removed(member):
                    self._lose_everything()
                    self.effects.append(LifeEnded(member))
                case ConfigurationChanged():
                    self._reconfigure(change)

    def _reconfigure(self, change: ConfigurationChanged) -> None:
        me = self.member
        assert me is not None
        affected = change.unseen.copy()
        for passed in change.passed:
            # It began and ended before we heard of it. Others sent into it, and rely on us.
            self._enter(passed, me)
            self._replace(passed)
        for region, old in change.before.items():
            new = change.after[region]
            for config in (old, new):
                if config is not None:
                    affected.update(RangeSet.from_bounds(config.groups))
            if old is not None:
                self._replace(old)
            if new is not None and me in new.members:
                self._enter(new, me)
        self._note_groups(me, affected)
        self._fifos.on_views(self.effects)
        present = note_departures(self.client, self.regions.values())
        self._fifos.note_present(present, self.client.epoch)
        for stream in self.sending.streams.values():
            is_open = stream.closing and not stream.is_done
            # We are not told the members of groups that we left ourselves.
            is_heard = is_open and all(group in self.client.groups for group in stream.put)
            if is_heard and present.isdisjoint(stream.config.members):
                # No member is left that could lack anything.
                self.sending.on_region_left(stream)
        self._channels.plan(self._now_ns, self.client.own_region, self.client.regions.values())
        self._listen()
        early, self._early = self._early, deque(maxlen=self.settings.early_frames_max)
        for source, frame in early:
            self.on_frame(self._now_ns, source, frame)

    def _enter(self, config: RegionConfig, me: Member) -> None:
        key = (config.region, config.view)
        region = RegionMember(config, me, self.settings, self.limits, self.counters, self._fifos.add, self._now_ns)
        self.regions[key] = region
        if key in self.sending.streams:
            region.send_by(self.sending.streams[key])

    def _replace(self, old: RegionConfig) -> None:
        """Close a region view that is over: nothing new goes into it, and what was sent into it is completed."""
        key = (old.region, old.view)
        self.sending.close(key, self._now_ns)
        region = self.regions.get(key)
        if region is not None:
            region.replaced_ns = self._now_ns

    def _listen(self) -> None:
        """Open and close channels as region views come and go."""
        self.effects += self._channels.update(self._now_ns, [each.config.channel for each in self.regions.values()])

    def _note_groups(self, me: Member, affected: RangeSet) -> None:
        """Report what changed for the application: groups entered and left, and new group views."""
        own = self.client.own_region
        now_in = RangeSet() if own is None else own.groups_of(me)
        before, self._joined = self._joined, now_in
        entered = now_in.copy()
        entered.difference_update(before)
        left = before.copy()
        left.difference_update(now_in)
        if left:
            self.effects.append(GroupsLeft(tuple(left.bounds())))
        if entered:
            self.effects.append(GroupsEntered(tuple(entered.bounds())))
        for number in left:
            self._fifos.leave_group(number)
        if own is not None:
            self._fifos.enter_groups(entered, own.view)
        # Before anything is delivered: messages that waited for a view may have been blocked by a region that was left.
        self.effects += self.client.bundles(affected.intersection(now_in))
        for region in self.regions.values() if left else ():
            groups = region.config.groups_of(me)
            if all(self._fifos.is_barred(number, region.config.view) for number in groups):
                region.leave()
                self._fifos.deliver(region.streams, self.effects)

    def _lose_everything(self) -> None:
        """End this life, which the domain dropped. Report what was not stable; the next life starts with nothing."""
        self.sending.lose_everything()
        self._forget()
        self._channels.forget()
        self._listen()

    def release(self) -> None:
        """Free all streams, frames and their memory without any report: the node is closed."""
        self.sending.release()
        self._forget()
        self.effects.clear()

    def _forget(self) -> None:
        self.regions.clear()
        self.homes.clear()
        self._routes.clear()
        self._receive_routes.clear()
        self._fifos.clear()
        self._early.clear()
        self._progress.clear()
        self._joined = RangeSet()

    # Time.

    def next_deadline_ns(self) -> int | None:
        """Return when something will be due."""
        if self._fifos.are_behind:
            return self._now_ns
        times = [region.ladder.next_deadline_ns() for region in self.regions.values()]
        others = (self.client.next_deadline_ns(), self.sending.next_deadline_ns(), self._housekeeping_ns)
        times += [each for each in others if each is not None]
        return min(times) if times else None

    def on_timer(self, now_ns: int) -> None:
        """Do what is due."""
        self._now_ns = now_ns
        self.client.on_timer(now_ns)
        self._follow_client()
        self._fifos.go_on(self.effects)
        for region in self.regions.values():
            region.ladder.on_timer(now_ns)
        self._progress += self.sending.on_timer(now_ns)
        if self._housekeeping_ns is not None and now_ns >= self._housekeeping_ns:
            rings = [region.ladder.rings[0] for region in self.regions.values()]
            silent = max(((len(ring.skipped), len(ring.plan.slots) - 1) for ring in rings), default=(0, 0))
            self._health.on_look(now_ns, self._housekeeping_ns, *silent)
            self._housekeeping_ns = now_ns + HOUSEKEEPING_NS
            self._keep_house()

    def _keep_house(self) -> None:
        now_ns = self._now_ns
        if self._fifos.is_any_broken:
            # Others have frames that nobody gave us, as when we never heard of a view: this life cannot go on.
            self.client.start_over(now_ns)
            return
        for key, region in list(self.regions.items()):
            for sender, stream in region.streams.items():
                if stream.is_beyond_help(now_ns):
                    if not stream.sender_gone:
                        # Others have frames that nobody can give us any more: this life cannot go on.
                        self.client.start_over(now_ns)
                        return
                    stream.give_up_next()
                    self._fifos.deliver((sender,), self.effects)
            if region.replaced_ns is None:
                for member, silent_ns in region.suspects(now_ns, self.settings.suspect_after_ns, self._health):
                    self.client.report_failure(now_ns, member, silent_ns)
            else:
                self._maybe_retire(key, region, now_ns - region.replaced_ns)
        self._suspect_silent_regions()
        self.sending.retire(now_ns, self.regions.keys())
        self.effects += self._memory_watch.look(self.sending.streams.values(), self.regions.values())
        self._listen()

    def _suspect_silent_regions(self) -> None:
        """Report members of regions that do not answer: nobody else misses one that is alone in its ring."""
        now_ns, settings, health = self._now_ns, self.settings, self._health
        awaited = {
            key: stream
            for key, stream in self.sending.streams.items()
            if key not in self.regions and stream.confirmed < stream.next_frame
        }
        self._reported_ns = {key: self._reported_ns.get(key, now_ns) for key in awaited}
        for key, stream in awaited.items():
            silent_ns = health.awake_ns(now_ns, self._reported_ns[key])
            if silent_ns >= health.patience_ns(settings.suspect_after_ns):
                # The oldest members lead the rings that should have reported.
                for member in stream.config.members[:SUSPECTS_MAX]:
                    self.client.report_failure(now_ns, member, silent_ns)

    def _maybe_retire(self, key: ViewKey, region: RegionMember, age_ns: int) -> None:
        settings = self.settings
        # A sender that asks has not heard that all is confirmed: it would wait in vain if all members retired.
        is_quiet = region.is_quiet and self._now_ns - region.asked_ns >= settings.linger_ns
        if age_ns < settings.linger_ns or (not is_quiet and age_ns < settings.quiesce_ns_max):
            return
        del self.regions[key]
        self._receive_routes.clear()
        if region.own is not None and not region.own.is_done:
            self.sending.forsake(key)
        for stream in region.streams.values():
            self._fifos.remove(stream, self.effects)
        speaking = {sender for each in self.regions.values() for sender in each.streams}
        for sender in region.streams.keys() - speaking:
            self.homes.pop(sender, None)
        self._fifos.forget_gone(speaking, min((view for _, view in self.regions), default=NEVER))

    # Output.

    @property
    def has_data(self) -> bool:
        """Whether a stream could seal a frame now."""
        return self.sending.has_data

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        """Make the frames that are due: control first, then repairs, then as much new data as there is room for."""
        now_ns = self._now_ns
        datagrams = self.client.make_datagrams(now_ns)
        me = self.member
        if me is not None:
            for region in self.regions.values():
                if region.has_messages:
                    self._control_frames.speak_for(now_ns, me, region, self.client.endpoints, self.homes, datagrams)
            if self._progress:
                self._control_frames.tell_progress(now_ns, me, self._progress, datagrams)
                self._progress.clear()
            datagrams += self.sending.repairs
            self.sending.repairs.clear()
            if self.sending.has_data:
                self._seal(me, datagrams, room_bytes)
        return datagrams

    def _seal(self, me: Member, datagrams: list[Datagram], room_bytes: int) -> None:
        self.sending.make_data(self._now_ns, self._gate.domain, me, datagrams, room_bytes)
        for region in self.regions.values():
            region.on_sent(self._now_ns)

    def send_now(self, now_ns: int, command: Command) -> list[Datagram]:
        """Take messages, and seal them at once if nothing else waits. Control frames are made by `make_frames`."""
        if type(command) is not SendMessages:
            self.submit(now_ns, command)
            return []
        self._now_ns = now_ns
        datagrams: list[Datagram] = []
        self._send(command, datagrams)
        return datagrams
