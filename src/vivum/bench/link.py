"""`vivum bench link`: how much of a slow link Vivum fills, with and without loss, and how several senders share it.

Hosts are network namespaces at one switch, with links of 100 Mbit/s or another rate. The measure is what such a link
could carry if each message went in a datagram of its own: `rate / (size + 28 bytes of IP and UDP + 14 of Ethernet)`.
Packing several messages into a datagram may do better than 1; headers of frames, tokens and repairs make it less.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from vivum.bench.cell import Cell, Outcome, measure
from vivum.bench.namespaces import Cut, NetnsNetwork, capacity_per_s, require_hosts
from vivum.bench.throughput import our_system
from vivum.core.errors import UsageError

WARM_S = 3.0
SHARES_WARM_S = 2.0
"""How long senders that share a link have to find their shares."""

FAST_MBIT = 1000
"""From here on a train takes so little time on the link that it may pass the switch as one. Two processors could not
carry every datagram alone to four hosts, and measure anything but that."""

RATE_MBIT_MAX = 10_000
_UNITS = {"mbit": 1, "gbit": 1000}


def rate_mbit(text: str) -> int:
    """Read a rate such as `100mbit` or `1gbit`; return it in Mbit/s."""
    found = re.fullmatch(r"(\d{1,5})(mbit|gbit)", text.lower(), re.ASCII)
    mbit = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < mbit <= RATE_MBIT_MAX:
        raise UsageError(f"--rate {text}: write 100mbit, 250mbit or 1gbit; at most {RATE_MBIT_MAX // 1000}gbit")
    return mbit


def measure_link(cell: Cell, rate: int, loss_percent: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run the benchmark without and with loss at each receiver; raises `HostError` where it cannot be.

    The rate is in Mbit/s.
    """
    require_hosts("bench link")
    capacity = capacity_per_s(rate, cell.size)
    result: dict[str, Any] = {"capacity_per_s": round(capacity), "rate_mbit": rate, "size": cell.size}
    result |= {"receivers": cell.receivers, "senders": cell.senders, "seconds": cell.seconds}
    result["loss_percent"] = loss_percent
    cut = Cut.SWITCH if rate >= FAST_MBIT else Cut.HOST
    warm_s = SHARES_WARM_S if cell.senders > 1 else WARM_S
    for prefix, percent in (("", 0), ("lossy_", loss_percent)):
        if prefix and not percent:
            continue
        progress(f"{cell.senders} to {cell.receivers} hosts at {rate} Mbit/s, {percent} % loss")
        with NetnsNetwork(1 + cell.senders + cell.receivers, rate, cut=cut) as network:
            for host in network.hosts[1 + cell.senders :]:
                host.lose(percent)
            outcome = measure(our_system(), replace(cell, places=network.places), warm_s=warm_s)
        result |= {f"{prefix}{key}": value for key, value in _figures(outcome, capacity).items()}
    if "lossy_fraction" in result:
        result["lossy_to_clean"] = round(result["lossy_delivered_per_s_min"] / result["delivered_per_s_min"], 4)
    return result


def _figures(outcome: Outcome, capacity: float) -> dict[str, Any]:
    return {
        "delivered_per_s_min": round(outcome.per_s_min),
        "fraction": round(outcome.per_s_min / capacity, 4),
        **(shares(outcome.per_s_of_senders, capacity) if len(outcome.senders) > 1 else {}),
        "lost": outcome.total("lost"),
        "duplicated": outcome.total("duplicated"),
        "out_of_order": outcome.total("out_of_order"),
        "lost_in_silence": outcome.lost_in_silence,
        "told": outcome.told,
        "settled_s": outcome.settled_s,
        "longest_pause_s": outcome.pause_s_max,
        "cpu_ns_sender": round(outcome.cpu_ns_sender),
        "cpu_ns_receiver": round(outcome.cpu_ns_receiver),
        "starved": round(outcome.starved, 2),
    }


def shares(rates: Sequence[float], capacity: float) -> dict[str, Any]:
    """Compare the rates of senders: each one's share of the link, and the largest to the smallest."""
    smallest = min(rates)
    return {
        "shares": [round(rate / capacity, 4) for rate in rates],
        "shares_ratio": round(max(rates) / smallest, 3) if smallest else None,
    }
