"""The short way in and out of QSM: one message that comes or goes alone, as an answer does.

The same as the way of all others, in state, counters and bytes, for less work. Wherever anything is in the way of a
message, it takes the way of all others.

In two steps. `send_now` and `take_deliveries` do what must be done for a message and leave the rest to `take_output`.
Where a message went that way, the next one of its stream and group is left to compiled parts (`alone`), which only
write down what they did: `catch_up` does it, before anything else looks at the machine or changes it.

Invariants: while a part is armed nothing is in the way of what it takes; all that could put something there clears it.
What is written down is carried out before the next command, frame, timer or output.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vivum.core.ids import Endpoint, GroupId, Member, ViewNumber
from vivum.core.limits import Limits
from vivum.core.machine import Command, Datagram, Delivery, Output
from vivum.observe.counters import Counters
from vivum.observe.trace import Tracer
from vivum.protocols.commands import SendMessages
from vivum.protocols.membership.client.client import MembershipClient
from vivum.protocols.qsm.alone import AloneIn, AloneOut
from vivum.protocols.qsm.lanes import Lane, Lanes, Route
from vivum.protocols.qsm.region import RegionMember
from vivum.protocols.qsm.send.feed import Feed
from vivum.protocols.qsm.send.region_sender import RegionSender, ViewKey
from vivum.protocols.qsm.send.sender import Sender
from vivum.wire.codec import Frame
from vivum.wire.gate import Gate

NAME_OF_STREAM = slice(8, 24)
"""Where a frame names its stream: sender, life, keys, region, view."""

ALONE_BYTES_MAX = 4096
"""Larger frames are not answers: it is not worth the while to be prepared for the next one."""

_Place = tuple[GroupId, Member, ViewNumber, RegionSender, Feed]


class AtOnce:
    """What a machine of QSM does at once; the machine has the rest."""

    client: MembershipClient
    counters: Counters
    limits: Limits
    regions: Mapping[ViewKey, RegionMember]
    sending: Sender
    trace: Tracer | None
    _gate: Gate
    _lanes: Lanes
    _now_ns: int
    _output: Output
    _routes: Mapping[GroupId, Route]

    def __init__(self, gate: Gate) -> None:
        # What was read and sealed, and is still to be noted; both parts write here.
        self._done: list[Any] = []
        self._alone_in = AloneIn(gate.domain, self._done)
        self._alone_out = AloneOut(self._done)
        # Somebody takes deliveries before all else: then it pays to be prepared for the next frame.
        self._is_hurried = False
        self.hear_now: Callable[[int, Endpoint, bytes], Delivery | None] = self._alone_in.hear
        self.seal_now: Callable[[int, Command], list[Datagram] | None] = self._alone_out.seal

    def submit(self, now_ns: int, command: Command) -> None:
        """Take a command, the way of all others: the machine's own, which stands before this one."""
        raise NotImplementedError

    def take_deliveries(self) -> list[Delivery]:
        """Hand over what to deliver, unless an event comes before it."""
        if self._done:
            self.catch_up()
        self._is_hurried = True
        output = self._output
        if output.events or self.sending.events:
            return []
        deliveries, output.deliveries = output.deliveries, []
        return deliveries

    def send_now(self, now_ns: int, command: Command) -> list[Datagram]:
        """Take a command. Return the frame of a message that is alone and may leave now, for all destinations."""
        if self._done:
            self.catch_up()
        made = self._seal(now_ns, command) if type(command) is SendMessages and self.trace is None else None
        if made is None:
            self.submit(now_ns, command)
            return []
        return made

    def _seal(self, now_ns: int, command: SendMessages) -> list[Datagram] | None:
        """Seal a message that is alone; None, and nothing changed, if it is not, or may not leave now."""
        group, payloads = command.group, command.payloads
        route, me = self._routes.get(group), self.client.member
        if route is None or me is None or len(payloads) != 1:
            return None
        view, streams = route
        payload = payloads[0]
        if len(streams) != 1 or type(payload) is not bytes or len(payload) > self.limits.message_bytes_max:
            return None
        stream = streams[0]
        made = self.sending.send_now(now_ns, self._gate.domain, me, group, payload, view, stream)
        if made is None:
            return None
        number, data = made
        self._note_sent(now_ns, number, payloads, group, me, view, stream)
        self._prepare_next(group, me, view, stream, number, data)
        return [Datagram(where, data) for where in stream.destinations]

    def _note_sent(
        self,
        now_ns: int,
        number: int,
        payloads: Sequence[bytes],
        group: GroupId,
        me: Member,
        view: ViewNumber,
        stream: RegionSender,
    ) -> None:
        self._now_ns = now_ns
        self.counters.messages_accepted += 1
        self._output.deliveries.append(Delivery(group, me, number, payloads, view, now_ns))
        region = self.regions.get(stream.key)
        if region is not None:
            region.on_sent(now_ns)

    # What is left to compiled parts.

    def _prepare_next(
        self, group: GroupId, me: Member, view: ViewNumber, stream: RegionSender, number: int, data: bytes
    ) -> None:
        """A message went out alone: the next ones of its group may follow it as long as there is room."""
        if len(stream.destinations) != 1 or stream.pacer.is_limited:
            return
        frames, size = stream.room
        feed, payload_max = self.sending.alone(group)
        place: _Place = (group, me, view, stream, feed)
        self._alone_out.arm(group, number + 1, data, frames, size, payload_max, stream.destinations[0], place)

    def _expect_next(self, frame: Frame) -> None:
        """A frame came alone, was next and has been delivered: the next one may follow it."""
        lane = self._lanes[frame.stream]
        _, stream, chain = lane
        name = frame.data[NAME_OF_STREAM]
        is_quiet = not (self._output.events or self.sending.events or self.trace)
        if is_quiet and chain.is_plain(stream) and stream.delivered == stream.window.prefix == frame.sequence + 1:
            self._alone_in.arm(name, stream.delivered, chain.sender, stream.view, chain.expected, lane)
        else:
            self._alone_in.disarm(name)

    def _be_wary(self) -> None:
        """Something may be in the way from now on: note what was done, and look before the next message."""
        if self._done:
            self.catch_up()
        self._alone_in.clear()
        self._alone_out.clear()

    def catch_up(self) -> None:
        """Note what was read and sealed by compiled parts, as if it had come and gone the way of all others."""
        done = self._done[:]
        self._done.clear()
        for each in done:
            if len(each) == 4:
                self._catch_up_heard(*each)
            else:
                self._catch_up_sent(*each)

    def _catch_up_heard(self, lane: Lane, now_ns: int, source: Endpoint, data: bytes) -> None:
        self._now_ns = now_ns
        region, stream, _ = lane
        frames = self._gate.open(now_ns, source, data)
        assert stream.is_next(frames[0].sequence, 1), "a frame was handed over that was not next"
        region.on_run(now_ns, stream, frames)
        stream.delivered = frames[0].sequence + 1
        self.counters.messages_delivered += 1

    def _catch_up_sent(self, place: _Place, now_ns: int, number: int, payloads: Sequence[bytes], data: bytes) -> None:
        group, me, view, stream, feed = place
        feed.count_one()
        stream.put[group][1] = number + 1
        stream.sealed(data, now_ns, [(group, number + 1)])
        self._note_sent(now_ns, number, payloads, group, me, view, stream)
        self.counters.datagrams_sent += 1
        self.counters.bytes_sent += len(data)
