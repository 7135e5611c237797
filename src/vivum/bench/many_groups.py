"""`vivum bench groups`: the rate to many groups against the rate to one, measured by turns.

Two runs of the same work a minute apart may differ by half on a machine that others share. So both are run several
times, by turns, and their medians are compared.
"""

from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

from vivum.bench.cell import Cell
from vivum.bench.throughput import measure_throughput

CPU = ("cpu_ns_sender", "cpu_ns_receiver")


def measure_groups(cell: Cell, rounds: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure the cell with all its groups and with one, in every round; compare the medians."""
    one, many = replace(cell, groups=1), cell
    runs: dict[int, list[dict[str, Any]]] = {1: [], cell.groups: []}
    for number in range(rounds):
        for each in (one, many) if number % 2 else (many, one):
            progress(f"round {number + 1} of {rounds}: {each.groups} group{'s' if each.groups > 1 else ''}")
            runs[each.groups].append(measure_throughput(each))
    rates = {groups: [run["delivered_per_s_min"] for run in found] for groups, found in runs.items()}
    every = [run for found in runs.values() for run in found]
    return {
        "ratio": round(median(rates[cell.groups]) / max(1, median(rates[1])), 3),
        "delivered_per_s_many": round(median(rates[cell.groups])),
        "delivered_per_s_one": round(median(rates[1])),
        "rates_many": rates[cell.groups],
        "rates_one": rates[1],
        **{key: sum(run[key] for run in every) for key in ("lost", "duplicated", "out_of_order", "lost_in_silence")},
        "told": [text for run in every for text in run["told"]][:4],
        "rss_kb_per_group": max(run["rss_kb_per_group"] for run in runs[cell.groups]),
        "join_s": max(run["join_s"] for run in runs[cell.groups]),
        **{f"{key}_many": round(median(run[key] for run in runs[cell.groups])) for key in CPU},
        **{f"{key}_one": round(median(run[key] for run in runs[1])) for key in CPU},
        "starved": max(run["starved"] for run in every),
        "size": cell.size,
        "receivers": cell.receivers,
        "groups": cell.groups,
        "seconds": cell.seconds,
        "rounds": rounds,
    }
