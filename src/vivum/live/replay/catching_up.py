"""Hand a reader the back copies of a topic first and then the live stream: each message once, in order.

Live messages are held until the back copies reach them: at most half of the reader's limit; beyond that the oldest are
dropped, since the recorder has them too. A message is identified by sender, life and sequence; the second of two copies
is left out.

When have the two met? A message belongs to the view in which its sender numbered it. This node gets messages of the
view that it entered in, and of later ones, live; all others must come from the recorder. So every member is asked, as
soon as it is in that view, how many messages it has numbered. With each piece, the recorder says how far its log goes
for each sender (its tip). There is no hole when for every sender the log reaches the first held message, or all that
the sender had numbered. For a sender that nobody recorded, or that left meanwhile, the wait ends after `SETTLE_S`.

The recorder can be ahead of this node, so back copies may reach further than the live stream so far. So live messages
are still compared with what was handed on after that point, for each sender until copies and live stream have met.

The live stream of a sender may have gaps, and all streams are interrupted when this node loses its life. Sequence
numbers of a sender's life are never reused, so what is known of the reader's position stays true in both cases. While
catching up, the recorder is expected to fill a gap; what it has not filled by the end is reported then.

Invariants: `_next` has the number that the reader expects next, for each sender whose copies and live stream have not
met; it only grows. While `is_live` is false, no live message reaches the reader. Each hole is reported once.
"""

import asyncio
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from vivum.core.errors import UsageError
from vivum.core.ids import Incarnation, Member, NodeId, ViewNumber
from vivum.core.machine import Delivery, Effect
from vivum.core.ranges import RangeSet
from vivum.guarantees import GUARANTEES
from vivum.live.event import TopicView
from vivum.live.failures import MissedMessages, NoRecorderError
from vivum.live.inbox import Inbox, estimated_bytes
from vivum.live.replay.back_copies import FROM_THE_BEGINNING, BackCopies, BackRun, ReplayLine
from vivum.live.seat import Listener, Seat
from vivum.protocols.commands import MessagesLeftOut

if TYPE_CHECKING:
    from vivum.live.handle import NodeHandle

ReplayStart = str | int | float | datetime
"""`"all"`, an offset of the recorder's log (int), or a time: a datetime, or seconds since 1970 (float)."""

HOLD_SHARE = 0.5
"""Share of the reader's limit for held live messages; the rest is for back copies."""

POLL_S = 0.05
"""How often to ask a recorder that is still behind: about as often as it writes."""

ASK_SENDER_S = 0.5
"""How long a member may take to say how much it has numbered before it is asked again."""

SETTLE_S = 3.0
"""How long to wait for messages that may be lost everywhere."""

FOREVER = 1 << 64
"""Above every sequence number."""


def read_start(start: ReplayStart) -> tuple[int, int]:
    """Convert the value of `replay=` into an offset and an earliest time of delivery, in ns."""
    match start:
        case "all":
            return FROM_THE_BEGINNING, 0
        case bool() | str():
            raise UsageError(f"replay={start!r} is unknown; give 'all', an offset, or a time")
        case int() if start >= 0:
            return start, 0
        case float() if 0 <= start < 1e11:
            return FROM_THE_BEGINNING, int(start * 1e9)
        case datetime():
            moment = start if start.tzinfo is not None else start.replace(tzinfo=UTC)
            return FROM_THE_BEGINNING, max(0, int(moment.timestamp() * 1e9))
    raise UsageError(f"replay={start!r} is out of range; offsets and times are 0 or more, times in seconds since 1970")


class CatchingUp:
    """Takes one reader of one topic from back copies to the live stream. Listens at the seat in its place."""

    wants_own = True
    """Own messages are in the back copies too, and must be matched with the live ones."""

    wants_packed = False

    def __init__(self, node: "NodeHandle", seat: Seat, inbox: Inbox, start: ReplayStart) -> None:
        if not seat.guarantee.is_gap_free:
            known = " or ".join(repr(each.name) for each in GUARANTEES.values() if each.is_gap_free)
            raise UsageError(
                f"topic {seat.name} has the guarantee {seat.guarantee.name!r}; replay= needs {known}, whose messages "
                "are numbered without a gap"
            )
        # Layers for this reader alone: those of the seat may have seen the messages of back copies long ago.
        self._layers = tuple(each for each in seat.guarantee.make_layers() if each.is_headed)
        self.is_live = False
        self.sink: Listener = inbox
        self._node = node
        self._seat = seat
        self._inbox = inbox
        self._offset, self._time_ns = self._start = read_start(start)
        self._line: ReplayLine = node.replay_line
        self._recorder: Member | None = None
        self._next: dict[Member, int] = {}
        self._tips: dict[Member, int] = {}
        self._goals: dict[Member, int] = {}
        self._held: deque[Delivery] = deque()
        self._held_bytes = 0
        self._first_held: dict[Member, int] = {}
        self._view: TopicView | None = None
        # Numbers that the live stream lacks. The recorder may fill them until the reader is live; the rest is reported.
        self._gaps: dict[Member, RangeSet] = {}
        self._is_interrupted = False
        self._has_given_up = False
        self._is_stopped = False
        self._task: asyncio.Task[None] | None = None

    # The live stream.

    def put(self, delivery: Delivery) -> None:
        """Hold a delivery, or hand it on."""
        if self.is_live:
            if delivery.sender in self._next:
                self._meet(delivery)
            else:
                self._give(delivery)
            return
        self._held.append(delivery)
        self._held_bytes += estimated_bytes(delivery)
        self._first_held.setdefault(delivery.sender, delivery.first_sequence)
        while self._held_bytes > HOLD_SHARE * self._inbox.bytes_max and len(self._held) > 1:
            self._let_oldest_go()

    def on_view(self, view: TopicView) -> None:
        """Hand a view on. While catching up keep the last one, and hand it on with the held messages."""
        if self.is_live:
            self.sink.on_view(view)
        else:
            self._view = view

    def interrupt(self, told: MissedMessages) -> None:
        """Note that live messages are missing: a gap of one sender, or an unknown number if no sender is named.

        Only what the reader did not get from back copies is reported, once that is certain.
        """
        sender = told.sender
        if sender is not None and told.first is not None and told.count is not None:
            if not self.is_live:
                self._add_gap(sender, told.first, told.first + told.count)
            elif sender in self._next:
                self._add_gap(sender, told.first, told.first + told.count)
                self._report_gap(sender, max(told.first, self._next[sender]), told.first + told.count)
            else:
                self.sink.interrupt(told)
        elif self.is_live:
            for each, expected in self._next.items():
                self._add_gap(each, expected, FOREVER)
            self.sink.interrupt(told)
        else:
            # A hole of unknown size follows the held messages. Drop these: the recorder brings both.
            while self._held:
                self._let_oldest_go()
            self._is_interrupted = True

    def _add_gap(self, sender: Member, first: int, stop: int) -> None:
        self._gaps.setdefault(sender, RangeSet()).add_range(first, stop)

    def _let_oldest_go(self) -> None:
        """Forget the oldest held run: the recorder has it, or will have it."""
        oldest = self._held.popleft()
        self._held_bytes -= estimated_bytes(oldest)
        self._add_gap(oldest.sender, oldest.first_sequence, oldest.first_sequence + len(oldest.payloads))
        following = next((each.first_sequence for each in self._held if each.sender == oldest.sender), None)
        if following is None:
            del self._first_held[oldest.sender]
        else:
            self._first_held[oldest.sender] = following

    # The back copies.

    async def begin(self) -> None:
        """Get the first piece from a recorder, then go on in the background. Raises `NoRecorderError`."""
        await self._line.open()
        try:
            first = await self._ask()
            if self._is_stopped:
                raise self._node.closed_error(f"topic {self._seat.name} was left")
        except BaseException:
            await self._line.close()
            raise
        self._task = asyncio.get_running_loop().create_task(self._run(first))

    async def _run(self, first: BackCopies) -> None:
        try:
            await self._take(first)
            await self._catch_up()
        except NoRecorderError as error:
            self._give_up(f"{error}; the live stream goes on, and what lies between is missing")
        except UsageError as error:
            self._give_up(f"{error}")
        finally:
            # After a failure, go on with what is here.
            self._go_live()
            await self._line.close()

    async def _catch_up(self) -> None:
        asking = asyncio.create_task(self._ask_senders())
        try:
            loop = asyncio.get_running_loop()
            lacking, since = self._lacking(), loop.time()
            while True:
                # A piece counts as the last only if it was asked for after all senders had answered.
                is_told = asking.done()
                is_end = await self._take(await self._ask())
                if self._is_interrupted and asking.done():
                    # Perhaps in a new life and view: ask the senders anew.
                    self._is_interrupted, is_told = False, False
                    asking = asyncio.create_task(self._ask_senders())
                before, lacking = lacking, self._lacking()
                if not (is_end and is_told) or lacking != before:
                    since = loop.time()
                elif not lacking or loop.time() - since > SETTLE_S:
                    await self._inbox.wait_for_room(self._held_bytes)
                    if self._lacking() == lacking:
                        self._go_live()
                        return
                if is_end:
                    await asyncio.sleep(POLL_S if lacking else 0)
        finally:
            asking.cancel()
            await asyncio.wait([asking])

    def _lacking(self) -> dict[Member, int]:
        """Return the senders whose copies do not reach their live messages yet, with how far the copies go."""
        found = {}
        for sender in self._goals.keys() | self._first_held.keys() | self._gaps.keys():
            needed = self._first_held.get(sender, self._goals.get(sender, 0))
            if sender in self._gaps:
                needed = max(needed, self._gaps[sender].last() + 1)
            reached = max(self._tips.get(sender, 0), self._next.get(sender, 0))
            if reached < needed:
                found[sender] = reached
        return found

    async def _take(self, piece: BackCopies) -> bool:
        """Hand a piece on as the reader has room; return whether it reached the end of the log."""
        self._offset = piece.offset
        for run in piece.runs:
            delivery = _delivery(self._seat, run)
            await self._inbox.wait_for_room(estimated_bytes(delivery))
            self._hand_on_copy(delivery)
        if piece.is_end:
            # Tips describe the log before the piece was read: now all of that has been read.
            self._tips = {Member(NodeId(node), Incarnation(life)): stop for node, life, stop in piece.tips}
        return piece.is_end

    async def _ask(self) -> BackCopies:
        try:
            self._recorder, piece = await self._line.ask(self._seat.name, self._offset, self._time_ns, self._recorder)
        except NoRecorderError:
            if self._recorder is None or self._start[0] != FROM_THE_BEGINNING:
                # Offsets are those of one log: another recorder has others.
                raise
            self._recorder, self._offset, self._tips = None, self._start[0], {}
            self._recorder, piece = await self._line.ask(self._seat.name, self._offset, self._time_ns, None)
        return piece

    def _hand_on_copy(self, copy: Delivery) -> None:
        """Hand on a back copy, but first any held live messages below it, which the recorder does not have."""
        sender, first = copy.sender, copy.first_sequence
        if self._first_held.get(sender, first) < first and self._next.get(sender, 0) < first:
            for each in self._held:
                if each.sender == sender and each.first_sequence < first:
                    self._hand_on(each)
        self._hand_on(copy)

    def _hand_on(self, delivery: Delivery) -> None:
        """Give the reader what it did not get before."""
        first, stop = delivery.first_sequence, delivery.first_sequence + len(delivery.payloads)
        expected = self._next.get(delivery.sender)
        if expected is None:
            gaps = self._gaps.get(delivery.sender)
            expected = first if gaps is None else min(first, gaps.first())
        if stop <= expected:
            return
        self._next[delivery.sender] = stop
        # Layers with heads leave out what came again, here and at the recorder, so there numbers have holes.
        if first > expected and not self._has_given_up and not self._layers:
            hole = RangeSet([(expected, first)])
            if self.is_live and delivery.sender in self._gaps:
                hole.difference_update(self._gaps[delivery.sender])
            for bounds in hole.ranges():
                self._report_gap(delivery.sender, *bounds)
        if first < expected:
            had = expected - first
            payloads, heads = delivery.payloads[had:], delivery.heads[had:]
            delivery = replace(delivery, first_sequence=expected, payloads=payloads, heads=heads)
        self._give(delivery)

    def _meet(self, delivery: Delivery) -> None:
        """Hand on the new part of a live run. The first run that is not behind the back copies ends the comparison."""
        is_met = delivery.first_sequence >= self._next[delivery.sender]
        self._hand_on(delivery)
        if is_met:
            del self._next[delivery.sender]
            self._gaps.pop(delivery.sender, None)

    def _give(self, delivery: Delivery) -> None:
        is_wanted = self.sink.wants_own or delivery.sender != self._node.member
        for effect in self._through_layers(delivery):
            if isinstance(effect, MessagesLeftOut):
                self._seat.on_left_out(effect)
            elif isinstance(effect, Delivery) and is_wanted:
                self.sink.put(effect)

    def _through_layers(self, delivery: Delivery) -> list[Effect]:
        effects: list[Effect] = [delivery]
        for layer in self._layers:
            for effect in effects:
                layer.on_effect(0, effect)
            effects = layer.effects[:]
            layer.effects.clear()
        return effects

    def _go_live(self) -> None:
        """Hand on what is held, and from now on all that arrives. In one step, so that nothing arrives in between."""
        if self.is_live:
            return
        for sender in self._gaps:
            self._report_unfilled(sender)
        held, self._held = self._held, deque()
        self._held_bytes = 0
        self.is_live = True
        if self._view is not None:
            self.sink.on_view(self._view)
        for each in held:
            self.put(each)

    def _report_unfilled(self, sender: Member) -> None:
        """Report what came neither live nor as a back copy, even if the sender sends nothing more."""
        gaps = self._gaps[sender]
        # Without any copy, what follows is compared with what came live: there may be holes that nobody reported.
        expected = self._next.setdefault(sender, min(gaps.first(), self._first_held.get(sender, FOREVER)))
        if not self._has_given_up:
            for first, stop in gaps.ranges():
                self._report_gap(sender, max(first, expected), stop)

    def _give_up(self, text: str) -> None:
        """Report once, for all senders, that what the live stream lacks is missing."""
        self._has_given_up = True
        self.sink.interrupt(MissedMessages(text, None))

    def _report_gap(self, sender: Member, first: int, stop: int) -> None:
        if first < stop:
            text = f"messages {first} to {stop - 1} of node {sender} in {self._seat.name} are in no back copy"
            self.sink.interrupt(MissedMessages(text, stop - first, sender, first))

    # The senders.

    async def _ask_senders(self) -> None:
        """Ask every member how many messages it had numbered when it was in our view."""
        while (view := self._seat.view) is None:
            await self._seat.wait_for_change()
        if self._node.member is not None:
            self._note_goal(self._node.member, self._seat.numbered)
        waiting = [each for each in view.members if each != self._node.member]
        while waiting:
            endpoints = {each.member: each.endpoint for each in await self._node.nodes()}
            now = self._seat.view.members if self._seat.view is not None else ()
            # Departed members cannot answer; what they sent is in the log or lost.
            waiting = [each for each in waiting if each in endpoints and each in now]
            asked = [self._node.browser.sending(endpoints[each], self._seat.name, ASK_SENDER_S) for each in waiting]
            answers = await asyncio.gather(*asked)
            late = []
            for member, answer in zip(waiting, answers, strict=True):
                if answer is None or 0 < answer.view < view.number:
                    late.append(member)
                else:
                    self._note_goal(Member(NodeId(answer.node), Incarnation(answer.incarnation)), answer.numbered)
            if late and len(late) == len(waiting):
                await asyncio.sleep(POLL_S)
            waiting = late

    def _note_goal(self, member: Member, numbered: int) -> None:
        self._goals[member] = max(self._goals.get(member, 0), numbered)

    # The end.

    def stop(self) -> None:
        """Stop, because the reader has left. If catching up has not begun yet, it never will."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()


def _delivery(seat: Seat, run: BackRun) -> Delivery:
    node, incarnation, first, view, sent_ns, payloads = run
    sender = Member(NodeId(node), Incarnation(incarnation))
    return Delivery(seat.group, sender, first, payloads, ViewNumber(view), sent_ns)
