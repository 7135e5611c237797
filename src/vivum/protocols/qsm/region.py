"""This node as a member of one region view: its streams, its rings, and what tokens exchange here.

One recovery protocol for all groups and all senders (seed 001, section 2). On level 0 the node reports for itself;
above, a leader reports for the ring below it, with the result of that ring's last round. The leader of the top ring
decides for the region: what is stable, what caches may forget, what the sender must send again.
"""

from collections.abc import Callable, Iterable

import msgspec

from vivum.core.ids import Incarnation, Member, NodeId
from vivum.core.limits import Limits
from vivum.core.ranges import RangeSet
from vivum.core.time import SECOND
from vivum.observe.counters import Counters
from vivum.protocols.membership.client.health import LocalHealth
from vivum.protocols.membership.region_config import RegionConfig
from vivum.protocols.qsm.rate import OWN_QUEUE_NS, FairShares, RateEstimate, add_voice, add_votes, decide_rate
from vivum.protocols.qsm.recovery.aggregate import beyond, is_held_back, merge
from vivum.protocols.qsm.recovery.repair import REQUESTS_MAX, RepairDesk
from vivum.protocols.qsm.recovery.repaired_stream import RepairedStream
from vivum.protocols.qsm.recovery.stability import StreamStability
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.rings.ladder import RingLadder
from vivum.protocols.rings.placement import place
from vivum.protocols.rings.ring import RingTimes
from vivum.protocols.streams.region_sender import RegionSender
from vivum.protocols.streams.send_window import SendWindow
from vivum.protocols.streams.stream_receiver import StreamReceiver
from vivum.wire.codec import Frame
from vivum.wire.kinds import Kind
from vivum.wire.rings import TokenReceipt
from vivum.wire.tokens import NO_VOTE, NOBODY, RegionReport, RepairRequest, StreamRecord, Token

DATA = Kind.DATA

ROUNDS_ALIKE = 8
"""Rounds with the same result that are normal while repairs are under way."""

ROUND_FRAMES = 112
ROUND_BYTES = 160 << 10
"""A round costs as much work as this many frames and bytes. Of a small window up to half may be unstable."""

LEAD_AFTER = 8
"""Reports in a row that find the only sender's window full before it takes the lead: a burst alone is no reason."""

CAUTION_NS = 2 * SECOND
"""For this long after frames were lost a member tells a window that is sure to fit its receive buffer."""

EMPTY_TOKEN = Token(0, 0, 0, 0, 0, (), NO_VOTE, (), ())


class RegionMember:
    """A region view that this node is a member of; the host of its rings (`RingHost`)."""

    def __init__(
        self,
        config: RegionConfig,
        me: Member,
        settings: QsmSettings,
        limits: Limits,
        counters: Counters,
        on_new_stream: Callable[[StreamReceiver], None],
        now_ns: int,
    ) -> None:
        self.config = config
        self.streams: dict[Member, RepairedStream] = {}
        self.own: RegionSender | None = None
        self.replaced_ns: int | None = None
        self.asked_ns = now_ns
        self.is_left = False
        self.reports: list[tuple[Member, RegionReport]] = []
        self.placement = place([member.node for member in config.members], settings.ring_nodes_max)
        plans = self.placement.rings_of(me.node)
        self.ladder: RingLadder[Token] = RingLadder(self.placement, me.node, self, _ring_times(settings), now_ns)
        self._rings = self.ladder.rings
        self._me = me
        self._settings = settings
        self._limits = limits
        self._counters = counters
        self._on_new_stream = on_new_stream
        self._lives = {member.node: member for member in config.members}
        position = next(index for index, slot in enumerate(plans[0].slots) if me.node in slot)
        self._position = (plans[0].number, position)
        self.desk = RepairDesk(me, self.placement, len(plans), settings, limits)
        self._verdicts: dict[Member, StreamStability] = {}
        # For each level: the result of the last round that this node led there.
        self._results: list[dict[Member, StreamRecord]] = [{} for _ in plans]
        # The streams in the token when such a round began: every member has reported what it has of these.
        self._begun: list[set[tuple[int, int]]] = [set() for _ in plans]
        self._absent: list[dict[NodeId, dict[Member, int]]] = [{} for _ in plans]
        self._interval_ns = settings.token_busy_ns_max
        # This many unstable frames, or bytes in them, mean that a window fills.
        self._windows = (0, 0)
        self._filling = self._filling_bytes = 0
        self._fit_windows(0, 1)
        # This many mean that a sender waits, or soon will: what is stable is known here from the last round.
        self._full = max(1, settings.window * 3 // 4)
        self._urgent = False
        self._last_result: tuple[object, ...] = ()
        self._rounds_alike = 0
        # Whether the region decided something that members of the ring led by this node have not been told yet.
        self._untold = False
        # For each level: whether in the last round led by this node a member was behind the others, or had not
        # delivered what it has.
        self._lagging = [False for _ in plans]
        self._asking: set[Member] = set()
        self._rate = RateEstimate(settings, now_ns)
        # Frames may have been lost in the receive buffer: until when this node counts on less room in it.
        self._cautious_until_ns = now_ns
        self._votes = [NO_VOTE for _ in plans]
        self._allowed = 0
        self._stops: dict[Member, int] = {}
        # Reports in a row that came to us as the only sender while our window was full.
        self._full_reports = 0
        # The share of the rate that each active sender used, in the last period and in the one before; frames a second.
        self._used: dict[Member, int] = {}
        self._used_before: dict[Member, int] = {}
        self._active_since_ns = now_ns

    # Streams.

    def send_by(self, own: RegionSender) -> None:
        """Include this node's own stream: it sends into the region too. Tokens carry it, and the node serves it."""
        self.own = own

    def leave(self) -> None:
        """Note that this node has left all groups of this view: it needs nothing more, and still helps others."""
        self.is_left = True
        for stream in self.streams.values():
            stream.is_unwanted = True
            stream.held.clear()

    def stream_of(self, sender: Member, now_ns: int) -> RepairedStream | None:
        """Find or open the stream of a sender; return None for ourselves, and if there are too many."""
        stream = self.streams.get(sender)
        if stream is None and sender != self._me and len(self.streams) < self._settings.streams_max:
            stream = RepairedStream(
                sender,
                self.config.region,
                self.config.view,
                self.placement,
                self._position,
                self._settings,
                self._counters,
                now_ns,
            )
            stream.is_unwanted = self.is_left
            stream.groups = self.config.groups
            stream.lacks = self.config.lacks.get(self._me, ())
            self.streams[sender] = stream
            self._on_new_stream(stream)
        return stream

    def on_data(self, now_ns: int, stream: StreamReceiver, frame: Frame) -> bool:
        """Take a data frame of one of our streams; return whether it is new."""
        if not stream.on_data(now_ns, frame):
            return False
        if frame.kind is DATA:
            self._rate.on_frame()
        if self._rings[0].leader == self._me.node:
            unstable = stream.window.stop - stream.stable
            self._hurry(now_ns, unstable, unstable * stream.largest)
        return True

    def on_later_run(self, now_ns: int, stream: StreamReceiver, frames: list[Frame]) -> bool:
        """Take data frames that follow each other behind all that came of their stream; else return False."""
        if not stream.on_later_run(now_ns, frames):
            return False
        self._count_run(now_ns, stream, frames)
        return True

    def on_run(self, now_ns: int, stream: StreamReceiver, frames: list[Frame]) -> None:
        """Take new data frames that follow each other and are next in their stream."""
        stream.on_run(now_ns, frames)
        self._count_run(now_ns, stream, frames)

    def _count_run(self, now_ns: int, stream: StreamReceiver, frames: list[Frame]) -> None:
        self._rate.on_frame(frames[-1].stop - frames[0].sequence)
        if self._rings[0].leader == self._me.node:
            unstable = stream.window.stop - stream.stable
            self._hurry(now_ns, unstable, unstable * stream.largest)

    def on_sent(self, now_ns: int) -> None:
        """Note that this node itself sent into the region."""
        if self.own is not None and self._rings[0].leader == self._me.node:
            self._hurry(now_ns, self.own.next_frame - self.own.first, self.own.window_bytes)

    def on_report(self, now_ns: int, sharers: int) -> None:
        """Note that another leader reports on our stream, and take the lead if we alone send, and wait for reports.

        A round then ends where its result is needed: a hop less, of three in a region of two. Only in a view of one
        ring: with several, each leader waits for the rounds below it.
        """
        own = self.own
        if sharers > 1 or len(self._rings) > 1 or own is None or not own.window.was_full:
            self._full_reports = 0
            return
        self._full_reports += 1
        if self._full_reports >= LEAD_AFTER:
            self._full_reports = 0
            self._rings[0].become_leader(now_ns)

    def _hurry(self, now_ns: int, unstable: int, unstable_bytes: int) -> None:
        """Begin a round soon: at once when a window fills, since its sender will wait for the result."""
        if self._fills(unstable, unstable_bytes):
            self._interval_ns = self._settings.token_busy_ns_min
        self._rings[0].hurry(now_ns)

    def on_progress(self, now_ns: int, sender: Member, stop: int, closed: bool) -> None:
        """Take a sender's report of how far its stream goes, sent because not all is confirmed."""
        stream = self.stream_of(sender, now_ns)
        if stream is not None:
            stream.on_status(stop, closed, 0, 0)
            self._asking.add(sender)
            self.asked_ns = now_ns
            self._rings[-1].hurry(now_ns)
            self._rings[0].hurry(now_ns)

    @property
    def is_quiet(self) -> bool:
        """Whether all that was sent into this view is confirmed, and no more will come."""
        if self.own is not None and not self.own.is_done:
            return False
        return all(stream.is_settled and not self._is_awaited(stream) for stream in self.streams.values())

    def _is_awaited(self, stream: StreamReceiver) -> bool:
        """Return whether a sender that is still there has unconfirmed frames: then it needs our reports."""
        is_open = self._verdict(stream.sender).confirmed < stream.window.stop
        return is_open and not (stream.sender_gone or stream.is_unwanted)

    def is_busy(self) -> bool:
        """Whether something is unstable or missing here, or members still have to be told that nothing is.

        Otherwise these would believe that their leader is gone.
        """
        if self._untold or self._urgent or any(self._lagging):
            return True
        # Until all is stable, not until all is confirmed: while a member sleeps, the others have nothing to do.
        if self.own is not None and self.own.first < self.own.next_frame:
            return True
        return any(
            stream.stable < stream.window.stop or stream.reached < stream.window.stop
            for stream in self.streams.values()
        )

    def interval_ns(self) -> int:
        """Return how long to wait between rounds: not at all while repairs are requested or windows fill."""
        base_ns = self._settings.token_busy_ns_min if self._urgent else self._interval_ns
        if self._rounds_alike <= ROUNDS_ALIKE:
            return base_ns
        # After some rounds without a change a member is asleep or cut off, so rounds become less and less frequent. Not
        # at once: a repair from another ring, or from the sender, takes several rounds.
        return min(base_ns << min(self._rounds_alike - ROUNDS_ALIKE, 8), 4 * self._settings.token_busy_ns_max)

    def _fit_windows(self, buffer_bytes: int, sharers: int) -> None:
        """Learn which windows senders have (`SendWindow.fit`), and so what of one means that it fills."""
        if (buffer_bytes, sharers) == self._windows:
            return
        self._windows = (buffer_bytes, sharers)
        settings = self._settings
        window = SendWindow(settings, 0)
        window.fit(buffer_bytes, sharers)
        frames, size = window.frames_max, min(window.bytes, window.frames_max * settings.frame_bytes_max)
        self._filling = max(1, frames // 8, min(frames // 2, ROUND_FRAMES))
        self._filling_bytes = max(settings.frame_bytes_max, size // 8, min(size // 2, ROUND_BYTES))

    def _measure(self) -> None:
        """Update how much of any window is in use: a token is needed before it is full, not for every frame.

        At the end of a round, without what that made stable: a round that begins before more has come tells nothing.
        """
        settings = self._settings
        self._interval_ns = settings.token_busy_ns_max
        for stream in self.streams.values():
            if self._fills(unstable := stream.window.stop - stream.stable, unstable * stream.largest):
                self._interval_ns = settings.token_busy_ns_min
        own = self.own
        if own is not None and own.next_frame > own.first:
            # The report on this round is still to come.
            unstable = own.next_frame - max(own.first, min(own.next_frame, self._verdict(self._me).stable))
            if self._fills(unstable, own.window_bytes * unstable // (own.next_frame - own.first)):
                self._interval_ns = settings.token_busy_ns_min

    def _fills(self, unstable: int, unstable_bytes: int) -> bool:
        """Return whether so much of a window means that it fills: its sender will wait for the next round."""
        return unstable >= self._filling or unstable_bytes >= self._filling_bytes

    def _unstable(self) -> int:
        """Return the number of frames in the fullest window that this node knows of."""
        unstable = 0 if self.own is None else self.own.next_frame - self.own.first
        for stream in self.streams.values():
            unstable = max(unstable, stream.window.stop - stream.stable)
        return unstable

    # Rings.

    def forget_node(self, node: NodeId) -> None:
        """Let rings go on without a member that was dropped from the domain."""
        self.ladder.gone.add(node)
        for absent in self._absent:
            absent.pop(node, None)

    def begin(self, now_ns: int, level: int) -> Token:
        """Make the token of a round that this node leads."""
        if level == 0:
            self._untold = False
        down = tuple(self.desk.take_downward(level))
        vote = msgspec.structs.replace(NO_VOTE, allowed=self._allowed)
        token = self._add(now_ns, msgspec.structs.replace(EMPTY_TOKEN, level=level, rate=vote, requests=down))
        self._begun[level] = {(record.sender, record.incarnation) for record in token.streams}
        return token

    def pass_through(self, now_ns: int, token: Token) -> Token:
        """Learn from a passing token, and add what this node has to say."""
        self.absorb(now_ns, token)
        return self._add(now_ns, token)

    def absorb(self, now_ns: int, token: Token) -> None:
        """Learn what the region decided, and which streams there are."""
        for record in token.streams:
            sender = Member(NodeId(record.sender), Incarnation(record.incarnation))
            verdict = self._verdict(sender)
            if verdict.learn(record):
                self._untold = token.level > 0
            self._apply(now_ns, sender, record, verdict)
        self._allowed = token.rate.allowed or self._allowed
        self._lagging[token.level] = False
        if token.level == 0:
            self._urgent = False
        elif self._untold:
            self._rings[0].hurry(now_ns)

    def _apply(self, now_ns: int, sender: Member, record: StreamRecord, verdict: StreamStability) -> None:
        if sender == self._me:
            return
        stream = self.stream_of(sender, now_ns)
        if stream is not None:
            stream.on_status(record.stop, record.closed, verdict.stable, verdict.floor, record.slow)

    def _verdict(self, sender: Member) -> StreamStability:
        verdict = self._verdicts.get(sender)
        if verdict is None:
            verdict = self._verdicts[sender] = StreamStability()
        return verdict

    def _add(self, now_ns: int, token: Token) -> Token:
        level = token.level
        records = {(record.sender, record.incarnation): record for record in token.streams}
        mine = self._own_records() if level == 0 else self._results_of(level - 1, records)
        for record in mine:
            key = (record.sender, record.incarnation)
            before = records.get(key)
            records[key] = record if before is None else merge(before, record)
        if level == 0:
            requests = self.desk.serve(token.requests, self.streams)
            asked, lost = self.desk.ask(now_ns, token.requests, self.streams)
            requests += asked
            vote = add_voice(token.rate, self._state_rate(now_ns, lost), self._fitting_bytes(now_ns, lost))
        else:
            requests = self.desk.take_down(level, token.requests)
            requests += self.desk.take_upward(level - 1)
            vote = add_votes(token.rate, self._votes[level - 1])
        return msgspec.structs.replace(
            token,
            rate=vote,
            streams=tuple(records.values()),
            requests=tuple(requests[:REQUESTS_MAX]),
        )

    def _fitting_bytes(self, now_ns: int, lost: int) -> int:
        """Return the window that fits the receive buffer of this node: a smaller one if it may have run over lately.

        How much goes into it depends on how frames come. Whether it ran over nobody tells (the kernel's count has other
        drops too), but wherever frames were lost, less on the way does no harm.
        """
        if lost:
            self._cautious_until_ns = now_ns + CAUTION_NS
        settings = self._settings
        return settings.window_bytes_sure if now_ns < self._cautious_until_ns else settings.window_bytes

    def _state_rate(self, now_ns: int, lost: int) -> int:
        """Return the rate that this node can take. One that is behind states none: the others do not wait for it."""
        own_frames = 0 if self.own is None else self.own.next_frame
        if any(stream.reached < stream.stable for stream in self.streams.values()):
            self._rate.pause(now_ns, own_frames)
            return 0
        self._rate.on_lost(lost)
        delays = []
        for stream in self.streams.values():
            stream.measure_delay(now_ns)
            if stream.standing_ns is not None:
                delays.append(stream.standing_ns)
        queue_ns = delays[0] if len(delays) == 1 else None
        is_full = self._unstable() >= self._full
        return self._rate.update(now_ns, own_frames, self._standing_ns(delays), is_full, queue_ns)

    def _standing_ns(self, delays: list[int]) -> int:
        """Return how long a harmful queue has stood. A delay of one stream alone is caused at its sender."""
        if len(delays) > 1:
            return min(delays)
        return max(0, delays[0] - OWN_QUEUE_NS) if delays else 0

    def _own_records(self) -> list[StreamRecord]:
        """Return this node's own records."""
        records = []
        for sender, stream in self.streams.items():
            record = self._record(
                sender, stream.reached, stream.window.stop, stream.closed, stream.slow, stream.confirmable
            )
            if self._settings.feedback_ranges:
                reach, lacking = stream.feedback(self._settings.feedback_ranges)
                record = msgspec.structs.replace(record, reach=reach, lacking=lacking)
            records.append(record)
        if self.own is not None and self.own.next_frame:
            own = self.own
            record = self._record(self._me, own.next_frame, own.next_frame, own.closed, own.slow)
            # It has all of its own stream, and is no receiver: counted as one, it would not wait for the others.
            record = msgspec.structs.replace(record, prefix=NOBODY, slowest=0, delivered=NOBODY)
            if self._settings.feedback_ranges:
                record = msgspec.structs.replace(record, reach=own.next_frame)
            records.append(record)
        return records

    def _record(
        self, sender: Member, prefix: int, stop: int, closed: bool, slow: int = 0, delivered: int = 0
    ) -> StreamRecord:
        verdict = self._verdict(sender)
        stable, floor, confirmed = verdict.stable, verdict.floor, verdict.confirmed
        stop = max(stop, stable)
        is_behind = prefix < stable
        return StreamRecord(
            sender.node,
            sender.incarnation,
            stable,
            floor,
            stop,
            closed,
            prefix=NOBODY if is_behind else prefix,
            slowest=0 if is_behind else self._me.node,
            runner_up=NOBODY,
            behind=prefix if is_behind else NOBODY,
            slow=slow,
            confirmed=confirmed,
            delivered=delivered,
        )

    def _results_of(self, level: int, records: dict[tuple[int, int], StreamRecord]) -> Iterable[StreamRecord]:
        """Return the records of the ring below. It has nothing of a stream that it has not heard of."""
        results = self._results[level]
        for sender in {*results, *(Member(NodeId(node), Incarnation(life)) for node, life in records)}:
            yield results.get(sender) or self._record(sender, 0, 0, closed=False)

    # Results.

    def complete(self, now_ns: int, token: Token) -> None:
        """Take the result of a round: decide at the top, otherwise report to the ring above in its next round."""
        level = token.level
        self.absorb(now_ns, token)
        # First, because the decisions below must already exclude members passed over in this very round.
        self._note_absent(level)
        begun = self._begun[level] if token.leader == self._me.node else set()
        records = [self._with_absent(level, self._with_unaware(record, begun)) for record in token.streams]
        self._urgent = bool(token.requests)
        self._votes[level] = token.rate
        # Ask again soon: a member that holds frames back does not report when it has delivered them.
        self._lagging[level] = any(map(self._is_held_back, records))
        if level == 0:
            self._lagging[level] |= any(record.behind != NOBODY for record in token.streams)
            result = (token.streams, token.skipped)
            self._rounds_alike = self._rounds_alike + 1 if result == self._last_result else 0
            self._last_result = result
        if level + 1 < len(self._rings):
            self._results[level] = {
                Member(NodeId(record.sender), Incarnation(record.incarnation)): record for record in records
            }
            self.desk.send_up(level, self.desk.seen_by_all(level, token.requests))
            self._measure()
            if self._rings[level + 1].is_leader:
                self._rings[level + 1].hurry(now_ns)
            return
        for record in records:
            self._decide(now_ns, record)
        self._count_active(now_ns, token)
        self._allowed = decide_rate(token.rate, self._settings.rate_rule)
        self._report(token, self.desk.seen_by_all(level, token.requests))
        self._measure()

    def _is_held_back(self, record: StreamRecord) -> bool:
        """Return whether a sender that is still there waits for a member to deliver what it has."""
        stream = self.streams.get(Member(NodeId(record.sender), Incarnation(record.incarnation)))
        return is_held_back(record) and (stream is None or not stream.sender_gone)

    def _count_active(self, now_ns: int, token: Token) -> None:
        """Measure the use of the rate by active senders: those whose streams grew lately, or are not stable."""
        elapsed_ns = now_ns - self._active_since_ns
        if elapsed_ns < self._settings.rate_period_ns:
            return
        self._active_since_ns = now_ns
        stops = {Member(NodeId(each.sender), Incarnation(each.incarnation)): each.stop for each in token.streams}
        self._used_before = self._used
        self._used = {
            sender: (stop - self._stops.get(sender, 0)) * SECOND // elapsed_ns
            for sender, stop in stops.items()
            if stop > self._stops.get(sender, 0) or stop > self._verdict(sender).stable
        }
        self._stops = stops

    def _used_lately(self, sender: Member) -> int:
        # The larger of two periods: after a late round one of them looks idle.
        return max(self._used.get(sender, 0), self._used_before.get(sender, 0))

    def _note_absent(self, level: int) -> None:
        """Remember, for each member that was passed over, what all had then: it may ask for all frames from there."""
        absent, skipped = self._absent[level], self._rings[level].skipped
        for node in [node for node in absent if node not in skipped]:
            del absent[node]
        for node in skipped:
            if node not in absent and node not in self.ladder.gone:
                absent[node] = {sender: verdict.confirmed for sender, verdict in self._verdicts.items()}

    def _with_unaware(self, record: StreamRecord, begun: set[tuple[int, int]]) -> StreamRecord:
        """Return a record that allows for members unaware of the stream.

        Members that passed the token before another reported the stream said nothing of it, and may have none of it.
        """
        if (record.sender, record.incarnation) in begun:
            return record
        sender = Member(NodeId(record.sender), Incarnation(record.incarnation))
        return merge(record, self._record(sender, 0, 0, closed=False))

    def _with_absent(self, level: int, record: StreamRecord) -> StreamRecord:
        if not self._absent[level]:
            return record
        sender = Member(NodeId(record.sender), Incarnation(record.incarnation))
        lowest = min(stable.get(sender, 0) for stable in self._absent[level].values())
        return msgspec.structs.replace(record, behind=min(record.behind, lowest))

    def _decide(self, now_ns: int, record: StreamRecord) -> None:
        """Decide about a stream for the whole region."""
        sender = Member(NodeId(record.sender), Incarnation(record.incarnation))
        verdict = self._verdict(sender)
        # A rate that this node itself never found too high may be that of one weak member.
        is_pace_known = not (self._allowed and self._rate.is_starting)
        if verdict.decide(now_ns, record, self._settings, is_pace_known):
            self._untold = True
        self._apply(now_ns, sender, record, verdict)

    def _report(self, token: Token, requests: Iterable[RepairRequest]) -> None:
        """Report to every sender what is stable, and which frames no member of the region could serve."""
        missing: dict[tuple[int, int], RangeSet] = {}
        for request in requests:
            wanted = missing.setdefault((request.sender, request.incarnation), RangeSet())
            wanted.update(RangeSet.from_bounds(request.bounds))
        used = {sender: self._used_lately(sender) for sender in self._used}
        shares = FairShares(self._allowed, used.values())
        # Who just began has used nothing yet.
        senders = max(1, len(used), sum([record.stop > record.stable for record in token.streams]))
        self._fit_windows(token.rate.buffer_bytes, senders)
        for record in token.streams:
            sender = Member(NodeId(record.sender), Incarnation(record.incarnation))
            verdict = self._verdicts[sender]
            stream = self.streams.get(sender)
            # A sender that left and did not die still gets reports, but each of them once.
            is_gone = stream is not None and stream.sender_gone
            lacks = missing.get(sender, RangeSet())
            lacks.discard_range(0, verdict.floor)
            now = (verdict.stable, verdict.floor, verdict.confirmed)
            is_open = verdict.confirmed < record.stop and not is_gone
            if now != verdict.reported or lacks or is_open or sender in self._asking:
                verdict.reported = now
                bounds = tuple(lacks.lowest(self._limits.ranges_max).bounds())
                rate = shares.of(used.get(sender, 0))
                ranges = beyond(verdict.stable, record.reach, record.lacking) if record.reach else ()
                report = RegionReport(
                    sender.incarnation, verdict.stable, verdict.floor, bounds, rate, senders, ranges,
                    verdict.confirmed, token.rate.buffer_bytes,
                )  # fmt: skip
                self.reports.append((sender, report))
        self._asking.clear()

    @property
    def has_messages(self) -> bool:
        """Whether there is anything to send."""
        return bool(self.reports or self.desk.repairs) or self.ladder.has_messages

    def take_messages(self, now_ns: int) -> list[tuple[NodeId, Token | TokenReceipt]]:
        """Return the tokens and receipts to send, and forget them."""
        return self.ladder.take_messages(now_ns)

    def suspects(self, now_ns: int, patience_ns: int, health: LocalHealth) -> list[tuple[Member, int]]:
        """List members that this node, as a leader, has passed over for too long, and for how long it was awake."""
        found = []
        patience_ns = health.patience_ns(patience_ns)
        for ring in self._rings:
            if ring.is_leader:
                for node, since_ns in ring.skipped.items():
                    silent_ns = health.awake_ns(now_ns, since_ns)
                    if silent_ns >= patience_ns and node in self._lives and node not in self.ladder.gone:
                        found.append((self._lives[node], silent_ns))
        return found


def _ring_times(settings: QsmSettings) -> RingTimes:
    return RingTimes(
        idle_ns=settings.token_idle_ns,
        # Twice as long: news from the ring below comes with its rounds, and hurries the ring above.
        leaders_busy_ns=2 * settings.token_busy_ns_max,
        hop_timeout_ns=settings.hop_timeout_ns,
        hop_tries=settings.hop_tries,
        watch_busy_ns=settings.watch_busy_ns,
        watch_idle_ns=settings.watch_idle_ns,
    )
