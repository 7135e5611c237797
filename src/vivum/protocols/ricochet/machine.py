"""Lateral error correction as one machine: streams by group out and in, repair bins, requests for what remains.

Design note: `docs/design/ricochet.md`. Each message is sent once to its group, at once. Receivers send each other XORs
of what they received; a frame that one of them lacks is rebuilt from these. The sender is asked only for what is still
missing after `nak_ns`, and by it members learn of last frames that nobody spoke of. Views, regions and endpoints come
from the client of membership that QSM owns; this machine only reads them.

Invariants: only frames of members' lives, from their own endpoints or rebuilt to their checksum, reach a stream; each
message is delivered once, in the order of its sender, and each hole before one is reported.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from random import Random
from zlib import crc32

from vivum.core.deadlines import Deadlines
from vivum.core.errors import DecodeError, LimitError, NotNowError, UsageError
from vivum.core.ids import Channel, Endpoint, GroupId, Incarnation, Member, NodeId, RegionId, ViewNumber
from vivum.core.limits import Limits
from vivum.core.machine import Command, Datagram, Delivery, Effect, Priority
from vivum.core.ranges import RangeSet
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.commands import SendConfirmed, SendFailed, SendMessages, Tuning
from vivum.protocols.dissemination.ways import choose_destinations
from vivum.protocols.groupstreams.receiving import GroupReceiver
from vivum.protocols.groupstreams.sending import GroupSender, KeptBytes
from vivum.protocols.membership.client.client import MembershipClient
from vivum.protocols.membership.group_epochs import GroupEpochs
from vivum.protocols.ricochet.bins import FrameId, RegionBins, Repair, RepairBins
from vivum.protocols.ricochet.rebuilding import Rebuilder
from vivum.protocols.ricochet.settings import TimelySettings
from vivum.protocols.ricochet.tuning import choose
from vivum.wire.codec import Frame, FrameBuilder, measure, split
from vivum.wire.control import encode_control
from vivum.wire.fields import ControlMessage
from vivum.wire.fragments import Joiner
from vivum.wire.gate import Gate
from vivum.wire.kinds import Kind
from vivum.wire.timely import (
    NAME,
    STREAMS_MAX,
    LateralRepair,
    StreamState,
    TimelyAsk,
    TimelyNak,
    TimelyProgress,
    TimelyReport,
)
from vivum.wire.trains import address
from vivum.wire.xor import xor_all

StreamKey = tuple[Member, GroupId]
"""A stream of another life."""

TICK_NS = 5 * MILLISECOND
"""How often bins are looked at while frames wait in them."""

NAK_BACKOFF_MAX = 4
"""Requests that bring nothing are repeated after 1, 2, 4, 8, then always 16 times `nak_ns`."""

RANGES_MAX = 16
"""Ranges of missing frames in one request."""

LEARN_NS = 1 * SECOND
"""How often (r, c) are chosen anew, where the node chooses them."""


class TimelyMachine:
    """Timely multicast as a protocol that a node can compose beside QSM."""

    transport = "ricochet"
    kinds = frozenset({Kind.GROUP_DATA, Kind.LATERAL, Kind.GROUP_WORD})
    # Messages come by the stacks of groups that have this transport.
    commands: frozenset[type[Command]] = frozenset()

    def __init__(
        self,
        client: MembershipClient,
        gate: Gate,
        rng: Random,
        settings: TimelySettings | None = None,
        limits: Limits | None = None,
        *,
        multicast: bool = True,
        spread: Callable[[int, GroupId], Channel | None] = lambda _now_ns, _group: None,
    ) -> None:
        """Prepare. `spread` returns the channel of a group whose frames go to all its regions at once."""
        self.settings = settings or TimelySettings()
        self.limits = limits or Limits()
        self.counters = gate.counters
        self.effects: list[Effect] = []
        self._client = client
        self._gate = gate
        self._multicast = multicast
        self._spread = spread
        self._now_ns = 0
        self._me: Member | None = None
        self._epoch = 0
        self._groups = RangeSet()
        # The first view of each group that this node knew, when it entered last.
        self._entered = GroupEpochs()
        self._builder = FrameBuilder(self.settings.data_bytes_max)
        self._joiner = Joiner(self.limits, self.counters)
        # Wishes for single groups.
        self._tuned: dict[GroupId, Tuning] = {}
        self._sending: dict[GroupId, GroupSender] = {}
        self._kept = KeptBytes()
        # Where streams of groups that were left would go on in this life: next frame, next message.
        self._numbers: dict[GroupId, tuple[int, int]] = {}
        self._ready: dict[GroupId, None] = {}
        self._streams: dict[StreamKey, GroupReceiver] = {}
        # The senders of each group that have a stream here, and the view in which they were looked up.
        self._senders: dict[GroupId, dict[Member, None]] = {}
        self._views: dict[GroupId, ViewNumber] = {}
        self._bins = RepairBins(self.settings, rng)
        self._rebuilder = Rebuilder(
            self.settings.history_frames, self.settings.history_bytes, self.settings.repairs_kept_max, self.counters
        )
        # For frames of a sender in a group: the bins that they go into, and the share of each region.
        self._lanes: dict[StreamKey, list[tuple[RegionBins, float]]] = {}
        # What is due.
        self._words: list[tuple[Endpoint, ControlMessage]] = []
        self._repairs: list[Repair] = []
        self._resent: list[Datagram] = []
        self._unreported: dict[StreamKey, None] = {}
        self._report_ns: int | None = None
        self._bins_ns: int | None = None
        self._gone_ns: int | None = None
        self._learn_ns: int | None = None
        self._naks: Deadlines[StreamKey] = Deadlines()
        self._probes: Deadlines[GroupId] = Deadlines()
        # New frames since (r, c) were chosen, and those that were missing for a while.
        self._taken = self._lost = 0
        self._response_ns = 0

    def tune(self, group: GroupId, tuning: Tuning | None) -> None:
        """Take the wishes for a group, or none."""
        if tuning is None:
            self._tuned.pop(group, None)
            return
        if tuning.repair is not None:
            frames, copies = tuning.repair
            most = self.settings.repair_frames
            if not 1 <= frames <= most or copies < 0:
                raise UsageError(f"repair is ({frames}, {copies}); expected r of 1 to {most} and c of at least 0")
        if tuning.deadline_ns is not None and tuning.deadline_ns < 0:
            raise UsageError(f"deadline_ns is {tuning.deadline_ns}; expected 0 or more")
        self._tuned[group] = tuning
        self._lanes.clear()

    def _deadline_ns(self, group: GroupId) -> int:
        tuning = self._tuned.get(group)
        own = None if tuning is None else tuning.deadline_ns
        return self.settings.deadline_ns if own is None else own

    def _repair_of(self, group: GroupId) -> tuple[int, float] | None:
        tuning = self._tuned.get(group)
        return None if tuning is None else tuning.repair

    # Out.

    def submit(self, now_ns: int, command: Command) -> None:
        """Send."""
        assert isinstance(command, SendMessages)
        self._now_ns = now_ns
        self._follow()
        group, payloads = command.group, command.payloads
        payloads = payloads if isinstance(payloads, list | tuple) else list(payloads)
        size, largest = measure(payloads)
        if largest > self.limits.message_bytes_max:
            raise LimitError(f"a message of {largest} bytes is over message_bytes_max={self.limits.message_bytes_max}")
        me = self._me
        if me is None or group not in self._groups:
            raise NotNowError(f"group {group} is not entered yet; wait for its first view, or join it")
        kept = self._kept.count
        if kept and kept + size > self.settings.kept_bytes_max:
            raise NotNowError(
                f"{kept} bytes wait for members to report; with {size} more they would pass "
                f"kept_bytes_max={self.settings.kept_bytes_max}: wait until some have"
            )
        stream = self._sending.get(group)
        if stream is None:
            stream = self._sending[group] = GroupSender(group, self._kept, *self._numbers.pop(group, (0, 0)))
            self._follow_view(stream, me)
        first = stream.put(payloads, size)
        if stream:
            self._ready[group] = None
        self.effects.append(Delivery(group, me, first, payloads, stream.view, now_ns))
        self._advance(stream)

    def room_bytes(self, group: GroupId) -> int:
        """Return how many bytes of messages of a group are sure to be accepted, until the next input."""
        if self._me is None or self._me != self._client.member or group not in self._client.groups:
            return 0
        # One message may have them all.
        return max(0, min(self.settings.kept_bytes_max - self._kept.count, self.limits.message_bytes_max))

    def next_sequence(self, group: GroupId) -> int:
        """Return the number that the next own message of a group gets."""
        if self._me != self._client.member:
            return 0
        stream = self._sending.get(group)
        return self._numbers.get(group, (0, 0))[1] if stream is None else stream.next_message

    def view_of(self, group: GroupId) -> ViewNumber:
        """Return the view in which the next own message of a group is sent."""
        return self._client.group_view(group)

    @property
    def held_bytes(self) -> int:
        """Bytes that are kept."""
        held = sum(len(frame.data) for stream in self._streams.values() for frame in stream.held.values())
        return self._kept.count + self._rebuilder.held_bytes + held

    def _advance(self, stream: GroupSender) -> None:
        confirmed = stream.advance()
        if confirmed is not None:
            self.effects.append(SendConfirmed(stream.group, *confirmed))

    # The configuration.

    def _follow(self) -> None:
        """Follow the client: a new life, a new configuration."""
        client = self._client
        me = client.member
        if me is not self._me and me != self._me:
            self._end_life()
            self._me = me
        if me is None or client.epoch == self._epoch:
            return
        self._epoch = client.epoch
        self._lanes.clear()
        before, self._groups = self._groups, client.groups
        left, entered = before.copy(), self._groups.copy()
        left.difference_update(self._groups)
        entered.difference_update(before)
        if entered:
            for bundle in client.bundles(entered):
                self._entered.set_groups(RangeSet.from_bounds(bundle.groups), bundle.number)
        for group in [group for group in self._senders if group in left] if left else ():
            for sender in list(self._senders[group]):
                self._forget_stream((sender, group))
        for stream in list(self._sending.values()):
            self._follow_view(stream, me)
        for group, senders in self._senders.items():
            view = client.group_view(group)
            if view != self._views[group]:
                self._views[group] = view
                self._note_gone(group, senders)
        self._bins.keep_only(tuple(client.regions))

    def _note_gone(self, group: GroupId, senders: Iterable[Member]) -> None:
        """Note which of these senders a new view of their group lacks."""
        members = set(self._client.members_of(group))
        for sender in senders:
            stream = self._streams[sender, group]
            if sender in members:
                stream.gone_since_ns = None
                continue
            if stream.gone_since_ns is None:
                stream.gone_since_ns = self._now_ns
            if self._gone_ns is None:
                self._gone_ns = self._now_ns + self.settings.gone_ns

    def _follow_view(self, stream: GroupSender, me: Member) -> None:
        """Let a stream follow the view of its group, or note that this node left it."""
        client, group = self._client, stream.group
        if group not in self._groups:
            if stream.left_ns is None:
                self._seal_all(stream, me)
                stream.left_ns = self._now_ns
                self._probes.set_earlier(group, self._now_ns + self.settings.probe_ns)
            return
        view = client.group_view(group)
        if view == stream.view and stream.left_ns is None:
            return
        # What waits was accepted in the view before.
        self._seal_all(stream, me)
        stream.left_ns = None
        others = [member for member in client.members_of(group) if member != me]
        stream.follow(view, others, self._destinations(group, me))
        self._advance(stream)

    def _destinations(self, group: GroupId, me: Member) -> tuple[Endpoint | Channel, ...]:
        client = self._client
        found: list[Endpoint | Channel] = []
        for config in client.regions_of(group):
            others = [
                member.node for member in config.members if member != me and not config.lacks_group(member, group)
            ]
            if others:
                found += choose_destinations(others, config.channel, client.endpoints, self._multicast)
        return tuple(found)

    def _end_life(self) -> None:
        """Forget this life: what nobody confirmed is reported as failed."""
        for stream in self._sending.values():
            if stream.confirmed < stream.next_message:
                self._fail(stream, "this life of the node ended")
        self._sending.clear()
        self._numbers.clear()
        self._kept = KeptBytes()
        self._ready.clear()
        for key in list(self._streams):
            self._forget_stream(key)
        self._bins.clear()
        self._rebuilder.clear()
        self._lanes.clear()
        self._words.clear()
        self._repairs.clear()
        self._resent.clear()
        self._naks = Deadlines()
        self._probes = Deadlines()
        self._report_ns = self._bins_ns = self._gone_ns = self._learn_ns = None
        self._epoch = 0
        self._groups = RangeSet()
        self._entered.clear()

    def _fail(self, stream: GroupSender, cause: str) -> None:
        self.counters.messages_failed += stream.next_message - stream.confirmed
        self.effects.append(SendFailed(stream.group, stream.confirmed, stream.next_message, None, cause))

    def _forget_stream(self, key: StreamKey) -> None:
        del self._streams[key]
        sender, group = key
        del self._senders[group][sender]
        if not self._senders[group]:
            del self._senders[group], self._views[group]
        self._joiner.forget(*key)
        self._naks.cancel(key)
        self._unreported.pop(key, None)

    # In: frames of messages.

    def on_frame(self, now_ns: int, source: Endpoint, frame: Frame) -> None:
        """Take a frame of one of the kinds."""
        self.on_frames(now_ns, source, [frame])

    def on_frames(self, now_ns: int, source: Endpoint, frames: list[Frame]) -> None:
        """Take frames that arrived together, all of one kind."""
        self._now_ns = now_ns
        self._follow()
        if self._me is None:
            return
        kind = frames[0].kind
        if kind == Kind.GROUP_DATA:
            touched: dict[StreamKey, GroupReceiver] = {}
            for train in frames:
                self._on_train(source, train, touched)
            self._deliver(touched)
            return
        for frame in frames:
            body = self._gate.decode(now_ns, source, frame)
            if body is None:
                continue
            peer = Member(NodeId(frame.sender), Incarnation(frame.incarnation))
            if peer == self._me or self._client.endpoints.get(peer.node) != source:
                self._gate.refuse_state(now_ns, source, frame, "not from the endpoint of its sender")
                continue
            match body:
                case LateralRepair():
                    self._on_lateral(source, frame, peer, body)
                case TimelyProgress():
                    self._on_progress(source, frame, peer, body)
                case TimelyReport():
                    self._on_report(source, frame, peer, body)
                case TimelyNak():
                    self._on_nak(source, frame, peer, body)

    def _on_train(self, source: Endpoint, train: Frame, touched: dict[StreamKey, GroupReceiver]) -> None:
        sender = Member(NodeId(train.sender), Incarnation(train.incarnation))
        if sender == self._me:
            return
        if self._client.endpoints.get(sender.node) != source:
            self._gate.refuse_state(self._now_ns, source, train, "not from the endpoint of its sender")
            return
        key = (sender, GroupId(train.region))
        stream = self._stream(key)
        if stream is None:
            # Of a group that this node is not in, on a shared channel; or of a member that it does not know yet.
            self.counters.frames_unwanted += train.count
            return
        touched[key] = stream
        for frame in train.cut():
            self._take(key, stream, frame, frame.to_bytes())

    def _stream(self, key: StreamKey) -> GroupReceiver | None:
        """Return the stream of a member, a new one if need be; None if nobody vouches for it."""
        stream = self._streams.get(key)
        if stream is not None:
            return stream
        sender, group = key
        if group not in self._groups or sender == self._me or sender not in self._client.members_of(group):
            return None
        if len(self._streams) >= self.settings.streams_max and not self._make_room():
            return None
        stream = self._streams[key] = GroupReceiver(
            sender, group, self.settings.window_frames, self._joiner, self.counters
        )
        self._senders.setdefault(group, {})[sender] = None
        self._views.setdefault(group, self._client.group_view(group))
        return stream

    def _make_room(self) -> bool:
        """Forget a stream whose sender has gone; return whether there was one."""
        key = next((key for key, each in self._streams.items() if each.gone_since_ns is not None), None)
        if key is not None:
            self._forget_stream(key)
        return key is not None

    def _take(self, key: StreamKey, stream: GroupReceiver, frame: Frame, data: bytes) -> bool:
        """Take a single frame, and let it take part in repairs; return whether it is new."""
        group, number = key[1], frame.sequence
        if stream.window is None and number == 0 and frame.view >= self._entered.at(group):
            # Its first frame, sent in a view that this node is in: its beginning is here.
            stream.begin(0, min((first for _, first, _, _ in frame.messages()), default=0))
        if not stream.take(frame):
            return False
        self._taken += 1
        if self._learn_ns is None and self.settings.wanted_recovery:
            self._learn_ns = self._now_ns + LEARN_NS
        if stream.asked and bisect_right(stream.asked_for, number) % 2:
            self.counters.repairs_received += 1
            self._lost += 1
        window = stream.window
        if window is None or window.prefix < window.stop:
            self._nak_later(key, stream)
        name = (*key[0], group, number)
        self._put_into_bins(key, name, data)
        for rebuilt in self._rebuilder.add(name, data):
            self._take_rebuilt(*rebuilt)
        return True

    def _put_into_bins(self, key: StreamKey, name: FrameId, data: bytes) -> None:
        lanes = self._lanes.get(key)
        if lanes is None:
            lanes = self._lanes[key] = self._find_lanes(*key)
        if not lanes:
            return
        repair = self._repair_of(key[1]) if self._tuned else None
        for bins, share in lanes:
            self._repairs += self._bins.add(self._now_ns, bins, name, data, share, repair)
        if self._bins_ns is None:
            self._bins_ns = self._now_ns + TICK_NS

    def _find_lanes(self, sender: Member, group: GroupId) -> list[tuple[RegionBins, float]]:
        """Find where frames of a sender in a group go: the bins of each region with members that may lack them."""
        me = self._me
        assert me is not None
        repair = self._repair_of(group)
        if not (self._bins.copies if repair is None else repair[1]):
            return []
        found: list[tuple[RegionId, int]] = []
        for config in self._client.regions_of(group):
            others = sum(
                1 for each in config.members if each not in (me, sender) and not config.lacks_group(each, group)
            )
            if others:
                found.append((config.region, others))
        total = sum(others for _, others in found)
        regions = self._client.regions
        return [(self._bins.of(self._now_ns, regions[region], me), others / total) for region, others in found]

    def _deliver(self, touched: dict[StreamKey, GroupReceiver]) -> None:
        for key, stream in touched.items():
            if not stream.deliver(self.effects):
                continue
            self._report_later(key)
            if stream.asked and stream.asked_for and stream.prefix >= stream.asked_for[-1]:
                self._note_response(self._now_ns - stream.asked_ns)
            if not stream.lacks_any():
                stream.hole_since_ns, stream.asked, stream.asked_for = None, 0, ()
                self._naks.cancel(key)
                continue
            stream.hole_since_ns = self._now_ns
            if not stream.asked:
                self._naks.set_earlier(key, self._now_ns + self.settings.nak_ns)
            elif stream.prefix >= stream.asked_for[-1]:
                # All that was asked for is here: go on with the rest. Otherwise some is still on its way.
                stream.asked, stream.asked_for = 0, ()
                self._naks.set_earlier(key, self._now_ns)

    def _note_response(self, elapsed_ns: int) -> None:
        """Learn how long it takes until all is here that was asked for: nothing is asked for again before."""
        self._response_ns += (min(elapsed_ns, SECOND) - self._response_ns) // (
            1 if elapsed_ns > self._response_ns else 8
        )

    def _report_later(self, key: StreamKey) -> None:
        self._unreported[key] = None
        if self._report_ns is None:
            self._report_ns = self._now_ns + self.settings.report_ns

    def _nak_later(self, key: StreamKey, stream: GroupReceiver) -> None:
        """Note that something of a stream is missing: ask for it after a while."""
        if stream.hole_since_ns is None:
            stream.hole_since_ns = self._now_ns
        if key not in self._naks:
            # Where a stream begins nobody else can tell, and everything waits for it.
            wait_ns = 0 if stream.window is None and not stream.asked else self.settings.nak_ns
            self._naks.set(key, self._now_ns + wait_ns)

    # In: repairs.

    def _on_lateral(self, source: Endpoint, frame: Frame, peer: Member, body: LateralRepair) -> None:
        self.counters.lateral_received += 1
        names: dict[FrameId, int] = {}
        for node, incarnation, group, number, crc in NAME.iter_unpack(body.names):
            names[node, incarnation, group, number] = crc
            if peer not in self._client.members_of(GroupId(group)):
                self._gate.refuse_state(
                    self._now_ns, source, frame, "names a frame of a group that its sender is not in"
                )
                return
        for node, incarnation, group, number in names:
            self._note_rumour((Member(NodeId(node), Incarnation(incarnation)), GroupId(group)), number)
        for rebuilt in self._rebuilder.on_repair(names, body.data, self._is_needed):
            self._take_rebuilt(*rebuilt)

    def _note_rumour(self, key: StreamKey, number: int) -> None:
        """Learn from a repair that a frame exists. Others than its sender may lie: it is asked for, and no more."""
        stream = self._stream(key)
        if stream is None or stream.has(number):
            return
        if number >= stream.rumoured:
            stream.rumoured = number + 1
        self._nak_later(key, stream)

    def _is_needed(self, name: FrameId) -> bool:
        node, incarnation, group, number = name
        stream = self._stream((Member(NodeId(node), Incarnation(incarnation)), GroupId(group)))
        return stream is not None and not stream.has(number)

    def _take_rebuilt(self, name: FrameId, data: bytes) -> None:
        """Take a frame that was rebuilt to its checksum, if it is what it was named."""
        node, incarnation, group, number = name
        try:
            (frame,) = split(data)
        except (DecodeError, ValueError):
            self.counters.lateral_refused += 1
            return
        is_named = (frame.kind, frame.sender, frame.incarnation, frame.region, frame.sequence) == (
            Kind.GROUP_DATA,
            *name,
        )
        key = (Member(NodeId(node), Incarnation(incarnation)), GroupId(group))
        stream = self._stream(key) if is_named and frame.domain == self._gate.domain else None
        if stream is None:
            self.counters.lateral_refused += 1
            return
        if not stream.has(number) and self._take(key, stream, frame, data):
            self.counters.lateral_rebuilt += 1
            self._lost += 1
            self._deliver({key: stream})

    # In: words between senders and receivers.

    def _on_progress(self, source: Endpoint, frame: Frame, peer: Member, body: TimelyProgress) -> None:
        """Learn from a sender how far its streams go."""
        if self._me is None or body.incarnation != self._me.incarnation:
            self._gate.refuse_state(self._now_ns, source, frame, "tells another life")
            return
        for state in body.streams:
            key = (peer, GroupId(state.group))
            stream = self._stream(key)
            if stream is None:
                self.counters.frames_unwanted += 1
                if frame.view <= self._epoch and state.group not in self._groups:
                    # We have left; the sender left too, and cannot know.
                    self._say(peer, TimelyReport(peer.incarnation, ((state.group, state.stop),)))
                continue
            if stream.window is None and frame.view < self._entered.at(state.group):
                # It does not know that we came, or came back, and means a stay before this one.
                self._nak_later(key, stream)
                continue
            stream.rumoured = 0
            if stream.window is None:
                stream.begin(state.first, state.needs)
                stream.skip_to(state.first, state.message, self.effects)
            elif stream.window.prefix <= state.first:
                # The sender does not have what is before it any more, or this node gave it up.
                stream.skip_to(state.first, state.message, self.effects)
            assert stream.window is not None
            stream.window.announce(state.stop)
            self._deliver({key: stream})
            self._report_at_once(key)
            if stream.lacks_any():
                if stream.hole_since_ns is None:
                    stream.hole_since_ns = self._now_ns
                # The sender has waited for us already.
                self._naks.set_earlier(key, self._now_ns)
            else:
                self._naks.cancel(key)

    def _report_at_once(self, key: StreamKey) -> None:
        self._unreported[key] = None
        self._report_ns = self._now_ns

    def _on_report(self, source: Endpoint, frame: Frame, peer: Member, body: TimelyReport) -> None:
        self.counters.acks_received += 1
        if self._me is None or body.incarnation != self._me.incarnation:
            self._gate.refuse_state(self._now_ns, source, frame, "reports to another life")
            return
        for group, prefix in body.prefixes:
            stream = self._sending.get(GroupId(group))
            if stream is None or peer not in stream.reached or prefix > stream.next_frame:
                self._gate.refuse_state(self._now_ns, source, frame, "reports on a stream that it does not get")
                continue
            stream.on_report(peer, prefix)
            self._advance(stream)

    def _on_nak(self, source: Endpoint, frame: Frame, peer: Member, body: TimelyNak) -> None:
        self.counters.naks_received += 1
        if self._me is None or body.incarnation != self._me.incarnation:
            self._gate.refuse_state(self._now_ns, source, frame, "asks another life")
            return
        states: list[StreamState] = []
        left = self.settings.resend_frames_max
        for ask in body.asks:
            stream = self._sending.get(GroupId(ask.group))
            if stream is None or peer not in stream.reached:
                self._gate.refuse_state(self._now_ns, source, frame, "asks for a stream that it does not get")
                continue
            wanted = RangeSet.from_bounds(ask.bounds)
            lowest, highest = stream.offer(peer)[1], stream.next_frame
            if not ask.bounds or ask.bounds[0] < lowest or ask.bounds[-1] > highest:
                states.append(StreamState(ask.group, *stream.offer(peer), highest))
            wanted.discard_range(0, stream.floor)
            wanted.discard_range(highest, 1 << 64)
            for number in wanted:
                if left == 0:
                    break
                left -= 1
                data = stream.get(number)
                assert data is not None, "what is between floor and end is kept"
                self._resent.append(Datagram(source, data, Priority.REPAIR))
                self.counters.repairs_sent += 1
                self.counters.repair_bytes_sent += len(data)
        if states:
            self._words.append((source, TimelyProgress(peer.incarnation, tuple(states))))

    # Time.

    def next_deadline_ns(self) -> int | None:
        """Return when something will be due."""
        if not self._streams and not self._sending:
            # Asked after every arrival, and most nodes have no timely group.
            return None
        times = (
            self._naks.next_ns(),
            self._probes.next_ns(),
            self._report_ns,
            self._bins_ns,
            self._gone_ns,
            self._learn_ns,
        )
        return min((each for each in times if each is not None), default=None)

    def on_timer(self, now_ns: int) -> None:
        """Do what is due."""
        self._now_ns = now_ns
        self._follow()
        if not self._streams and not self._sending:
            return
        if self._bins_ns is not None and now_ns >= self._bins_ns:
            self._repairs += self._bins.close_old(now_ns)
            self._bins_ns = None if self._bins.is_empty else now_ns + TICK_NS
        if self._report_ns is not None and now_ns >= self._report_ns:
            self._report()
        due = list(self._naks.take_due(now_ns))
        if due:
            self._ask(due)
        tell: dict[Member, list[StreamState]] = {}
        for group in list(self._probes.take_due(now_ns)):
            self._probe(self._sending[group], tell)
        self._tell(tell)
        if self._gone_ns is not None and now_ns >= self._gone_ns:
            self._give_up_gone()
        if self._learn_ns is not None and now_ns >= self._learn_ns:
            self._learn()

    def _report(self) -> None:
        self._report_ns = None
        reports: dict[Member, list[tuple[int, int]]] = {}
        for key in self._unreported:
            stream = self._streams[key]
            if stream.window is not None:
                reports.setdefault(key[0], []).append((key[1], stream.prefix))
        self._unreported.clear()
        for sender, prefixes in reports.items():
            for part in _parts(prefixes):
                self._say(sender, TimelyReport(sender.incarnation, part))
                self.counters.acks_sent += 1

    def _ask(self, due: Sequence[StreamKey]) -> None:
        """Ask senders for what is still missing; give up what is past its deadline."""
        settings, asks = self.settings, dict[Member, list[TimelyAsk]]()
        for key in due:
            stream = self._streams[key]
            if not stream.lacks_any():
                stream.hole_since_ns = None
                continue
            deadline_ns = self._deadline_ns(key[1])
            since_ns = self._now_ns if stream.hole_since_ns is None else stream.hole_since_ns
            if deadline_ns and stream.has_more and self._now_ns - since_ns >= deadline_ns:
                stream.skip_hole(self.effects)
                stream.hole_since_ns, stream.asked, stream.asked_for = self._now_ns, 0, ()
                self._report_later(key)
                if not stream.lacks_any():
                    stream.hole_since_ns = None
                    continue
            bounds = () if stream.window is None else _capped(stream.missing(RANGES_MAX), settings.resend_frames_max)
            if bounds or stream.window is None:
                stream.asked_for = bounds or (0, 0)
            asks.setdefault(key[0], []).append(TimelyAsk(key[1], bounds))
            if not stream.asked:
                stream.asked_ns = self._now_ns
            wait_ns = max(settings.nak_ns, 2 * self._response_ns) << min(stream.asked, NAK_BACKOFF_MAX)
            if deadline_ns:
                wait_ns = min(wait_ns, max(since_ns + deadline_ns - self._now_ns, TICK_NS))
            stream.asked += 1
            self._naks.set(key, self._now_ns + wait_ns)
        for sender, each in asks.items():
            for part in _parts(each):
                self._say(sender, TimelyNak(sender.incarnation, part))
                self.counters.naks_sent += 1

    def _probe(self, stream: GroupSender, tell: dict[Member, list[StreamState]]) -> None:
        """Send our progress to members that have not reported what was sent before the last look."""
        settings, group = self.settings, stream.group
        left_ns = stream.left_ns
        if left_ns is not None and (stream.is_settled or self._now_ns - left_ns >= settings.linger_ns):
            if stream.confirmed < stream.next_message:
                self._fail(stream, "this node left the group, and not every member has reported")
            stream.release()
            self._numbers[group] = (stream.next_frame, stream.next_message)
            del self._sending[group]
            return
        deadline_ns = self._deadline_ns(group)
        if deadline_ns:
            stream.give_up_before(self._now_ns - deadline_ns)
            self._advance(stream)
        overdue = stream.sealed_before(self._now_ns - settings.probe_ns)
        for member, prefix in stream.reached.items():
            if prefix < overdue:
                tell.setdefault(member, []).append(StreamState(group, *stream.offer(member), stream.next_frame))
        if not stream.is_settled or left_ns is not None:
            sealed_ns = stream.sealed_ns(overdue)
            base_ns = self._now_ns if sealed_ns is None else max(sealed_ns, self._now_ns - settings.probe_ns + TICK_NS)
            self._probes.set(group, base_ns + settings.probe_ns)

    def _tell(self, tell: dict[Member, list[StreamState]]) -> None:
        for member, states in tell.items():
            for part in _parts(states):
                self._say(member, TimelyProgress(member.incarnation, part))
                self.counters.heartbeats_sent += 1

    def _give_up_gone(self) -> None:
        """Give up what is missing of senders that have been gone for long enough."""
        self._gone_ns = None
        for key, stream in list(self._streams.items()):
            since_ns = stream.gone_since_ns
            if since_ns is None or not stream.lacks_any():
                continue
            if self._now_ns - since_ns < self.settings.gone_ns:
                self._gone_ns = min(self._gone_ns or since_ns + self.settings.gone_ns, since_ns + self.settings.gone_ns)
            elif stream.window is None:
                self._forget_stream(key)
            else:
                while stream.lacks_any():
                    stream.skip_hole(self.effects)
                self._naks.cancel(key)

    def _learn(self) -> None:
        """Choose (r, c) for the loss of the last second."""
        self._learn_ns = None
        settings = self.settings
        if self._taken:
            loss = min(0.5, self._lost / self._taken)
            frames, copies = choose(loss, settings.wanted_recovery, settings.overhead_max, settings.repair_frames)
            self._bins.frames_max, self._bins.copies = frames, copies
        self._taken = self._lost = 0

    # Output.

    @property
    def has_data(self) -> bool:
        """Whether something waits."""
        return bool(self._ready)

    def make_frames(self, room_bytes: int) -> list[Datagram]:
        """Make the frames that are due: words, repairs, then what waits as far as there is room."""
        self._follow()
        me = self._me
        if me is None or not (self._words or self._resent or self._repairs or self._ready):
            return []
        header = (self._gate.domain, *me, 0, self._epoch, self._now_ns)
        made = [
            Datagram(where, encode_control(Kind.GROUP_WORD, *header, word, limits=self.limits), Priority.CONTROL)
            for where, word in self._words
        ]
        self._words.clear()
        made += self._resent
        self._resent.clear()
        if self._repairs:
            # Before new frames are sealed: an XOR of these would leave before them.
            made += self._make_repairs(me)
        while self._ready and room_bytes > 0:
            stream = self._sending[next(iter(self._ready))]
            copies = max(1, len(stream.destinations))
            datagrams = self._seal(stream, me, -(-room_bytes // copies))
            room_bytes -= sum(len(each.data) for each in datagrams)
            made += datagrams
            if not stream:
                del self._ready[stream.group]
        return made

    def _seal_all(self, stream: GroupSender, me: Member) -> None:
        """Seal all that waits, in the view in which it was accepted."""
        while stream:
            self._resent += self._seal(stream, me, 1 << 30)
        self._ready.pop(stream.group, None)

    def _seal(self, stream: GroupSender, me: Member, bytes_max: int) -> list[Datagram]:
        group, settings = stream.group, self.settings
        trains, first = stream.seal(self._builder, self._now_ns, (Kind.GROUP_DATA, self._gate.domain, *me), bytes_max)
        for number in range(first, stream.next_frame):
            data = stream.get(number)
            assert data is not None, "what was just sealed is kept"
            name = (*me, group, number)
            self._put_into_bins((me, group), name, data)
            self._rebuilder.add(name, data)
        self._probes.set_earlier(group, self._now_ns + settings.probe_ns)
        channel = self._spread(self._now_ns, group) if self._multicast else None
        return address(trains, stream.destinations if channel is None else (channel,))

    def _make_repairs(self, me: Member) -> list[Datagram]:
        """Make the XORs that are due. Those of the same frames are made once."""
        made: list[Datagram] = []
        endpoints, known = self._client.endpoints, dict[tuple[FrameId, ...], bytes]()
        for target, frames in self._repairs:
            where = endpoints.get(target.node)
            if where is None:
                continue
            key = tuple([each.name for each in frames])
            data = known.get(key)
            if data is None:
                names = b"".join([NAME.pack(*each.name, crc32(each.data)) for each in frames])
                body = LateralRepair(names, xor_all([each.data for each in frames]))
                data = known[key] = encode_control(
                    Kind.LATERAL, self._gate.domain, *me, 0, 0, self._now_ns, body, limits=self.limits
                )
            made.append(Datagram(where, data, Priority.REPAIR))
            self.counters.lateral_sent += 1
            self.counters.lateral_bytes_sent += len(data)
        self._repairs.clear()
        return made

    def _say(self, to: Member, word: ControlMessage) -> None:
        where = self._client.endpoints.get(to.node)
        if where is not None:
            self._words.append((where, word))


def _parts(entries: Sequence) -> list[tuple]:  # type: ignore[type-arg]
    return [tuple(entries[at : at + STREAMS_MAX]) for at in range(0, len(entries), STREAMS_MAX)]


def _capped(bounds: Sequence[int], count_max: int) -> tuple[int, ...]:
    """Return the lowest of these ranges, of so many numbers at most."""
    found: list[int] = []
    for start, stop in zip(bounds[::2], bounds[1::2], strict=True):
        stop = min(stop, start + count_max)
        if start < stop:
            found += (start, stop)
            count_max -= stop - start
    return tuple(found)
