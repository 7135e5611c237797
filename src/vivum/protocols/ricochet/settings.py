"""Settings of lateral error correction. Each says its unit, why this default, and what more or less of it does."""

from dataclasses import dataclass

from vivum.core.errors import UsageError
from vivum.core.settings import setting
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.framing import frame_bytes_setting
from vivum.wire.layout import CAPACITY_MIN, WINDOW_MAX
from vivum.wire.timely import NAME, NAMES_MAX, REPAIR_ROOM


@dataclass(frozen=True, slots=True)
class TimelySettings:
    """Settings of timely groups."""

    frame_bytes_max: int = frame_bytes_setting()
    repair_frames: int = setting(
        8,
        unit="frames",
        why="The r of (r, c): with c = 5, what Ricochet's authors used. Receivers spend c/r of what they receive.",
        effect="More frames in an XOR cost less and repair later, and more of them lack two. At most 32.",
    )
    repair_copies: int = setting(
        5,
        unit="receivers",
        why="The c of (r, c): each frame is in about five XORs that a member that lost it gets.",
        effect="More repairs more, and costs more. With 0 there are no lateral repairs: senders repair all.",
    )
    stride: int = setting(
        20,
        unit="bins",
        why="Frames that follow each other go into 20 different XORs, so a burst of 20 costs each of them one frame.",
        effect="More survives longer bursts, and needs that many times more frames before the first XOR is full.",
    )
    fill_ns: int = setting(
        40 * MILLISECOND,
        unit="ns",
        why="An XOR is full by then: where few frames come, fewer bins are in use than `stride` allows.",
        effect="More keeps the stride at lower rates; less repairs sooner.",
    )
    nak_ns: int = setting(
        60 * MILLISECOND,
        unit="ns",
        why="Longer than lateral repairs usually take.",
        effect="Less asks the sender for what others would have repaired; more is later where they do not.",
    )
    report_ns: int = setting(
        100 * MILLISECOND,
        unit="ns",
        why="Members tell senders this often what they have, so that these forget it.",
        effect="Less costs more control frames; more makes `flush` slower and senders keep more.",
    )
    probe_ns: int = setting(
        150 * MILLISECOND,
        unit="ns",
        why="Longer than a report takes. A member that has not reported by then may lack the last frames.",
        effect="Less finds lost last frames sooner; below `report_ns` it asks for reports that are on their way.",
    )
    deadline_ns: int = setting(
        0,
        unit="ns",
        why="0: wait as long as the sender lives.",
        effect="What is missing for longer is given up and reported as lost; a sender forgets what "
        "is older, and never waits for a slow member.",
    )
    kept_bytes_max: int = setting(
        16 * 1024 * 1024,
        unit="bytes",
        why="What leaves in 100 ms, the time of a report, at a gigabit.",
        effect="At the limit a message is refused and the caller waits until members have reported.",
    )
    window_frames: int = setting(
        4096,
        unit="frames",
        why="What may come behind a frame that is missing.",
        effect="What comes beyond is dropped and asked for later.",
    )
    history_frames: int = setting(
        4096,
        unit="frames",
        why="Frames of the last moments, to be taken out of XORs that come.",
        effect="The oldest go first. With too few, XORs name frames that are not there any more.",
    )
    history_bytes: int = setting(
        8 * 1024 * 1024, unit="bytes", why="The same in bytes, for large frames.", effect="The oldest go first."
    )
    repairs_kept_max: int = setting(
        256,
        unit="frames",
        why="XORs that lack several frames.",
        effect="The oldest is dropped for a new one.",
    )
    streams_max: int = setting(
        131_072,
        unit="streams",
        why="Two senders in each of 65,536 groups.",
        effect="At the limit frames of further senders are dropped until others have gone.",
    )
    gone_ns: int = setting(
        3 * SECOND,
        unit="ns",
        why="A sender that left a group serves those who lack something for two seconds.",
        effect="After it, what is missing of a sender that is gone is given up and reported.",
    )
    linger_ns: int = setting(
        2 * SECOND,
        unit="ns",
        why="Less than `gone_ns`.",
        effect="How long a sender that left a group keeps frames that members lack.",
    )
    resend_frames_max: int = setting(
        64,
        unit="frames",
        why="A fraction of what a receive buffer takes.",
        effect="At most this many frames answer a request; the rest is asked for again.",
    )
    wanted_recovery: float = setting(
        0.0,
        unit="share",
        why="0: (r, c) stay as they are set.",
        effect="The node measures loss, and takes the cheapest (r, c) that repairs this share laterally.",
    )
    overhead_max: float = setting(
        0.625,
        unit="share",
        why="That of (8, 5).",
        effect="What a node that chooses (r, c) itself may spend, of what it receives.",
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        checks = (
            (1 <= self.repair_frames <= NAMES_MAX, f"repair_frames must be 1 to {NAMES_MAX}"),
            (self.repair_copies >= 0, "repair_copies must not be negative"),
            (self.stride >= 1, "stride must be at least 1"),
            (1 <= self.window_frames <= WINDOW_MAX, f"window_frames must be 1 to {WINDOW_MAX}"),
            (min(self.fill_ns, self.nak_ns, self.report_ns, self.probe_ns) > 0, "intervals must be positive"),
            (self.deadline_ns >= 0, "deadline_ns must not be negative"),
            (0.0 <= self.wanted_recovery < 1.0, "wanted_recovery must be 0 to less than 1"),
            (self.data_bytes_max >= CAPACITY_MIN, "frame_bytes_max has no room for an XOR of repair_frames frames"),
        )
        for is_right, wrong in checks:
            if not is_right:
                raise UsageError(wrong)

    @property
    def data_bytes_max(self) -> int:
        """The longest data frame: an XOR of frames, with their names, must fit one datagram."""
        return self.frame_bytes_max - REPAIR_ROOM - NAME.size * self.repair_frames
