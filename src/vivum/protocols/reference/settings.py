"""Settings of the reference protocol."""

from dataclasses import dataclass, fields

from vivum.core.errors import UsageError
from vivum.core.settings import setting
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.framing import frame_bytes_setting, frames_per_output_setting, pending_bytes_setting
from vivum.wire.codec import CAPACITY_MIN, FRAME_BYTES_MAX, WINDOW_MAX


@dataclass(frozen=True, slots=True)
class ReferenceSettings:
    """Settings of the reference protocol."""

    reliable: bool = setting(
        True,
        unit="yes or no",
        why="The baseline for reliable protocols; without it, the baseline for best effort.",
        effect="If not, nothing is asked for, kept or acknowledged, and gaps are reported when they are noticed.",
    )
    frame_bytes_max: int = frame_bytes_setting()
    frames_per_output_max: int = frames_per_output_setting()
    window_frames: int = setting(
        1024,
        unit="frames",
        why="A tenth of a second at 10,000 frames/s, several acknowledgement delays.",
        effect="At the limit nothing new is sealed, and messages wait. More takes memory at sender and receivers.",
    )
    pending_bytes_max: int = pending_bytes_setting()
    streams_max: int = setting(
        65536,
        unit="streams",
        why="8,192 groups with eight senders each.",
        effect="At the limit frames of a new sender and group are refused and counted.",
    )
    ack_every_frames: int = setting(
        64,
        unit="frames",
        why="A sixteenth of the window: a late acknowledgement never delays the sender.",
        effect="Fewer frames per ACK release memory sooner and load the sender: one ACK from each receiver.",
    )
    ack_delay_ns: int = setting(
        20 * MILLISECOND,
        unit="ns",
        why="A few round trips of a local network.",
        effect="Less makes messages stable sooner and costs control frames.",
    )
    nak_delay_ns_min: int = setting(
        1 * MILLISECOND,
        unit="ns",
        why="Longer than the reordering of a local network, so that a late frame is not asked for.",
        effect="Less repairs sooner, and asks more often for frames that are only late.",
    )
    nak_delay_ns_max: int = setting(
        320 * MILLISECOND,
        unit="ns",
        why="Requests double their distance up to this while the sender does not answer.",
        effect="More spares a sender in trouble; less finds its recovery sooner.",
    )
    repairs_per_nak_max: int = setting(
        64,
        unit="frames",
        why="What a 100 Mb/s link carries in 8 ms: more would still be under way when the next request comes.",
        effect="Only the lowest missing frames are sent; the rest is asked for again when those have come.",
    )
    heartbeat_ns_min: int = setting(
        50 * MILLISECOND,
        unit="ns",
        why="The loss of the last frame before a pause is noticed after this time.",
        effect="Less notices sooner and costs a frame for each idle group.",
    )
    heartbeat_ns_max: int = setting(
        1 * SECOND,
        unit="ns",
        why="Heartbeats double their distance up to this; the paper's tokens circulate once a second when idle.",
        effect="More is cheaper for thousands of idle groups; less reaches a healed member sooner.",
    )
    drop_after_ns: int = setting(
        3 * SECOND,
        unit="ns",
        why="Longer than a long pause of a managed runtime (seed 004 has 0.5 s).",
        effect="A member silent for longer is no longer waited for. Until then it delays all others.",
    )
    give_up_after_ns: int = setting(
        10 * SECOND,
        unit="ns",
        why="Longer than drop_after_ns: a sender in a partition gives up first, and says so when it heals.",
        effect="A gap of a sender silent for longer is reported and skipped.",
    )

    def __post_init__(self) -> None:
        """Refuse numbers with which the protocol could not run."""
        for each in fields(self):
            value = getattr(self, each.name)
            if type(value) is int and value < 1:
                raise UsageError(f"{each.name}: {value}; must be at least 1")
        if not CAPACITY_MIN <= self.frame_bytes_max <= FRAME_BYTES_MAX:
            raise UsageError(f"frame_bytes_max: {self.frame_bytes_max}; must be {CAPACITY_MIN} to {FRAME_BYTES_MAX}")
        if self.window_frames > WINDOW_MAX:
            raise UsageError(f"window_frames: {self.window_frames}; must be at most {WINDOW_MAX}")
        if self.nak_delay_ns_min > self.nak_delay_ns_max:
            raise UsageError(f"nak_delay_ns_min: {self.nak_delay_ns_min}; must be at most nak_delay_ns_max")
        if self.heartbeat_ns_min > self.heartbeat_ns_max:
            raise UsageError(f"heartbeat_ns_min: {self.heartbeat_ns_min}; must be at most heartbeat_ns_max")
