"""Settings of streams. A protocol that has streams makes its own settings a subclass of these."""

from dataclasses import dataclass

from vivum.core.settings import setting
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.framing import frame_bytes_setting


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Settings of streams: frames, windows, pace and heartbeats."""

    frame_bytes_max: int = frame_bytes_setting()
    cache_frames_max: int = setting(
        8192,
        unit="frames",
        why="About a second at the full rate of a 100 Mb/s link: a member may sleep that long and still catch up.",
        effect="A member further behind than this is told that it lost messages. More takes memory at the caches.",
    )
    window_frames: int = setting(
        512,
        unit="frames",
        why="Some 60 ms at the full rate of a 100 Mb/s link, twice what it takes to hear from 200 nodes; 750 KB.",
        effect="At the limit nothing new is sealed, and messages wait. More takes memory at sender and receivers.",
    )
    window_bytes: int = setting(
        1_572_864,
        unit="bytes",
        why="Twice `window_frames` on Ethernet, for two senders. Large frames must fit the buffers of receivers.",
        effect="At the limit nothing new is sealed, and messages wait. Several senders into one region share it.",
    )
    window_initial_frames: int = setting(
        32,
        unit="frames",
        why="What the queue of any switch takes. The window doubles in each round until it is open.",
        effect="More begins faster, and overruns queues when several senders begin at once.",
    )
    resend_ns_min: int = setting(
        10 * MILLISECOND,
        unit="ns",
        why="A frame that was just sent again is still on its way to those who report it missing.",
        effect="Less sends in vain more often.",
    )
    pacing_slack_ns: int = setting(
        5 * MILLISECOND,
        unit="ns",
        why="What a sender may catch up after it was held up: a few dozen frames at full rate.",
        effect="More lets bursts through, which overflow queues on the way.",
    )
    pacing_late_slack_ns: int = setting(
        15 * MILLISECOND,
        unit="ns",
        why="What it may catch up if only its processor was late: meanwhile the queue before its link ran empty.",
        effect="More fills queues past what tokens can wait; less leaves a link idle that others made it miss.",
    )
    pacing_quantum_ns: int = setting(
        0,
        unit="ns",
        why="In virtual time a timer for each frame costs nothing.",
        effect="Frames wait and leave together at this interval: less work for the same rate. Over UDP 1 ms.",
    )
    heartbeat_ns_min: int = setting(
        20 * MILLISECOND,
        unit="ns",
        why="The loss of the last frame before a pause is noticed after this time.",
        effect="Less notices sooner and costs a frame.",
    )
    heartbeat_ns_max: int = setting(
        1 * SECOND,
        unit="ns",
        why="Heartbeats double their distance up to this.",
        effect="More is cheaper while a region does not answer.",
    )

    @property
    def window(self) -> int:
        """Frames that may be unstable when all are full."""
        return max(1, min(self.window_frames, self.window_bytes // self.frame_bytes_max))
