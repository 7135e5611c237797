"""Where messages and frames go, and how many frames of a stream go there at once.

Under load a sender's frames arrive dozens at a time, in order. To take such a run is the same as to take its frames
one after the other; what does not follow, or has a gap before it, is left to the way of single frames.
"""

from vivum.core.ids import ViewNumber
from vivum.core.machine import Output
from vivum.protocols.qsm.chain import Chain
from vivum.protocols.qsm.incoming import StreamReceiver
from vivum.protocols.qsm.outgoing import RegionSender
from vivum.protocols.qsm.region import RegionMember
from vivum.wire.codec import Frame, consecutive
from vivum.wire.kinds import Kind

DATA = Kind.DATA

Lane = tuple[RegionMember, StreamReceiver, Chain]
"""Where the frames of a stream go: its region view, the stream, and all streams of its sender in their order."""

Route = tuple[ViewNumber, tuple[RegionSender, ...]]
"""What a message to a group belongs to: the group's view, and the streams into its regions."""


Lanes = dict[tuple[int, int, int, int], Lane]
"""The lanes of all streams that are known, by the streams' names."""


def take_run(lanes: Lanes, now_ns: int, frames: list[Frame], start: int, output: Output) -> int:
    """Take and deliver the new frames from an index on that are next in their stream; return how many, often none."""
    first = frames[start]
    # The first frame of a stream tells what must come before it.
    lane = lanes.get(first.stream) if first.kind is DATA and first.sequence else None
    if lane is None:
        return 0
    region, stream, chain = lane
    run = frames if len(frames) == 1 else frames[start : start + consecutive(frames, start)]
    if not region.on_run(now_ns, stream, run):
        return 0
    chain.deliver_run(stream, run, output)
    return len(run)
