"""The codec in use: the compiled one, or its plain-Python twin where that was not built.

`COMPILED` tells which it is; `vivum doctor` shows it, and `vivum.uncompiled` how to choose. What the names mean is told
in `_codec_twin`, which also has the types of both.
"""

from typing import TYPE_CHECKING

COMPILED = False

if TYPE_CHECKING:
    from vivum.wire import _codec_twin as _chosen
else:
    try:
        from vivum.wire import _codec as _chosen

        COMPILED = True
    except ImportError:
        from vivum.wire import _codec_twin as _chosen

VERSION = _chosen.VERSION
HEADER_BYTES = _chosen.HEADER_BYTES
RUN_HEADER_BYTES = _chosen.RUN_HEADER_BYTES
FRAME_BYTES_MAX = _chosen.FRAME_BYTES_MAX
CAPACITY_MIN = _chosen.CAPACITY_MIN
COUNT_MAX = _chosen.COUNT_MAX
GROUP_MAX = _chosen.GROUP_MAX
FLAG_CONTINUES = _chosen.FLAG_CONTINUES
FLAG_MORE = _chosen.FLAG_MORE
SEQUENCE_MAX = _chosen.SEQUENCE_MAX
WINDOW_MAX = _chosen.WINDOW_MAX
NEW = _chosen.NEW
DUPLICATE = _chosen.DUPLICATE
BEYOND = _chosen.BEYOND
Frame = _chosen.Frame
FrameBuilder = _chosen.FrameBuilder
PackedRun = _chosen.PackedRun
SequenceWindow = _chosen.SequenceWindow
Stops = _chosen.Stops
consecutive = _chosen.consecutive
take_runs = _chosen.take_runs
measure = _chosen.measure
relabel = _chosen.relabel
resend = _chosen.resend
seal_control = _chosen.seal_control
single_frames = _chosen.single_frames
split = _chosen.split
split_trains = _chosen.split_trains

Part = tuple[int, int, list[bytes], int, int]
"""Messages of a group for `seal_parts`: the group, the number of the first message of a list, the list, the index of
the first message to seal, and how many bytes of that one are in frames already."""

TakenRun = tuple[int, int, int, int, list[bytes] | PackedRun]
"""A run of messages that `take_runs` gives: index of its first frame, counted one by one, group, sequence of the
first, flags, payloads."""
