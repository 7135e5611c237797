"""`vivum bench peers`: the same work through the peers, through a bare socket and through Vivum, in one run.

All on this machine, or each process on a host of its own (`vivum.bench.namespaces`).
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from statistics import median
from types import ModuleType
from typing import Any

from vivum.bench.cell import Cell, measure
from vivum.bench.crew import MissingError
from vivum.bench.hosts import on_hosts
from vivum.bench.namespaces import require_hosts
from vivum.bench.throughput import our_system
from vivum.core.errors import HostError, UsageError

SYSTEMS: dict[str, str] = {
    "raw": "vivum.bench.systems.raw_multicast",
    "pyzmq": "vivum.bench.systems.zeromq",
    "zenoh": "vivum.bench.systems.zenoh_peers",
    "nats": "vivum.bench.systems.nats_broker",
    "redis": "vivum.bench.systems.redis_broker",
    "vivum": "",
}
"""Name on the command line, and module. Vivum's is chosen by `our_system`."""

SIZES = (100, 1000)
RECEIVERS = (1, 4)

PEERS = ("pyzmq", "zenoh", "nats", "redis")

ON_ONE_MACHINE = ("nats", "redis")
"""Peers that are not measured between hosts."""


@dataclass(frozen=True, slots=True)
class Row:
    """One system in one cell."""

    system: str
    size: int
    receivers: int
    per_s_min: int | None
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    skipped: str = ""
    cpu_ns_sender: int = 0
    cpu_ns_receiver: int = 0
    starved: float = 0.0
    settled_s: float | None = None
    pause_s_max: float = 0.0
    rates: tuple[int, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Make the row for machines."""
        if self.skipped:
            return {"system": self.system, "size": self.size, "receivers": self.receivers, "skipped": self.skipped}
        return {
            "system": self.system,
            "size": self.size,
            "receivers": self.receivers,
            "delivered_per_s_min": self.per_s_min,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "out_of_order": self.out_of_order,
            "cpu_ns_sender": self.cpu_ns_sender,
            "cpu_ns_receiver": self.cpu_ns_receiver,
            "starved": self.starved,
            "settled_s": self.settled_s,
            "pause_s_max": self.pause_s_max,
            "rates": list(self.rates),
        }


def chosen_systems(only: Sequence[str]) -> list[str]:
    """Check the names that somebody wants; all if none is named."""
    for name in only:
        if name not in SYSTEMS:
            raise UsageError(f"no system is called {name!r}; there are {', '.join(SYSTEMS)}")
    return [name for name in SYSTEMS if name in only or not only]


def compare(
    names: Sequence[str],
    cells: Sequence[tuple[int, int]],
    seconds: float,
    ours: dict[str, Any],
    progress: Callable[[str], None],
    rounds: int = 1,
    hosts: bool = False,
) -> Iterator[Row]:
    """Measure every system in every cell, cell by cell, so that what is compared ran side by side.

    With several rounds the systems take turns in each cell, and the median of each counts. `ours` are options of
    Vivum. With `hosts` each process has a host of its own; raises `HostError` where that cannot be.
    """
    if hosts:
        require_hosts("bench peers --hosts")
    for size, receivers in cells:
        runs: dict[str, list[Row]] = {name: [] for name in names}
        for number in range(rounds):
            for name in names:
                of_rounds = f", round {number + 1} of {rounds}" if rounds > 1 else ""
                progress(f"{name}, {size} bytes, {receivers} receiver{'s' if receivers > 1 else ''}{of_rounds}")
                cell = Cell(size, receivers, seconds, options=ours if name == "vivum" else {})
                runs[name].append(_row(name, cell, hosts))
        yield from map(median_row, runs.values())


def median_row(rows: list[Row]) -> Row:
    """Take the run with the median rate; what went wrong in any run counts."""
    ran = sorted((row for row in rows if row.per_s_min is not None), key=lambda row: row.per_s_min or 0)
    if not ran:
        return rows[0]
    return replace(
        ran[(len(ran) - 1) // 2],
        lost=sum(row.lost for row in ran),
        duplicated=sum(row.duplicated for row in ran),
        out_of_order=sum(row.out_of_order for row in ran),
        starved=max(row.starved for row in ran),
        settled_s=None if any(row.settled_s is None for row in ran) else median(row.settled_s or 0.0 for row in ran),
        pause_s_max=max(row.pause_s_max for row in ran),
        rates=tuple(row.per_s_min or 0 for row in rows),
    )


def _row(name: str, cell: Cell, hosts: bool) -> Row:
    size, receivers = cell.size, cell.receivers
    if hosts and name in ON_ONE_MACHINE:
        return Row(name, size, receivers, None, skipped="its server is measured on one machine only, not between hosts")
    return measured_row(name, system_of(name), cell, hosts)


def system_of(name: str) -> ModuleType:
    """Return the way in which a system is measured."""
    return our_system() if name == "vivum" else importlib.import_module(SYSTEMS[name])


def measured_row(name: str, system: ModuleType, cell: Cell, hosts: bool = False) -> Row:
    """Measure one cell; a system that is not there, or fails, is skipped with the reason."""
    size, receivers = cell.size, cell.receivers
    try:
        with on_hosts(cell) if hosts else nullcontext(cell) as placed:
            outcome = measure(system, placed)
    except MissingError as error:
        return Row(name, size, receivers, None, skipped=str(error))
    except HostError as error:
        return Row(name, size, receivers, None, skipped=f"failed: {error}")
    return Row(
        name,
        size,
        receivers,
        round(outcome.per_s_min),
        outcome.total("lost"),
        outcome.total("duplicated"),
        outcome.total("out_of_order"),
        cpu_ns_sender=round(outcome.cpu_ns_sender),
        cpu_ns_receiver=round(outcome.cpu_ns_receiver),
        starved=round(outcome.starved, 2),
        settled_s=outcome.settled_s,
        pause_s_max=outcome.pause_s_max,
    )


def ratios(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Compare Vivum with the best peer and with the raw limit, in every cell that has what it takes."""
    found = []
    for size, receivers in dict.fromkeys((row.size, row.receivers) for row in rows):
        rates = {
            row.system: row.per_s_min
            for row in rows
            if (row.size, row.receivers) == (size, receivers) and row.per_s_min
        }
        peers = {name: rate for name, rate in rates.items() if name in PEERS}
        best = max(peers, key=lambda name: peers[name]) if peers else None
        ours, raw = rates.get("vivum"), rates.get("raw")
        found.append(
            {
                "size": size,
                "receivers": receivers,
                "best_peer": best,
                "best_peer_per_s": peers[best] if best else None,
                "to_best_peer": round(ours / peers[best], 3) if ours and best else None,
                "to_raw": round(ours / raw, 3) if ours and raw else None,
                "best_peer_to_raw": round(peers[best] / raw, 3) if raw and best else None,
            }
        )
    return found
