"""The window of a stream: how many frames may be unstable, and how many bytes of them.

Receive buffers set it: the smallest of a region's members, shared by all who send into the region. It begins small and
doubles in each round of the token in which it was full, so that a slow link shows before it is overrun by far. Where a
rate paces the stream, that has found what the link takes, and the window is open.

Knows nothing of frames but their numbers. Invariant: `1 <= frames`, and `frames` and `bytes` fit the buffers told last.
"""

from vivum.core.time import MILLISECOND
from vivum.protocols.streams.settings import StreamSettings

LOST_SHARE = 8
"""If the region lacks more than this fraction of a round's frames, the window halves. Bad links lose less."""

ROUND_GROWTH_NS = 8 * MILLISECOND
"""A window that takes this much longer to be acknowledged than the shortest did fills a queue, and stays as it is."""


class SendWindow:
    """How many frames of a stream may be unstable, and how many bytes of them."""

    __slots__ = (
        "_initial",
        "_lost",
        "_opened",
        "_round_ns_min",
        "_settings",
        "_since",
        "_since_ns",
        "bytes",
        "frames",
        "frames_max",
        "is_paced",
        "was_full",
    )

    def __init__(self, settings: StreamSettings, next_frame: int) -> None:
        self._settings = settings
        # By the buffers of the region, as far as they are known.
        self.frames_max = settings.window_frames
        self.bytes = settings.window_bytes
        self._initial = settings.window_initial_frames
        self._opened = self._initial
        self.frames = min(self._opened, self.frames_max)
        self.is_paced = False
        # The round under way ends when all frames are stable that were sent before it.
        self._since = next_frame
        self._since_ns = 0
        self.was_full = False
        """Whether the window was full since the round under way began."""

        self._lost = 0
        self._round_ns_min: int | None = None

    def fit(self, buffer_bytes: int, sharers: int) -> None:
        """Fit the smallest buffer of the region, 0 if that is not known, which so many senders share.

        They share its bytes. Two may have a whole window of frames each: that is short of a buffer if frames are small.
        """
        settings = self._settings
        whole = min(settings.window_bytes, buffer_bytes or settings.window_bytes)
        self.bytes = whole // sharers
        frames = settings.window_frames * whole // settings.window_bytes
        self.frames_max = max(1, 2 * frames // max(2, sharers))
        self._resize()

    def pace(self, is_paced: bool, unstable: int) -> None:
        """Note whether a rate paces the stream. Without one the window goes on from what is on its way now."""
        if self.is_paced and not is_paced:
            self._opened = max(self._initial, 2 * unstable)
            # Rounds may be slower now than when little was on its way: a small window hurries no token.
            self._round_ns_min = None
        self.is_paced = is_paced
        self._resize()

    def on_sent(self, unstable: int) -> None:
        """Note how much of the window is in use after frames left."""
        if unstable >= self.frames:
            self.was_full = True

    def on_lost(self, frames: int) -> None:
        """Count frames that no member of the region has."""
        self._lost += frames

    def on_stable(self, now_ns: int, first: int, next_frame: int) -> None:
        """End the round if all frames are stable that were sent before it, and open the window if that is due."""
        if first < self._since:
            return
        elapsed_ns = now_ns - self._since_ns
        if self._lost * LOST_SHARE > next_frame - self._since + self._lost:
            self._opened = max(self._initial, min(self._opened, self.frames_max) // 2)
        elif self.was_full:
            if self._round_ns_min is None or elapsed_ns < self._round_ns_min:
                self._round_ns_min = elapsed_ns
            if elapsed_ns - self._round_ns_min < ROUND_GROWTH_NS and self._opened < self.frames_max:
                self._opened *= 2
        self._since, self._since_ns = next_frame, now_ns
        self.was_full = False
        self._lost = 0
        self._resize()

    def _resize(self) -> None:
        self.frames = self.frames_max if self.is_paced else min(self._opened, self.frames_max)
