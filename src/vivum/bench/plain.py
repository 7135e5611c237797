"""`vivum bench plain`: the API that people write first, one message at a time, beside that of the peers.

Vivum's `await topic.send(x)` and `async for`, with bytes and with typed messages; pyzmq's `send` and `recv`, Zenoh's
`put` and callback with bytes. One sender, one receiver, in one run by turns.
"""

from collections.abc import Callable, Sequence
from typing import Any

from vivum.bench.cell import Cell
from vivum.bench.peers import Row, measured_row, median_row, system_of
from vivum.bench.systems import vivum_plain

PEERS = ("pyzmq", "zenoh")
OURS = {"vivum": False, "vivum typed": True}
"""Vivum's rows, and whether messages are typed."""


def compare_plain(size: int, seconds: float, rounds: int, progress: Callable[[str], None]) -> list[Row]:
    """Measure all systems by turns; return the median of each."""
    runs: dict[str, list[Row]] = {name: [] for name in (*PEERS, *OURS)}
    for number in range(rounds):
        for name, rows in runs.items():
            progress(f"{name}, {size} bytes, round {number + 1} of {rounds}")
            ours = OURS.get(name)
            system = system_of(name) if ours is None else vivum_plain
            cell = Cell(size, 1, seconds, options={} if ours is None else {"typed": ours})
            rows.append(measured_row(name, system, cell))
    return [median_row(rows) for rows in runs.values()]


def plain_ratios(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Compare both of Vivum's rates with the best peer's, which carries bytes."""
    rates = {row.system: row.per_s_min for row in rows}
    best = max(PEERS, key=lambda name: rates.get(name) or 0)
    best_per_s = rates.get(best)
    return [
        {
            "messages": "typed" if is_typed else "bytes",
            "best_peer": best if best_per_s else None,
            "best_peer_per_s": best_per_s,
            "to_best_peer": round((rates.get(name) or 0) / best_per_s, 3) if best_per_s else None,
        }
        for name, is_typed in OURS.items()
    ]
