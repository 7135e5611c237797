"""Settings that every protocol has which packs messages into frames: said once, for all of them."""

from typing import Any

from vivum.core.settings import setting


def frame_bytes_setting() -> Any:
    """Make the setting `frame_bytes_max` of a protocol."""
    return setting(
        1472,
        unit="bytes",
        why="The payload of a UDP datagram that crosses Ethernet unfragmented.",
        effect="More packs better; more than the path takes is cut up by IP, where one lost part loses all.",
    )


def frames_per_output_setting() -> Any:
    """Make the setting `frames_per_output_max` of a protocol."""
    return setting(
        64,
        unit="frames",
        why="About what one UDP_SEGMENT call can carry; the driver looks at its sockets between two calls.",
        effect="More saves calls; less lets arrivals be handled sooner.",
    )


def pending_bytes_setting() -> Any:
    """Make the setting `pending_bytes_max` of a protocol."""
    return setting(
        1024 * 1024,
        unit="bytes",
        why="Enough to fill the window at once after it opens.",
        effect="At the limit a message is refused and the caller waits. More only adds delay.",
    )
