"""The sender's side of one group: numbers messages, and tells when they are stable in every region that they were
sent to.

A message belongs to the views in which it was accepted: to the streams of that moment, whatever comes later.

Invariants: `stable <= next_message`; segments are consecutive and end at `next_message`; each message is confirmed or
reported as failed, once.
"""

from collections.abc import Sequence
from typing import Protocol

from vivum.core.ids import GroupId, ViewNumber
from vivum.core.ranges import RangeSet
from vivum.protocols.commands import SlowMembers
from vivum.protocols.streams.region_sender import RegionSender


class SharedFrames(Protocol):
    """Makes frames that are for several streams at once."""

    def feed(
        self,
        group: GroupId,
        first: int,
        payloads: Sequence[bytes],
        view: ViewNumber,
        size: int | None,
        slow: SlowMembers,
    ) -> None:
        """Queue messages of a group for all the streams."""


class _Segment:
    """Messages up to `stop` that went into the same streams."""

    __slots__ = ("stop", "streams")

    def __init__(self, streams: tuple[RegionSender, ...], stop: int) -> None:
        self.streams = streams
        self.stop = stop


class Feed:
    """What this node sends to one group."""

    __slots__ = ("_failed", "_segments", "group", "next_message", "stable")

    def __init__(self, group: GroupId) -> None:
        self.group = group
        self.next_message = 0
        self.stable = 0
        self._segments: list[_Segment] = []
        # From `stable` on: messages that were reported as failed, because one of their streams was given up.
        self._failed: RangeSet | None = None

    def send(
        self,
        payloads: Sequence[bytes],
        streams: tuple[RegionSender, ...],
        view: ViewNumber,
        size: int | None = None,
        slow: SlowMembers = SlowMembers.ISOLATE,
        spread: SharedFrames | None = None,
    ) -> int:
        """Number messages, of `size` bytes, and put them into their streams; return the number of the first.

        With `spread` they go into frames for all the streams.
        """
        first = self.number(len(payloads), streams)
        if spread is not None:
            spread.feed(self.group, first, payloads, view, size, slow)
            return first
        for stream in streams:
            stream.feed(self.group, first, payloads, view, size, slow)
        return first

    def number(self, count: int, streams: tuple[RegionSender, ...]) -> int:
        """Number messages that go into these streams; return the number of the first."""
        first = self.next_message
        self.next_message = stop = first + count
        segments = self._segments
        if segments and (segments[-1].streams is streams or segments[-1].streams == streams):
            segments[-1].stop = stop
        else:
            segments.append(_Segment(streams, stop))
        return first

    def advance(self) -> tuple[int, int]:
        """Find what has become stable everywhere since the last time: `first <= n < stop`."""
        before = self.stable
        if len(self._segments) == 1 and len(self._segments[0].streams) == 1:
            # As below, for less work: the way of nearly all groups.
            segment = self._segments[0]
            reached = segment.streams[0].put[self.group][2]
            self.stable = max(before, min(reached, segment.stop))
            return before, self.stable
        while self._segments:
            segment = self._segments[0]
            reached = segment.stop
            for stream in segment.streams:
                reached = min(reached, stream.put[self.group][2])
            self.stable = max(self.stable, reached)
            if reached < segment.stop or (len(self._segments) == 1 and segment.streams):
                break
            del self._segments[0]
        return before, self.stable

    def confirm(self) -> list[tuple[int, int]]:
        """Find what has become stable everywhere since the last time, but for what was reported as failed."""
        first, stop = self.advance()
        news = [(first, stop)] if first < stop else []
        if self._failed is None:
            return news
        rest = RangeSet(news)
        rest.difference_update(self._failed)
        self._failed.discard_range(0, stop)
        return list(rest.ranges())

    def fail(self, first: int, stop: int) -> list[tuple[int, int]]:
        """Give messages up; return those of which nothing was reported yet."""
        news = RangeSet([(max(first, self.stable), stop)] if max(first, self.stable) < stop else ())
        if self._failed is None:
            self._failed = news
            return list(news.ranges())
        news.difference_update(self._failed)
        self._failed.update(news)
        return list(news.ranges())

    def forsake(self, stream: RegionSender) -> None:
        """Wait no longer for a stream that was given up; what was lost with it has been reported."""
        for segment in self._segments:
            segment.streams = tuple(each for each in segment.streams if each is not stream)
