"""The named limits that hold for every node, whatever its protocols.

Nothing in Vivum may grow without a limit. A protocol has further limits in its own settings class; each says what
happens when it is reached.
"""

from dataclasses import dataclass

from vivum.core.settings import setting


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one node. Pass your own to widen or narrow them."""

    message_bytes_max: int = setting(
        16 * 1024 * 1024,
        unit="bytes",
        why="Large enough for a picture or a state transfer, small enough that joining one cannot exhaust a node.",
        effect="A larger message is refused where it is sent, with a LimitError; a peer's is refused and counted.",
    )
    joins_open_max: int = setting(
        4096,
        unit="messages",
        why="A sender has at most one small message open between two frames, and each large one that it is sending.",
        effect="A further first fragment is refused and counted, and its message reported as lost by the guarantee.",
    )
    join_bytes_max: int = setting(
        64 * 1024 * 1024,
        unit="bytes",
        why="Bounds the memory of all open joins together: four of the largest messages.",
        effect="As for joins_open_max.",
    )
    ranges_max: int = setting(
        64,
        unit="ranges",
        why="A list of missing ranges must fit one frame of 1,472 bytes whatever the numbers; 79 would just fit.",
        effect="Only the lowest ranges are reported; the rest follow when those are repaired.",
    )
