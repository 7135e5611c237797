"""Size settings to the network under a node: frames by the path, the window by the receive buffer."""

from dataclasses import replace

from vivum.protocols.qsm.settings import QsmSettings

WINDOW_SHARE = 2
"""The window is this fraction of the receive buffer: the kernel counts more than the payload of a datagram."""

WINDOW_FRAMES_MIN = 16

FRAME_BYTES_MIN = 1472
"""Frames are at least this large, however small the receive buffer, unless the path carries less."""

LARGE_FRAME_BYTES = 9000
"""Larger than any Ethernet frame, so frames of this size stay within this machine."""

SMALL_FRAME_COST_BYTES = 2048
"""Upper bound of what a small datagram takes of a receive buffer: the kernel charges its whole block."""

PACING_QUANTUM_NS = 1_000_000
"""Frames that a rate holds back leave together at this interval: a turn of the loop costs more than a frame."""

PENDING_BYTES = 4 << 20


def fitting_settings(payload_bytes: int, receive_buffer_bytes: int, kept_bytes: int, multicast: bool) -> QsmSettings:
    """Return settings sized to the path and the receive buffer: a window must fit the buffer.

    With large frames, on loopback, no link can be overrun, only the buffers of receivers. So there is no rate limit,
    only the window; tokens come as often as the window needs, and caches keep at least `kept_bytes`.
    """
    share = receive_buffer_bytes // WINDOW_SHARE
    frame_bytes = min(payload_bytes, max(FRAME_BYTES_MIN, share // WINDOW_FRAMES_MIN))
    base = QsmSettings()
    if frame_bytes < LARGE_FRAME_BYTES:
        return replace(base, frame_bytes_max=frame_bytes, pacing_quantum_ns=PACING_QUANTUM_NS, multicast=multicast)
    window = max(WINDOW_FRAMES_MIN, share // frame_bytes)
    cache_frames = max(4 * window, kept_bytes // frame_bytes)
    return replace(
        base,
        frame_bytes_max=frame_bytes,
        # A larger window of small frames needs fewer tokens.
        window_frames=max(base.window_frames, window, min(cache_frames, share // SMALL_FRAME_COST_BYTES)),
        window_bytes=window * frame_bytes,
        cache_frames_max=cache_frames,
        pending_bytes_max=PENDING_BYTES,
        rate_initial=0,
        token_busy_ns_min=300_000,
        token_busy_ns_max=5_000_000,
        multicast=multicast,
    )
