"""Frames sealed in provided memory; what `_frame_bytes.pyx` offers. Without such memory frames are `bytes`."""

class FrameBytes(bytes):
    """A sealed frame in a `FrameMemory`, whose room is free again when nobody holds the frame any more.

    It has all of `bytes` that senders use: a length, bytes by index and slice, and the buffer protocol. `bytes(frame)`
    is the one way to take a copy. To the type checker it is `bytes`, so that code which keeps, counts and sends frames
    need not know where they lie; at run time it is not.
    """

class FrameMemory:
    """Where a `FrameBuilder` seals frames, while there is room. Others extend it in C."""

    @property
    def frame_bytes_min(self) -> int:
        """Smaller frames are not worth it, and are `bytes`."""
    @property
    def frame_bytes_max(self) -> int:
        """The largest frame that fits."""
