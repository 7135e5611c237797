"""Size settings to the network under a node: frames by the path, the window by the receive buffer."""

from dataclasses import replace

from vivum.protocols.qsm.settings import QsmSettings

WINDOW_SHARE = 2
"""The window of large frames is this fraction of the receive buffer: senders of other regions share it, and what is in
flight should fit the processor's cache."""

WINDOW_FRAMES_MIN = 16

FRAME_BYTES_MIN = 1472
"""Frames are at least this large, however small the receive buffer, unless the path carries less."""

SMALL_FRAME_COST_BYTES = 2730
"""What a frame on Ethernet takes of a receive buffer: the kernel charges 2,304 bytes for its block. Some is left."""

TRAIN_FRAME_COST_BYTES = 1900
"""The same for a frame that comes in a train: the kernel charges 1,620 bytes of its large blocks. Some is left."""

TRAINS_BYTES_MAX = 1 << 20
"""A window never grows beyond this because frames come in trains: a larger one is not needed."""

PACING_QUANTUM_NS = 1_000_000
"""Frames that a rate holds back leave together at this interval: a turn of the loop costs more than a frame."""

FRAMES_PER_OUTPUT = 132
"""Three whole trains on Ethernet: 44 frames fill one. The driver looks at its sockets between two outputs."""

PENDING_BYTES = 4 << 20


def fitting_settings(payload_bytes: int, receive_buffer_bytes: int, kept_bytes: int, multicast: bool) -> QsmSettings:
    """Return settings sized to the path and the receive buffer: a window must fit the buffer.

    Small frames usually come in trains, of which a small buffer takes more: `window_bytes` counts on that, and
    `window_bytes_sure` does not. Tokens come as often as the window needs, and caches keep at least `kept_bytes`.
    """
    share = receive_buffer_bytes // WINDOW_SHARE
    frame_bytes = min(payload_bytes, max(FRAME_BYTES_MIN, share // WINDOW_FRAMES_MIN))
    base = QsmSettings()
    sure_bytes = window_bytes = max(WINDOW_FRAMES_MIN, share // frame_bytes) * frame_bytes
    if frame_bytes <= FRAME_BYTES_MIN:
        train_frames = min(TRAINS_BYTES_MAX // frame_bytes, receive_buffer_bytes // TRAIN_FRAME_COST_BYTES)
        window_bytes = max(sure_bytes, train_frames * frame_bytes)
    cache_frames = max(4 * window_bytes, kept_bytes) // frame_bytes
    return replace(
        base,
        frame_bytes_max=frame_bytes,
        # A larger window of small frames needs fewer tokens.
        window_frames=max(
            window_bytes // frame_bytes, min(cache_frames, receive_buffer_bytes // SMALL_FRAME_COST_BYTES)
        ),
        window_bytes=window_bytes,
        window_bytes_sure=sure_bytes,
        cache_frames_max=cache_frames,
        pending_bytes_max=PENDING_BYTES,
        frames_per_output_max=FRAMES_PER_OUTPUT,
        pacing_quantum_ns=PACING_QUANTUM_NS,
        token_busy_ns_min=300_000,
        token_busy_ns_max=5_000_000,
        multicast=multicast,
    )
