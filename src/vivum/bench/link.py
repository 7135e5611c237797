"""`vivum bench link`: how much of a slow link Vivum fills, with and without loss.

Hosts are network namespaces at one switch, with links of 100 Mbit/s. The measure is what such a link could carry if
each message went in a datagram of its own: `rate / (size + 28 bytes of IP and UDP + 14 of Ethernet)`. Packing several
messages into a datagram may do better than 1; headers of frames, tokens and repairs make it less.
"""

from collections.abc import Callable
from typing import Any

from vivum.bench.cell import Cell, Outcome, measure
from vivum.bench.namespaces import NetnsNetwork, capacity_per_s, why_impossible
from vivum.bench.throughput import our_system
from vivum.core.errors import HostError

WARM_S = 3.0


def measure_link(
    size: int,
    receivers: int,
    seconds: float,
    rate_mbit: int,
    loss_percent: int,
    settings: dict[str, Any],
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Run the benchmark without and with loss at each receiver; raises `HostError` where it cannot be."""
    cause = why_impossible()
    if cause:
        raise HostError(f"bench link cannot run here: {cause}")
    capacity = capacity_per_s(rate_mbit, size)
    result: dict[str, Any] = {"capacity_per_s": round(capacity), "rate_mbit": rate_mbit, "size": size}
    result |= {"receivers": receivers, "seconds": seconds, "loss_percent": loss_percent}
    for prefix, percent in (("", 0), ("lossy_", loss_percent)):
        if prefix and not percent:
            continue
        progress(f"{receivers} receivers at {rate_mbit} Mbit/s, {percent} % loss")
        with NetnsNetwork(receivers + 2, rate_mbit) as network:
            for host in network.hosts[2:]:
                host.lose(percent)
            places = [(host.prefix, host.address) for host in network.hosts]
            cell = Cell(size, receivers, seconds, options={"settings": settings}, places=places)
            outcome = measure(our_system(), cell, warm_s=WARM_S)
        result |= {f"{prefix}{key}": value for key, value in _figures(outcome, capacity).items()}
    if "lossy_fraction" in result:
        result["lossy_to_clean"] = round(result["lossy_delivered_per_s_min"] / result["delivered_per_s_min"], 4)
    return result


def _figures(outcome: Outcome, capacity: float) -> dict[str, Any]:
    return {
        "delivered_per_s_min": round(outcome.per_s_min),
        "fraction": round(outcome.per_s_min / capacity, 4),
        "lost": outcome.total("lost"),
        "duplicated": outcome.total("duplicated"),
        "out_of_order": outcome.total("out_of_order"),
        "longest_pause_s": max(each["longest_pause_s"] for each in outcome.received),
        "starved": round(outcome.starved, 2),
    }
