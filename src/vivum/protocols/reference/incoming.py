"""The receiver's side of one stream: one life of one sender, in one group.

Puts frames in order, tells what is missing, and turns frames into deliveries and reported gaps.

Invariants: `held` has exactly the frames that the window received beyond its prefix; messages are delivered
with strictly increasing sequence, and every sequence that is passed over is reported once.
"""

from vivum.core.ids import GroupId, Member, ViewNumber
from vivum.core.machine import Delivery, Effect
from vivum.observe.counters import Counters
from vivum.protocols.commands import GapReported
from vivum.protocols.reference.settings import ReferenceSettings
from vivum.wire.codec import BEYOND, DUPLICATE, Frame, SequenceWindow
from vivum.wire.fragments import Joiner
from vivum.wire.kinds import Kind

RESENT = Kind.RESENT
"""Looked up once: getting at a member of an enumeration takes 75 ns, and every frame is compared with this one."""

NO_VIEW = ViewNumber(0)
"""Without a membership service there are no views."""


class IncomingStream:
    """What this node has of one sender's stream."""

    __slots__ = (
        "_counters",
        "_held",
        "_joiner",
        "_next_message",
        "asks",
        "group",
        "heard_ns",
        "key",
        "nak_delay_ns",
        "nak_prefix",
        "sender",
        "unacknowledged",
        "window",
    )

    def __init__(
        self,
        sender: Member,
        group: GroupId,
        settings: ReferenceSettings,
        joiner: Joiner,
        counters: Counters,
    ) -> None:
        self.sender = sender
        self.group = group
        self.key = (sender.node, group)
        self.heard_ns = 0
        self.asks = False
        self.unacknowledged = 0
        self.nak_delay_ns = settings.nak_delay_ns_min
        self.nak_prefix = 0
        self.window = SequenceWindow(0, settings.window_frames)
        self._held: dict[int, Frame] = {}
        self._next_message = 0
        self._joiner = joiner
        self._counters = counters

    def on_data(self, frame: Frame, effects: list[Effect]) -> None:
        """Take a frame of the stream; deliver what is now in order."""
        window = self.window
        sequence = frame.sequence
        verdict = window.add(sequence)
        if verdict == DUPLICATE:
            self._counters.frames_duplicate += 1
            if frame.kind is RESENT:
                self._counters.repairs_wasted += 1
            return
        if verdict == BEYOND:
            # Not kept, but now known to exist: it will be asked for when the window gets there.
            window.announce(sequence + 1)
            self._counters.frames_beyond_window += 1
            return
        if frame.kind is RESENT:
            self._counters.repairs_received += 1
        self.unacknowledged += 1
        if window.prefix <= sequence:
            self._held[sequence] = frame
            return
        self._deliver(frame, effects)
        held = self._held
        if held:
            for number in range(sequence + 1, window.prefix):
                self._deliver(held.pop(number), effects)

    def on_best_effort(self, frame: Frame, effects: list[Effect]) -> None:
        """Take a frame without asking for what is missing: later ones go ahead, late ones are dropped."""
        if frame.sequence < self.window.prefix:
            self._counters.frames_late += 1
            return
        self.window.skip_to(frame.sequence + 1)
        self._deliver(frame, effects)

    def on_heartbeat(self, first: int, stop: int, message: int, effects: list[Effect]) -> None:
        """Learn how far the stream has come, and that what is below `first` can no longer be had."""
        self.window.announce(stop)
        before = self.window.prefix
        if first > before:
            self.window.skip_to(first)
            self._deliver_held(before, first, effects)
        # Before anything from `first` on: a large message that begins there must find its join open.
        self._report_gap(message, effects)
        if first > before:
            self._deliver_held(first, self.window.prefix, effects)

    def give_up(self, effects: list[Effect]) -> None:
        """The sender is dead: report what is missing and deliver what is held behind it.

        What is missing at the end, with nothing behind it, stays open: it holds up nothing, nobody knows which
        messages it had, and a sender that was not dead after all can still send it.
        """
        before = self.window.prefix
        stop = max(self._held, default=before - 1) + 1
        self.window.skip_to(stop)
        self._deliver_held(before, stop, effects)

    def _deliver_held(self, start: int, stop: int, effects: list[Effect]) -> None:
        """Deliver what is held of a range that was passed over."""
        for number in sorted(number for number in self._held if start <= number < stop):
            self._deliver(self._held.pop(number), effects)

    def _deliver(self, frame: Frame, effects: list[Effect]) -> None:
        for group, first, flags, payloads in frame.messages():
            if flags and group == self.group and first + len(payloads) > self._next_message:
                # A message under way below was skipped with its rest: not refused for what comes now.
                self._joiner.forget_below(self.sender, group, first)
                first, payloads = self._joiner.add(self.sender, group, first, flags, payloads)
                if not payloads:
                    # If the last piece has come and the message is not whole (refused, or its beginning was skipped),
                    # this is one past it.
                    self._report_gap(first, effects)
                    continue
            if group != self.group or first < self._next_message:
                # A sender that breaks its own numbering: what it says cannot be delivered in order.
                self._counters.frames_refused_state += 1
                continue
            if first > self._next_message:
                self._report_gap(first, effects)
            self._next_message = first + len(payloads)
            effects.append(Delivery(self.group, self.sender, first, payloads, NO_VIEW, frame.sent_ns))

    def _report_gap(self, message: int, effects: list[Effect]) -> None:
        if message > self._next_message:
            self._counters.messages_lost += message - self._next_message
            effects.append(GapReported(self.group, self.sender, self._next_message, message))
            # A large message whose rest is behind the gap will never be whole.
            self._joiner.forget_below(self.sender, self.group, message)
            self._next_message = message
