"""Settings of QSM."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from vivum.core.settings import setting
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.dissemination.ways import Means
from vivum.protocols.framing import frames_per_output_setting, pending_bytes_setting
from vivum.protocols.streams.settings import StreamSettings


@dataclass(frozen=True, slots=True)
class QsmSettings(StreamSettings):
    """Settings of QSM."""

    frames_per_output_max: int = frames_per_output_setting()
    multicast: bool = setting(
        True,
        unit="yes or no",
        why="One send reaches a whole region.",
        effect="Without it every member gets its own copy by unicast, as in clouds without multicast.",
    )
    spread_channels: int = setting(
        256,
        unit="channels",
        why="A budget for the whole domain: hosts and switches filter few addresses well, and thousands badly.",
        effect="Groups on one channel hear each other and drop what is not theirs. 0: no hybrid way. At most 1,024.",
    )
    spread_address_cost: float = setting(
        2.0,
        unit="datagrams",
        why="One more address at every member should save some datagrams of every frame.",
        effect="More keeps multicast to each region for groups of more regions; all nodes must have the same.",
    )
    spread_delay_ns: int = setting(
        300 * MILLISECOND,
        unit="ns",
        why="In this time all members have heard of a new configuration, and switches of a new listener.",
        effect="Less uses the channel of a group sooner, when some members may not listen yet and need repairs.",
    )
    ring_nodes_max: int = setting(
        25,
        unit="nodes",
        why="Seed 004, section 3: no token ring ever grows larger than about 25 nodes.",
        effect="Rounds of larger rings take longer; smaller rings make the hierarchy deeper.",
    )
    cache_holders: int = setting(
        5,
        unit="nodes",
        why="Seed 004, section 3: no more than five nodes of a ring cache a message.",
        effect="More of them survive more crashes, and cost memory, which slows receivers down (seed 004, Figure 22).",
    )
    pending_bytes_max: int = pending_bytes_setting()
    waiting_bytes_max: int = setting(
        16 * 1024 * 1024,
        unit="bytes",
        why="A second and more at the rate of a 100 Mb/s link, shared by however many groups.",
        effect="At the limit of all groups together a message is refused and the caller waits.",
    )
    streams_max: int = setting(
        65536,
        unit="streams",
        why="Each node of a large domain may send.",
        effect="At the limit frames of a new sender are refused and counted.",
    )
    early_frames_max: int = setting(
        256,
        unit="frames",
        why="What a sender that knows of a new view first may send before the others know of it.",
        effect="At the limit further ones are dropped, and repaired later.",
    )
    window_bytes_sure: int = setting(
        1_572_864,
        unit="bytes",
        why="As `window_bytes`, where buffers take as much of frames that come alone as of trains.",
        effect="A member that lost frames tells this window, and `window_bytes` again after 2 s without loss.",
    )
    token_idle_ns: int = setting(
        1 * SECOND,
        unit="ns",
        why="Seed 004, section 5.1: one token a second.",
        effect="More is cheaper; less notices a dead member of an idle region sooner.",
    )
    token_busy_ns_min: int = setting(
        2 * MILLISECOND,
        unit="ns",
        why="About the time of a short ring; rounds never overlap.",
        effect="Less repairs sooner and costs every member a token more often.",
    )
    token_busy_ns_max: int = setting(
        30 * MILLISECOND,
        unit="ns",
        why="A third of a window at full rate on a 100 Mb/s link.",
        effect="More leaves more frames unacknowledged; less costs tokens.",
    )
    feedback_ranges: Annotated[int, msgspec.Meta(ge=0, le=64)] = setting(
        0,
        unit="ranges",
        why="A single number is enough: the lowest prefix (seed 004, section 5.1, where more made things worse).",
        effect="With more, tokens and reports tell also of frames behind gaps, which then leave the sender's window.",
    )
    hop_timeout_ns: int = setting(
        10 * MILLISECOND,
        unit="ns",
        why="A token and its receipt take well under a millisecond unless the receiver is asleep.",
        effect="Less passes over a sleeping member sooner; more tolerates a busy one.",
    )
    hop_tries: int = setting(
        2,
        unit="tries",
        why="One token or receipt may be lost on the way.",
        effect="More tolerates more loss, and delays the ring longer at a dead member.",
    )
    watch_busy_ns: int = setting(
        200 * MILLISECOND,
        unit="ns",
        why="Several rounds of a large ring.",
        effect="A member without a token for this long, while something is unstable, takes over as leader.",
    )
    watch_idle_ns: int = setting(
        3 * SECOND,
        unit="ns",
        why="Three idle rounds.",
        effect="As for watch_busy_ns, while all is stable.",
    )
    suspect_after_ns: int = setting(
        2 * SECOND,
        unit="ns",
        why="A node may sleep for some time without being dropped (seed 004: 0.5 s in every 5).",
        effect="A member that was passed over for this long is reported to the configuration service.",
    )
    isolate_after_ns: int = setting(
        100 * MILLISECOND,
        unit="ns",
        why="Longer than a repair takes.",
        effect="If one member alone delays all others and makes no progress for this long, they stop waiting for it.",
    )
    drop_after_ns: int = setting(
        5 * SECOND,
        unit="ns",
        why="A member that slept for half a second has caught up by then, unless its link is full.",
        effect="Where slow members are to be dropped, one that is behind for this long starts a new life.",
    )
    repair_wait_ns: int = setting(
        20 * MILLISECOND,
        unit="ns",
        why="A repair that was promised comes well within this time.",
        effect="Less repeats more requests that need no repetition.",
    )
    rumour_ns: int = setting(
        10 * MILLISECOND,
        unit="ns",
        why="How long a frame may wait in queues and sockets on its way.",
        effect="Less asks sooner for the last frames of a burst, and more often for frames still on their way.",
    )
    repairs_per_token_max: int = setting(
        64,
        unit="frames",
        why="What a 100 Mb/s link carries in 8 ms.",
        effect="Further requests stay in the token for the next holder or the next round.",
    )
    asked_frames_max: int = setting(
        32,
        unit="frames",
        why="A third of what a 100 Mb/s link carries in one round of a large ring: room is left for new data.",
        effect="A node asks for no more in one token. More fills its link with repairs, which push out new data.",
    )
    give_up_after_ns: int = setting(
        2 * SECOND,
        unit="ns",
        why="Longer than any repair takes while a copy is left somewhere.",
        effect="After this time without a frame that nobody must have any more, the node starts over, or skips it.",
    )
    rate_rule: Literal["lowest", "mean"] = setting(
        "lowest",
        unit="lowest or mean",
        why="Members of a region share their fate (seed 001, section 2): what one loses, all others must repair.",
        effect="With the mean of stated rates, a region goes at the pace of most members, and a weak one falls behind.",
    )
    rate_period_ns: int = setting(
        100 * MILLISECOND,
        unit="ns",
        why="Several token rounds, so that a change of rate shows its effect before the next.",
        effect="Less reacts sooner to overload and to noise.",
    )
    linger_ns: int = setting(
        2 * SECOND,
        unit="ns",
        why="Longer than the loss of all frames of a sender to a region stays unnoticed.",
        effect="A region view that was replaced is kept for at least this long.",
    )
    quiesce_ns_max: int = setting(
        15 * SECOND,
        unit="ns",
        why="Longer than a dead member needs to be noticed and dropped.",
        effect="A replaced region view is given up after this time; what is not stable is reported as failed.",
    )

    @property
    def means(self) -> Means:
        """What there is to send with: by that the way of a group is chosen."""
        return Means(self.multicast, self.frame_bytes_max, self.spread_channels, self.spread_address_cost)
