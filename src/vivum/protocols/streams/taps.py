"""How protocols beside the one that owns the streams see frames, and hand in those that they rebuilt."""

from collections.abc import Callable

from vivum.wire.codec import Frame, resend, split
from vivum.wire.kinds import Kind

FrameTap = Callable[[int, list[Frame]], None]
"""Is shown the time and new frames that follow each other in one stream."""


def as_repair(frame: Frame) -> Frame:
    """Label a data frame that was rebuilt as a repair; return frames of other kinds as they are.

    It is not the word of its sender any more: it may come from any member, and says nothing of delays.
    """
    return split(resend(frame.to_bytes()))[0] if frame.kind == Kind.DATA else frame
