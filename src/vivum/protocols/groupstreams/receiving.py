"""The receiver's side of the stream of one life into one group: what came, what is missing, FIFO delivery.

A stream begins where this member begins: at frame 0, or where its sender says. Until that is known, frames wait.

Invariants: messages are delivered with rising numbers, and every hole between them is reported; `held` has frames
from the window's prefix on, at most as many as the window takes. Loops run over frames that are held, never over
numbers that a peer named.
"""

from vivum.core.ids import GroupId, Member, ViewNumber
from vivum.core.machine import Delivery, Effect
from vivum.observe.counters import Counters
from vivum.protocols.commands import GapReported
from vivum.wire.codec import BEYOND, DUPLICATE, Frame, SequenceWindow, take_runs
from vivum.wire.fragments import Joiner

RUN_MESSAGES_MAX = 4096
"""Runs of messages are not made longer than this: readers take one at a time."""


class GroupReceiver:
    """What this node has of one stream."""

    __slots__ = (
        "_counters",
        "_joiner",
        "asked",
        "asked_for",
        "asked_ns",
        "expected",
        "gone_since_ns",
        "group",
        "held",
        "hole_since_ns",
        "rumoured",
        "sender",
        "window",
        "window_frames",
    )

    def __init__(self, sender: Member, group: GroupId, window_frames: int, joiner: Joiner, counters: Counters) -> None:
        """Begin without a beginning: call `begin` when it is known."""
        self.sender = sender
        self.group = group
        self.window_frames = window_frames
        self.window: SequenceWindow | None = None
        # By number. All below the window's prefix is delivered.
        self.held: dict[int, Frame] = {}
        self.expected = 0
        # One past the highest frame that others than the sender spoke of: it may be a lie.
        self.rumoured = 0
        # How often it was asked for what is missing, without any progress.
        self.asked = 0
        # What its sender was asked for last, as bounds.
        self.asked_for: tuple[int, ...] = ()
        self.asked_ns = 0
        # Since when the next frame is known to be missing.
        self.hole_since_ns: int | None = None
        # Since when the sender is no member any more.
        self.gone_since_ns: int | None = None
        self._joiner = joiner
        self._counters = counters

    def begin(self, frame: int, message: int) -> None:
        """Begin at a frame, which begins with a message."""
        assert self.window is None
        self.window = SequenceWindow(frame, self.window_frames)
        self.expected = message
        early, self.held = self.held, {}
        for number in sorted(early):
            self.take(early[number])

    def has(self, number: int) -> bool:
        """Return whether a frame came, or is not needed."""
        return number in self.held if self.window is None else number in self.window

    def take(self, frame: Frame) -> bool:
        """Take a single frame; return whether it is new."""
        number, window = frame.sequence, self.window
        if window is None:
            if number in self.held:
                self._counters.frames_duplicate += 1
                return False
            if len(self.held) >= self.window_frames:
                self._counters.frames_beyond_window += 1
                return False
            self.held[number] = frame
            return True
        verdict = window.add(number)
        if verdict == DUPLICATE:
            self._counters.frames_duplicate += 1
            return False
        if verdict == BEYOND:
            window.announce(number + 1)
            self._counters.frames_beyond_window += 1
            return False
        self.held[number] = frame
        return True

    def missing(self, ranges_max: int) -> list[int]:
        """List what is known to be missing, as flat bounds; frames that are rumoured included, as far as they fit."""
        window = self.window
        assert window is not None
        bounds = window.missing(ranges_max)
        stop = min(self.rumoured, window.prefix + window.capacity)
        if stop > window.stop and len(bounds) < 2 * ranges_max:
            if bounds and bounds[-1] == window.stop:
                bounds[-1] = stop
            else:
                bounds += (window.stop, stop)
        return bounds

    def lacks_any(self) -> bool:
        """Whether anything is known to be missing, its beginning included."""
        window = self.window
        if window is None:
            return True
        return window.prefix < max(window.stop, min(self.rumoured, window.prefix + window.capacity))

    @property
    def prefix(self) -> int:
        """Below this frame nothing is left to deliver; 0 if it is not known where the stream begins."""
        return 0 if self.window is None else self.window.prefix

    def deliver(self, effects: list[Effect]) -> bool:
        """Deliver what is in order now; return whether there was anything."""
        window, held = self.window, self.held
        if window is None or not held:
            return False
        frames: list[Frame] = []
        stop = window.prefix
        # What is held below the prefix is in order and without a gap.
        number = stop - 1
        while number in held:
            number -= 1
        for each in range(number + 1, stop):
            frames.append(held.pop(each))
        self._deliver(frames, effects)
        return bool(frames)

    def skip_to(self, number: int, message: int, effects: list[Effect]) -> None:
        """Give up what is missing below a frame, which begins with a message; deliver what is there."""
        window = self.window
        assert window is not None
        window.skip_to(number)
        stop = window.prefix
        self._deliver([self.held.pop(each) for each in sorted(each for each in self.held if each < stop)], effects)
        if number == stop:
            # What comes behind is told by the numbers of its messages.
            self._report_lost(message, effects)

    @property
    def has_more(self) -> bool:
        """Whether a frame is held behind those that are missing: its messages tell which were in these."""
        return self.window is not None and bool(self.held)

    def skip_hole(self, effects: list[Effect]) -> None:
        """Give up the frames that are missing before the next one that is held, or all that are known of."""
        assert self.window is not None
        bounds = self.window.missing(1)
        if bounds:
            self.skip_to(bounds[1], 0, effects)
        self.rumoured = 0

    def _deliver(self, frames: list[Frame], effects: list[Effect]) -> None:
        start = 0
        while start < len(frames):
            # Runs are of one view.
            stop, view = start + 1, frames[start].view
            while stop < len(frames) and frames[stop].view == view:
                stop += 1
            part = frames[start:stop]
            for index, group, first, flags, payloads in take_runs(
                part, RUN_MESSAGES_MAX, frozenset(), self._joiner.message_bytes_max
            ):
                assert isinstance(payloads, list), "nothing stays packed that was not asked for"
                if group == self.group:
                    self._deliver_run(first, flags, payloads, part[index], effects)
                else:
                    # A stream has messages of its own group alone.
                    self._counters.frames_refused_state += 1
            start = stop

    def _deliver_run(self, first: int, flags: int, payloads: list[bytes], frame: Frame, effects: list[Effect]) -> None:
        if flags:
            self._report_lost(first, effects)
            # It passes over a message that it refused, or of which a piece is missing.
            first, payloads = self._joiner.add(self.sender, self.group, first, flags, payloads)
            self._report_lost(first, effects)
        elif first > self.expected:
            self._joiner.forget_below(self.sender, self.group, first)
            self._report_lost(first, effects)
        if first < self.expected:
            self._counters.frames_refused_state += 1
            payloads, first = payloads[self.expected - first :], self.expected
        if payloads:
            self.expected = first + len(payloads)
            effects.append(Delivery(self.group, self.sender, first, payloads, ViewNumber(frame.view), frame.sent_ns))

    def _report_lost(self, stop: int, effects: list[Effect]) -> None:
        if self.expected < stop:
            self._counters.messages_lost += stop - self.expected
            effects.append(GapReported(self.group, self.sender, self.expected, stop))
            self.expected = stop
