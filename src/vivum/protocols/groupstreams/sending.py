"""The sender's side of the stream of one group: what waits, what may be asked for again, and who has what.

Frames are numbered from 0 in each life, across views. A frame is kept until every member that it was sent to has
reported that nothing before its end is left to deliver; who joins later begins behind the last frame sealed before.

Invariants: `floor <= next_frame`; exactly the frames `floor <= n < next_frame` are kept; nobody in `reached` is below
the floor, unless frames were given up; `confirmed <= next_message`.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from vivum.core.ids import Channel, Endpoint, GroupId, Member, ViewNumber
from vivum.wire.codec import FrameBuilder
from vivum.wire.outboxes import Outboxes
from vivum.wire.trains import Train


@dataclass(slots=True)
class KeptBytes:
    """What all streams of a node together hold back: messages that wait, frames that may be asked for."""

    count: int = 0


FRAMES_AT_ONCE_MAX = 256
"""Frames that are sealed by one call, at most."""


class GroupSender:
    """The stream of this node into one group."""

    __slots__ = (
        "_ends",
        "_floor_message",
        "_frames",
        "_outboxes",
        "_sent_ns",
        "confirmed",
        "destinations",
        "floor",
        "group",
        "kept",
        "left_ns",
        "needs",
        "next_frame",
        "next_message",
        "reached",
        "view",
    )

    def __init__(self, group: GroupId, kept: KeptBytes, next_frame: int = 0, next_message: int = 0) -> None:
        """Begin a stream, or go on with one of this life that ended before these numbers."""
        self.group = group
        self.kept = kept
        self.view = ViewNumber(0)
        self.destinations: Sequence[Endpoint | Channel] = ()
        # For each other member, below which frame it needs nothing.
        self.reached: dict[Member, int] = {}
        # And the message with which that frame begins.
        self.needs: dict[Member, int] = {}
        self.next_frame = self.floor = next_frame
        self.next_message = self.confirmed = next_message
        # Since when this node is no member any more; frames are kept for the others for a while.
        self.left_ns: int | None = None
        # Whole where possible: a message in one frame needs no other to be delivered.
        self._outboxes = Outboxes(cut_to_fill=False)
        self._floor_message = next_message
        # Of each frame that is kept: its bytes, one past the last message that ends in it or before it, and when it
        # was sealed.
        self._frames: deque[bytes] = deque()
        self._ends: deque[int] = deque()
        self._sent_ns: deque[int] = deque()

    def __bool__(self) -> bool:
        """Return whether something waits for a frame."""
        return bool(self._outboxes)

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits, and every member has everything."""
        return not self._outboxes and all(prefix >= self.next_frame for prefix in self.reached.values())

    def follow(self, view: ViewNumber, others: Sequence[Member], destinations: Sequence[Endpoint | Channel]) -> None:
        """Take over a view. Nothing may wait that was accepted in the view before: call `seal` first."""
        assert not self._outboxes or view == self.view
        self.view = view
        self.destinations = destinations
        self.reached = {member: self.reached.get(member, self.next_frame) for member in others}
        self.needs = {member: self.needs.get(member, self.next_message) for member in others}

    def put(self, payloads: Sequence[bytes], size: int) -> int:
        """Queue messages; return the number of the first."""
        first = self.next_message
        self.next_message += len(payloads)
        if self.reached:
            self._outboxes.put(self.group, first, payloads, size)
            self.kept.count += size
        return first

    def seal(
        self, builder: FrameBuilder, now_ns: int, header: tuple[int, ...], bytes_max: int
    ) -> tuple[list[Train], int]:
        """Seal frames of what waits, and keep them; return them and the number of the first."""
        first = self.next_frame
        label = (*header, self.group, self.view, first, now_ns)
        trains, every, taken = self._outboxes.seal(builder, FRAMES_AT_ONCE_MAX, bytes_max, label)
        self.kept.count -= taken
        end = self._ends[-1] if self._ends else self._floor_message
        for stops in every:
            for number in range(stops.frames):
                end = stops.between(number, number + 1).get(self.group, end)
                self._ends.append(end)
                self._sent_ns.append(now_ns)
        for train in trains:
            self.kept.count += len(train.data)
            if train.segment:
                data, size = train.data, train.segment
                self._frames.extend([data[at : at + size] for at in range(0, len(data), size)])
            else:
                self._frames.append(train.data)
        self.next_frame += sum(stops.frames for stops in every)
        return trains, first

    # What members have, and what they can get.

    def get(self, number: int) -> bytes | None:
        """Return a frame; None if it is not kept."""
        return self._frames[number - self.floor] if self.floor <= number < self.next_frame else None

    def offer(self, member: Member) -> tuple[int, int, int]:
        """Return from which message on a member needs a stream, and the first frame, with its message, that is kept."""
        first = max(self.reached[member], self.floor)
        message = self._message_at(first)
        return min(self.needs[member], message), first, message

    def _message_at(self, number: int) -> int:
        """Return the message with which a frame begins that is kept, or the next one."""
        return self._floor_message if number == self.floor else self._ends[number - self.floor - 1]

    def on_report(self, member: Member, prefix: int) -> None:
        """Note that a member has delivered, or will not get, anything below a frame."""
        if prefix > self.reached[member]:
            self.reached[member] = prefix
            self.needs[member] = self._message_at(max(prefix, self.floor))

    def advance(self) -> tuple[int, int] | None:
        """Forget what every member has; return which messages are confirmed by that, if any."""
        self._forget_below(min(self.reached.values(), default=self.next_frame))
        stop = min(self.needs.values()) if self.needs else self._floor_message if self._outboxes else self.next_message
        if stop <= self.confirmed:
            return None
        before, self.confirmed = self.confirmed, stop
        return before, stop

    def sealed_before(self, time_ns: int) -> int:
        """Return the first frame that was sealed after a time."""
        return self.floor + bisect_right(self._sent_ns, time_ns)

    def sealed_ns(self, number: int) -> int | None:
        """Return when a frame was sealed; None if it is not kept."""
        return self._sent_ns[number - self.floor] if self.floor <= number < self.next_frame else None

    def release(self) -> None:
        """Let go of all that is kept."""
        self.kept.count -= sum(map(len, self._frames))
        self._frames.clear()
        self._ends.clear()
        self._sent_ns.clear()
        self.floor, self._floor_message = self.next_frame, self.next_message

    def give_up_before(self, time_ns: int) -> None:
        """Forget frames that were sealed before a time, whoever lacks them."""
        self._forget_below(self.sealed_before(time_ns))

    def _forget_below(self, number: int) -> None:
        while self.floor < number:
            self.kept.count -= len(self._frames.popleft())
            self._floor_message = self._ends.popleft()
            self._sent_ns.popleft()
            self.floor += 1
        if not self._frames and not self._outboxes:
            # Messages that were accepted while nobody else was there are in no frame.
            self._floor_message = self.next_message
