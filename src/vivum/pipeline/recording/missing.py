"""What a log does not have, found by the numbers of messages: ranges to write down, and a count.

Knows no disk and no node. A gap is found when a message comes whose number is not the next one of its sender; when the
node tells that it missed messages; and when the writer refuses a run. What was sent while nobody recorded is found in
the same way, since the log tells how far it went when it was closed; besides, one gap tells between which times nobody
recorded, for the senders that nobody hears of again.

In topics with heads repetitions are left out, so numbers have holes there; only what the node tells counts.
"""

from collections.abc import Mapping

import msgspec

from vivum.core.ids import Member
from vivum.live.failures import MissedMessages
from vivum.storage.gaps import MISSED, NOT_RECORDED, REFUSED, Gap
from vivum.storage.tips import Tips

RANGES_MAX = 65_536
"""Ranges that wait to be written down while the disk stands still. Past it, further ones are counted alone."""


class Missing:
    """Finds gaps. `count` has what is missing since this recorder began; `gaps` waits to be written down."""

    def __init__(self, tips: Tips, delivered_ns: int) -> None:
        """Continue a log: `tips` tell how far it goes, `delivered_ns` when it ended (0: it is new)."""
        self.count = 0
        self.gaps: list[Gap] = []
        self._open: dict[tuple[str, str, int, int], int] = {}
        self.headed: set[str] = set()
        self._before: Mapping[str, Mapping[tuple[int, int], int]] = {
            topic: dict(lives) for topic, lives in tips.topics.items()
        }
        self._ended_ns = delivered_ns
        self._began_ns = 0
        self._seen = Tips()
        self._not_seen_as_gaps = 0

    def begin(self, now_ns: int) -> None:
        """Note that from now on somebody records."""
        self._began_ns = now_ns
        if self._ended_ns:
            text = "nobody recorded between these times"
            self._note(Gap(NOT_RECORDED, since_ns=self._ended_ns, until_ns=now_ns, text=text))

    def look(self, topic: str, sender: Member, first: int, stop: int, now_ns: int) -> None:
        """Look whether a run follows the one before of its sender."""
        life = sender.node, sender.incarnation
        expected = self._seen.topics.get(topic, {}).get(life)
        if topic not in self.headed and expected != first:
            self._jump(topic, life, expected, first, now_ns)
        self._seen.note(topic, life, stop)

    def _jump(self, topic: str, life: tuple[int, int], expected: int | None, first: int, now_ns: int) -> None:
        if expected is not None:
            if first > expected:
                gap = first - expected
                # Most were counted when they came about; what is more than that was not known then.
                counted = min(gap, self._not_seen_as_gaps)
                self._not_seen_as_gaps -= counted
                self.count += gap - counted
                self._note(Gap(MISSED, topic, *life, expected, gap, until_ns=now_ns, text="not delivered"))
        elif self._ended_ns:
            stopped_at = self._before.get(topic, {}).get(life, 0)
            if first > stopped_at:
                gap = first - stopped_at
                self._note(
                    Gap(NOT_RECORDED, topic, *life, stopped_at, gap, self._ended_ns, self._began_ns, "nobody recorded")
                )

    def refuse(self, topic: str, sender: Member, first: int, stop: int, now_ns: int) -> None:
        """Note that a run cannot be kept: too much waits for the disk."""
        self.count += stop - first
        self._note(
            Gap(REFUSED, topic, sender.node, sender.incarnation, first, stop - first, until_ns=now_ns,
                text="too much waited for the disk")
        )  # fmt: skip

    def leave_out(self, count: int) -> None:
        """Count messages whose numbers no log can have."""
        self.count += count
        self._not_seen_as_gaps += count

    def interrupt(self, topic: str, told: MissedMessages, now_ns: int) -> None:
        """Note what the node says is missing: exactly if it knows, else as one until the next number tells."""
        if told.sender is None or told.first is None or told.count is None:
            self.count += told.count or 1
            if topic not in self.headed:
                self._not_seen_as_gaps += told.count or 1
            self._note(Gap(MISSED, topic, until_ns=now_ns, text=str(told)))
            return
        life = told.sender.node, told.sender.incarnation
        first, stop = told.first, told.first + told.count
        if topic not in self.headed:
            first = max(first, self._seen.topics.get(topic, {}).get(life, first))
        if first < stop:
            self.count += stop - first
            self._note(Gap(MISSED, topic, *life, first, stop - first, until_ns=now_ns, text=str(told)))
            self._seen.note(topic, life, stop)

    def take(self) -> list[Gap]:
        """Return what is to be written down, once."""
        gaps, self.gaps = self.gaps, []
        self._open = {}
        return gaps

    def _note(self, gap: Gap) -> None:
        """Keep a gap until it is written. One that begins where the last one of its sender ended is joined to it."""
        key = gap.what, gap.topic, gap.sender, gap.incarnation
        place = self._open.get(key) if gap.count else None
        if place is not None:
            last = self.gaps[place]
            if last.first + last.count == gap.first:
                self.gaps[place] = msgspec.structs.replace(
                    last, count=last.count + gap.count, since_ns=last.since_ns or last.until_ns, until_ns=gap.until_ns
                )
                return
        if len(self.gaps) < RANGES_MAX:
            self._open[key] = len(self.gaps)
            self.gaps.append(gap)
