"""Where the frames of a stream go, and how many of them go there at once.

Under load a sender's frames arrive dozens at a time, in order. To take such a run is the same as to take its frames
one after the other; what does not follow, or has a gap before it, is left to the way of single frames.
"""

from typing import Protocol

from vivum.core.ids import Endpoint
from vivum.core.machine import Effect
from vivum.protocols.streams.sender_fifo import SenderFifo
from vivum.protocols.streams.stream_receiver import StreamReceiver
from vivum.wire.codec import Frame, consecutive
from vivum.wire.kinds import Kind

DATA = Kind.DATA


class RegionView(Protocol):
    """A region view that this node is in: it gives frames to their streams, and counts them."""

    def on_data(self, now_ns: int, stream: StreamReceiver, frame: Frame) -> bool:
        """Take a frame; return whether it is new."""

    def on_run(self, now_ns: int, stream: StreamReceiver, frames: list[Frame]) -> None:
        """Take new frames that follow each other and are next in their stream."""

    def on_later_run(self, now_ns: int, stream: StreamReceiver, frames: list[Frame]) -> bool:
        """Take frames that follow each other behind all that came of their stream; return whether they are that."""


ReceiveRoute = tuple[RegionView, StreamReceiver, SenderFifo, Endpoint]
"""Where the frames of a stream go: its region view, the stream, all streams of its sender in their order; and from
where new ones come."""

ReceiveRoutes = dict[tuple[int, int, int, int], ReceiveRoute]
"""The routes of all streams that are known, by the streams' names."""


def take_run(
    routes: ReceiveRoutes, now_ns: int, source: Endpoint, frames: list[Frame], start: int, effects: list[Effect]
) -> int:
    """Take and deliver the new frames from an index on that are next in their stream.

    Return how many of the list were dealt with, often none.
    """
    first = frames[start]
    # The first frame of a stream tells what must come before it.
    route = routes.get(first.stream) if first.kind is DATA and first.sequence else None
    if route is None:
        return 0
    region, stream, fifo, home = route
    if source != home:
        return 0
    run = frames if len(frames) == 1 else frames[start : start + consecutive(frames, start)]
    if not (stream.is_next(first.sequence, run[-1].stop) and fifo.is_ready(stream)):
        if not region.on_later_run(now_ns, stream, run):
            return 0
        # Nothing, if they wait for what is missing.
        fifo.deliver(effects)
        return len(run)
    messages = fifo.cut(run)
    region.on_run(now_ns, stream, run)
    fifo.deliver_run(stream, run, messages, effects)
    return len(run)
