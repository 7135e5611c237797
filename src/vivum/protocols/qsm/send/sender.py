"""The way out: feeds of groups, streams into region views, their windows, rates and heartbeats.

Feeds register intent by putting messages into streams; streams are pulled when the network, the window and the rate
allow (seed 004, section 4). Knows nothing of rings: what a region says of a stream comes as a `RegionReport`.

Invariants: a key in `_ready` has something to seal, or had when it was put there; what was accepted is confirmed or
reported as failed, once.
"""

from collections.abc import Iterable, Sequence

from vivum.core.errors import NotNowError
from vivum.core.ids import Channel, Endpoint, GroupId, Member, RegionId, ViewNumber
from vivum.core.limits import Limits
from vivum.core.machine import Datagram, Effect, Priority
from vivum.observe.counters import Counters
from vivum.protocols.commands import QueueGrew, SendConfirmed, SendFailed, SlowMembers
from vivum.protocols.membership.region_config import RegionConfig
from vivum.protocols.qsm.send.hybrid import Spreading
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.streams.feed import Feed
from vivum.protocols.streams.region_sender import RegionSender, SendRoute, ViewKey
from vivum.wire.codec import FrameBuilder, resend
from vivum.wire.kinds import Kind
from vivum.wire.layout import HEADER_BYTES, LENGTH_BYTES, RUN_HEADER_BYTES
from vivum.wire.tokens import RegionReport
from vivum.wire.trains import address, couple, frames_in_train

ISOLATE = SlowMembers.ISOLATE

SEND_NOW_BYTES = 4096
"""Messages that leave before all else: an answer. More is bulk, and is sealed with all else."""

ENDED_MAX = 4096
"""Ends of streams that are remembered; a region view so many changes ago was replaced since."""


class Sender:
    """All that this node sends."""

    def __init__(
        self,
        settings: QsmSettings,
        limits: Limits,
        counters: Counters,
        effects: list[Effect],
        builder: FrameBuilder | None = None,
    ) -> None:
        """Begin with no streams. What becomes of messages is told through `effects`, the machine's."""
        self.streams: dict[ViewKey, RegionSender] = {}
        self.repairs: list[Datagram] = []
        self._effects = effects
        # What the application wants to be done about slow members, for groups where it said.
        self.slow: dict[GroupId, SlowMembers] = {}
        self._settings = settings
        self._limits = limits
        self._counters = counters
        self._builder = builder or FrameBuilder(settings.frame_bytes_max)
        # Of messages and their lengths, in a frame of one group.
        self._alone_bytes_max = min(SEND_NOW_BYTES, settings.frame_bytes_max - HEADER_BYTES - RUN_HEADER_BYTES)
        self._feeds: dict[GroupId, Feed] = {}
        self._ended: dict[ViewKey, int] = {}
        self._ready: dict[ViewKey, None] = {}
        self._train_frames = frames_in_train(settings.frame_bytes_max)
        self._spreading = Spreading(self._ready, counters, settings.frame_bytes_max)
        # Streams that wait for their rate, and until when.
        self._paced: dict[ViewKey, int] = {}
        self._pending_high = 0
        self._waiting_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes of messages that wait, once for each stream that they go into."""
        return self._waiting_bytes

    # From the application.

    def treat_slow(self, group: GroupId, wish: SlowMembers) -> None:
        """Note what is to be done about slow members of a group."""
        self.slow.pop(group, None)
        if wish != SlowMembers.ISOLATE:
            self.slow[group] = wish

    def open(self, config: RegionConfig, destinations: Sequence[Endpoint | Channel]) -> RegionSender:
        """Begin a stream into a region view, or go on with the one that was closed when the view did not concern us."""
        key = (config.region, config.view)
        stream = self.streams.get(key)
        if stream is not None:
            stream.reopen()
            return stream
        stream = RegionSender(config, destinations, self._settings, self._ended.pop(key, 0))
        self.streams[config.region, config.view] = stream
        return stream

    def accept(
        self,
        group: GroupId,
        payloads: Sequence[bytes],
        size: int,
        streams: tuple[RegionSender, ...],
        view: ViewNumber,
        channel: Channel | None = None,
    ) -> int:
        """Number messages and queue them for all their streams, or raise `NotNowError`; return the first number.

        With a channel they go the hybrid way: there, in frames for all streams.
        """
        if self._waiting_bytes and self._waiting_bytes + size > self._settings.waiting_bytes_max:
            raise NotNowError(
                f"{self._waiting_bytes} bytes wait in all groups; with {size} more they would pass "
                f"waiting_bytes_max={self._settings.waiting_bytes_max}: wait until some are sent"
            )
        spreading, spread, in_spread = self._spreading, None, 0
        if channel is not None or spreading.is_used:
            spread = spreading.route(group, streams, channel)
            in_spread = spreading.pending_bytes(group)
        most = 0
        for stream in streams:
            waiting = stream.outboxes.pending_bytes(group) + in_spread
            if waiting > most:
                most = waiting
            if waiting and waiting + size > self._settings.pending_bytes_max:
                raise NotNowError(
                    f"group {group} has {waiting} bytes waiting; with {size} more it would pass "
                    f"pending_bytes_max={self._settings.pending_bytes_max}: wait until some are sent"
                )
        feed = self._feeds.get(group)
        if feed is None:
            feed = self._feeds[group] = Feed(group)
        slow = self.slow.get(group, ISOLATE) if self.slow else ISOLATE
        first = feed.send(payloads, streams, view, size, slow, spread)
        if not streams:
            self._confirm(feed)
            return first
        self._waiting_bytes += size * len(streams)
        if spread is not None:
            spreading.awake(spread)
        else:
            for stream in streams:
                self._ready[stream.key] = None
        if most + size > self._pending_high:
            self._measure(most + size)
        return first

    def room_bytes(self, group: GroupId, streams: tuple[RegionSender, ...]) -> int:
        """Return how many bytes of messages `accept` would take now without looking at its limits again."""
        room = self._settings.waiting_bytes_max - self._waiting_bytes
        in_spread = self._spreading.pending_bytes(group) if self._spreading.is_used else 0
        for stream in streams:
            waiting = stream.outboxes.pending_bytes(group) + in_spread
            room = min(room, self._settings.pending_bytes_max - waiting)
        return max(0, room)

    def send_alone(
        self,
        now_ns: int,
        header: tuple[int, ...],
        group: GroupId,
        payloads: Sequence[bytes],
        size: int,
        route: SendRoute,
        datagrams: list[Datagram],
    ) -> int | None:
        """Number messages, seal them in a frame of their own and add that; return the number of the first.

        The same as `accept` and `make_data` where nothing waits, without queue and turns. Return None, and do nothing,
        if anything is in the way or they do not fit. The header is what frames of all streams have in common.
        """
        view, streams = route
        if len(streams) != 1 or not payloads or self.has_data or self.slow or self._spreading.is_used:
            return None
        (stream,) = streams
        if size + LENGTH_BYTES * len(payloads) > self._alone_bytes_max or not stream.is_clear(group, view):
            return None
        if not self._may_leave(now_ns, stream):
            return None
        first = self._feeds[group].number(len(payloads), streams)
        frame = stream.seal_alone(self._builder, now_ns, (*header, *stream.key), group, first, payloads)
        for where in stream.destinations:
            datagrams.append(Datagram(where, frame))
        stream.pacer.rest()
        return first

    def _measure(self, waiting: int) -> None:
        self._pending_high = waiting
        limit = max(self._settings.pending_bytes_max, self._limits.message_bytes_max)
        self._effects.append(QueueGrew("pending", waiting, limit, "bytes"))

    def next_message_of(self, group: GroupId) -> int:
        """Return how many messages this life has sent to a group."""
        feed = self._feeds.get(group)
        return 0 if feed is None else feed.next_message

    def next_frame_of(self, key: ViewKey) -> int:
        """Return how many frames this life has sent into a region view."""
        stream = self.streams.get(key)
        return self._ended.get(key, 0) if stream is None else stream.next_frame

    # From regions.

    def on_report(self, now_ns: int, stream: RegionSender, report: RegionReport) -> None:
        """Take what a region says of a stream: confirm, send again, go faster or slower."""
        for group in stream.on_report(now_ns, report):
            self._confirm(self._feeds[group])
        self._send_again(now_ns, stream, report.missing)
        self._spreading.wake(stream)
        if stream.can_seal:
            self._ready[stream.key] = None

    def on_region_left(self, stream: RegionSender) -> None:
        """Confirm all that was or is to be sent into a region view that is over, and whose members all left or died."""
        self._waiting_bytes -= stream.waiting_bytes
        for group in stream.end_unheard():
            self._confirm(self._feeds[group])

    def _send_again(self, now_ns: int, stream: RegionSender, missing: Sequence[int]) -> None:
        """Send frames to the whole region once more, but for those that were just sent again."""
        frames = stream.resend(missing, now_ns, self._settings.repairs_per_token_max)
        if frames:
            self.repair(frames, stream.destinations)

    def repair(self, frames: Iterable[bytes], destinations: Sequence[Endpoint | Channel]) -> None:
        """Send frames again, of this node's streams or from its caches."""
        again = [resend(data) for data in frames]
        self.repairs += address(couple(again, self._settings.frame_bytes_max), destinations, Priority.REPAIR)
        self._counters.repairs_sent += len(again)
        self._counters.repair_bytes_sent += sum(map(len, again)) * len(destinations)

    def _confirm(self, feed: Feed) -> None:
        for first, stop in feed.confirm():
            self._counters.messages_stable += stop - first
            self._effects.append(SendConfirmed(feed.group, first, stop))

    def _fail(self, feed: Feed, first: int, stop: int, cause: str) -> None:
        for news, end in feed.fail(first, stop):
            self._counters.messages_failed += end - news
            self._effects.append(SendFailed(feed.group, news, end, None, cause))

    # Views.

    def close(self, key: ViewKey, now_ns: int) -> None:
        """A region view was replaced: its stream takes no new messages, and ends when what waits has gone out."""
        stream = self.streams.get(key)
        if stream is not None:
            self._spreading.close(stream)
            stream.close(now_ns)
            if stream.can_seal:
                self._ready[key] = None

    def retire(self, now_ns: int, kept: Iterable[ViewKey]) -> None:
        """Forget streams that are done, but for those whose region this node is still in; give up overdue ones."""
        for key, stream in list(self.streams.items()):
            if stream.closing_since_ns is None or key in kept:
                continue
            if stream.is_done:
                self._end(self.streams.pop(key))
            elif now_ns - stream.closing_since_ns >= self._settings.quiesce_ns_max:
                self.forsake(key)

    def forsake(self, key: ViewKey) -> None:
        """Give up a stream into a view that never became quiet; report what is not known to be everywhere."""
        stream = self.streams.pop(key)
        self._end(stream)
        self._waiting_bytes -= stream.waiting_bytes
        for group, (_, stop, stable) in stream.put.items():
            feed = self._feeds[group]
            self._fail(feed, stable, stop, f"region {key[0]} did not become quiet after its view {key[1]}")
            feed.forsake(stream)
            self._confirm(feed)

    def _end(self, stream: RegionSender) -> None:
        """Remember where a stream ended: this node may come back to the same region view, and goes on from there."""
        if stream.next_frame:
            self._ended[stream.key] = stream.next_frame
            if len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]

    def lose_everything(self) -> None:
        """This life is over. What was not confirmed is reported."""
        for feed in self._feeds.values():
            self._fail(feed, feed.stable, feed.next_message, "this node was dropped from the domain")
        self._forget()

    def release(self) -> None:
        """Forget all that was sent, unreported, and let go of the memory where frames were sealed."""
        self._forget()
        self._builder = FrameBuilder(self._settings.frame_bytes_max)

    def _forget(self) -> None:
        self.streams.clear()
        self._ended.clear()
        self.repairs.clear()
        self._feeds.clear()
        self._ready.clear()
        self._paced.clear()
        self._spreading.clear()
        self._waiting_bytes = 0

    # Time.

    def next_deadline_ns(self) -> int | None:
        """Return when a heartbeat is due or a rate lets the next frame go."""
        times = [stream.heartbeat_at_ns for stream in self.streams.values() if stream.heartbeat_at_ns is not None]
        times += self._paced.values()
        times += self._spreading.deadlines_ns()
        return min(times) if times else None

    def on_timer(self, now_ns: int) -> list[RegionSender]:
        """Let paced streams go on; return the streams whose heartbeat is due."""
        for key in [key for key, ready_ns in self._paced.items() if ready_ns <= now_ns]:
            del self._paced[key]
            self._ready[key] = None
        self._spreading.on_timer(now_ns)
        due = []
        for stream in self.streams.values():
            if stream.heartbeat_at_ns is not None and stream.heartbeat_at_ns <= now_ns:
                stream.on_heartbeat_due(now_ns)
                due.append(stream)
        return due

    # Out.

    @property
    def has_data(self) -> bool:
        """Return whether a stream could seal a frame now."""
        return bool(self._ready) or self._spreading.has_data

    def make_data(self, now_ns: int, domain: int, me: Member, datagrams: list[Datagram], room_bytes: int) -> None:
        """Seal frames as far as there is room, a train of each ready stream in turn; between them those for several."""
        frames_left = self._settings.frames_per_output_max
        spreading = self._spreading
        while self.has_data and room_bytes > 0 and frames_left > 0:
            if self._ready:
                # A turn is a train: single frames would cost a system call each. A stream that is alone goes on.
                turn = self._train_frames if len(self._ready) > 1 or spreading.has_data else frames_left
                size, frames = self._seal_next(now_ns, domain, me, datagrams, room_bytes, turn)
                room_bytes -= size
                frames_left -= frames
            if spreading.has_data:
                size, frames, taken = spreading.seal_next(now_ns, domain, me, self._builder, datagrams)
                self._waiting_bytes -= taken
                room_bytes -= size
                frames_left -= frames

    def _seal_next(
        self, now_ns: int, domain: int, me: Member, datagrams: list[Datagram], room_bytes: int, frames_max: int
    ) -> tuple[int, int]:
        """Let the next ready stream seal frames as far as its window and rate allow; return their bytes and number."""
        key = next(iter(self._ready))
        del self._ready[key]
        stream = self.streams.get(key)
        size = frames = 0
        can_seal = stream is not None and stream.can_seal
        if stream is None or not can_seal:
            if stream is not None:
                stream.pacer.rest()
            return size, frames
        if stream.pacer.is_limited and self._spreading.shares(stream):
            # Each frame reserves its time, as those for several streams do.
            frames_max = 1
        region, view = RegionId(key[0]), ViewNumber(key[1])
        before: Sequence[RegionSender] = ()
        if stream.next_frame == 0:
            before = [each for each in self.streams.values() if each.config.view < view and not each.is_done]
        waiting = stream.waiting_bytes
        header, where_to = (Kind.DATA, domain, *me, region, view), stream.destinations
        while self._may_leave(now_ns, stream):
            bytes_max = -(-(room_bytes - size) // max(1, len(where_to)))
            run = stream.seal(self._builder, now_ns, header, frames_max - frames, bytes_max, before)
            datagrams += address(run, where_to)
            for train in run:
                size += len(train.data) * len(where_to)
                frames += train.frames
            if not stream.can_seal:
                stream.pacer.rest()
                break
            if frames >= frames_max or size >= room_bytes:
                self._ready[key] = None
                break
        self._waiting_bytes -= waiting - stream.waiting_bytes
        if frames:
            self._spreading.wake(stream)
        return size, frames

    def _may_leave(self, now_ns: int, stream: RegionSender) -> bool:
        """Return whether the rate lets the next frame of a stream go, and count it; else it waits for its time."""
        ready_ns = stream.pacer.ready_ns(now_ns) if stream.reserved_ns is None else stream.reserved_ns
        if ready_ns > now_ns:
            self._paced[stream.key] = ready_ns
            if stream.reserved_ns is None and self._spreading.shares(stream):
                # Frames for several streams count at once, long before they leave: so must this one, or it never could.
                stream.reserved_ns = ready_ns
                stream.pacer.on_sent()
            return False
        if stream.reserved_ns is None:
            stream.pacer.on_sent()
        stream.reserved_ns = None
        return True
