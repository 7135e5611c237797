"""What a region has decided of a stream: how it is settled at the top, and what each member knows of it.

Invariants: `stable` and `floor` never go back; `floor <= stable`.
"""

from vivum.protocols.commands import SlowMembers
from vivum.protocols.qsm.settings import QsmSettings
from vivum.wire.tokens import NOBODY, StreamRecord


class StreamVerdict:
    """The decision on one stream, as far as this node knows it; and, at a top leader, what it goes by."""

    __slots__ = ("_held_up_by", "_held_up_since_ns", "floor", "reported", "stable")

    def __init__(self) -> None:
        self.stable = 0
        self.floor = 0
        self.reported = (0, 0)
        self._held_up_by = 0
        self._held_up_since_ns = 0

    def learn(self, record: StreamRecord) -> None:
        """Take over what a token says."""
        self.stable = max(self.stable, record.stable)
        self.floor = max(self.floor, record.floor)

    def decide(self, now_ns: int, record: StreamRecord, settings: QsmSettings) -> bool:
        """Settle, from the result of a top round, what is stable and what caches must keep; tell whether it is news.

        Receivers that are behind, or sleep, are not waited for if there are others. If there are none the sender must
        wait: it would run ahead of all, and nobody could give them what they lack. The sender itself is no receiver.
        """
        reached, behind = record.prefix, record.behind
        if record.slow >= SlowMembers.WAIT or reached == NOBODY:
            # Nothing is stable that one of them lacks; all of it, if there is nobody.
            reached = min(reached, behind)
        elif self._is_held_up(now_ns, record, settings):
            reached, behind = record.runner_up, min(behind, record.prefix)
        self.stable = max(self.stable, min(reached, record.stop))
        # The lowest prefix too: it was told before the round in which the stable point may have passed it.
        floor = min(self.stable, behind, record.prefix)
        # However far behind somebody is, caches are bounded: what they cannot keep any more is given up.
        floor = min(self.stable, max(floor, record.stop - settings.cache_frames_max))
        is_news = floor > self.floor or self.stable > record.stable
        self.floor = max(self.floor, floor)
        return is_news

    def _is_held_up(self, now_ns: int, record: StreamRecord, settings: QsmSettings) -> bool:
        """Tell whether one member alone has held up all others for too long."""
        if record.runner_up == NOBODY or record.runner_up - record.prefix < settings.window // 8:
            self._held_up_by = 0
            return False
        if self._held_up_by != record.slowest:
            self._held_up_by = record.slowest
            self._held_up_since_ns = now_ns
        return now_ns - self._held_up_since_ns >= settings.isolate_after_ns
