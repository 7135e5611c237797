"""What a link could carry: the yardstick of the rates."""

from vivum.sim.network import ETHERNET_BYTES, PACKET_BYTES_MAX, UDP_HEADER_BYTES


def payload_bytes_per_s(bandwidth_bps: int) -> float:
    """Return the UDP payload of a link full of full Ethernet frames: 11,964 KB/s at 100 Mb/s."""
    return bandwidth_bps / 8 * (PACKET_BYTES_MAX - UDP_HEADER_BYTES) / (PACKET_BYTES_MAX + ETHERNET_BYTES)


def datagrams_per_s(bandwidth_bps: int, size: int) -> float:
    """Return how many plain datagrams of one message each a link carries: 11,726 of 1,000 bytes at 100 Mb/s."""
    return bandwidth_bps / 8 / (size + UDP_HEADER_BYTES + ETHERNET_BYTES)
