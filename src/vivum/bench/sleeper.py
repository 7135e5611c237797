"""`vivum bench sleeper`: one receiver sleeps for a while in each period; what it gets, and what the healthy get.

Hosts are network namespaces with slow links, as in `vivum bench link`. The sleeper is stopped by SIGSTOP. Shares are of
all messages that were sent, from the first to the last.
"""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from vivum.bench.cell import Cell, Outcome, measure
from vivum.bench.counting import SLOT_S
from vivum.bench.crew import Crew, Worker
from vivum.bench.link import FAST_MBIT, WARM_S
from vivum.bench.namespaces import Cut, NetnsNetwork, capacity_per_s, require_hosts
from vivum.bench.throughput import our_system

FIRST_S = 0.5
"""From the beginning of the window to the first sleep."""

BATCH_MIN = 5
BATCHES_PER_S = 2000
"""Where the rate is given, messages are handed over in batches: at most so many a second."""

CAUGHT_UP_S = 0.1
"""A sleeper that is behind by less than what comes in this time has recovered."""

SLOTS_AT_END = 10
"""How many slots before the next sleep show how far the sleeper came."""


class Sleeps:
    """Stops the last receiver once in each period."""

    def __init__(self, sleep_s: float, every_s: float, periods: int) -> None:
        self.times = [(FIRST_S + every_s * at, FIRST_S + every_s * at + sleep_s) for at in range(periods)]
        self._done = 0

    def __call__(self, _crew: Crew, receivers: list[Worker], since_s: float) -> None:
        """Stop it, or let it go on, if that is due."""
        acts = [at for pair in self.times for at in pair]
        while self._done < len(acts) and since_s >= acts[self._done]:
            os.kill(receivers[-1].process.pid, signal.SIGCONT if self._done % 2 else signal.SIGSTOP)
            self._done += 1


def measure_sleeper(
    cell: Cell,
    rate: int,
    offered_percent: int,
    sleep_s: float,
    every_s: float,
    periods: int,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Run the benchmark once; raises `HostError` where it cannot be. The rate of each link is in Mbit/s.

    What is offered is in percent of what a link could carry with each message in a datagram of its own; 0: as much as
    the system takes.
    """
    require_hosts("bench sleeper")
    offered_per_s = capacity_per_s(rate, cell.size) * offered_percent / 100
    batch = max(BATCH_MIN, round(offered_per_s / BATCHES_PER_S))
    paced = {"per_s": offered_per_s, "batch": batch} if offered_percent else {}
    cut = Cut.SWITCH if rate >= FAST_MBIT else Cut.HOST
    progress(f"one of {cell.receivers} hosts sleeps {sleep_s:g} s in every {every_s:g} s, {periods} times")
    sleeps = Sleeps(sleep_s, every_s, periods)
    with NetnsNetwork(2 + cell.receivers, rate, cut=cut) as network:
        cell = replace(
            cell, places=network.places, seconds=FIRST_S + every_s * periods, options={**cell.options, **paced}
        )
        outcome = measure(our_system(), cell, sleeps, warm_s=WARM_S)
    result: dict[str, Any] = {"rate_mbit": rate, "size": cell.size, "receivers": cell.receivers}
    result |= {"sleep_s": sleep_s, "every_s": every_s, "periods": periods, "offered_percent": offered_percent}
    return result | _figures(outcome, sleeps, offered_per_s or capacity_per_s(rate, cell.size))


def _figures(outcome: Outcome, sleeps: Sleeps, offered_per_s: float) -> dict[str, Any]:
    *healthy, sleeper = outcome.received
    sent = max(1, outcome.sent["sent"])
    slots_before = sleeper["slots_before"]
    return {
        "healthy_per_s_min": round(min(each["delivered_per_s"] for each in healthy)),
        "healthy_to_offered": round(min(each["delivered_per_s"] for each in healthy) / offered_per_s, 4),
        "healthy_share_min": round(min(_share(each, sent) for each in healthy), 4),
        "sleeper_share": round(_share(sleeper, sent), 4),
        "sleeper_lives": sleeper["lives"],
        "sleeper_lost": sleeper["lost"],
        "sleeper_told": sleeper["missed"],
        "recovered_s": recovered_s(healthy[0]["by_slot"], sleeper["by_slot"], slots_before, sleeps.times),
        "healthy_longest_pause_s": max(each["longest_pause_s"] for each in healthy),
        "healthy_lives": [each["lives"] for each in healthy],
        "duplicated": outcome.total("duplicated"),
        "out_of_order": outcome.total("out_of_order"),
        "lost_in_silence": outcome.lost_in_silence,
        "repairs_sent": sum(each["counters"]["repairs_sent"] for each in (*outcome.received, outcome.sent)),
        "repairs_wasted": sum(each["counters"]["repairs_wasted"] for each in outcome.received),
        "cpu_ns_sender": round(outcome.cpu_ns_sender),
        "cpu_ns_receiver": round(outcome.cpu_ns_receiver),
        "starved": round(outcome.starved, 2),
    }


def _share(received: dict[str, Any], sent: int) -> float:
    return float(received["received"] - received["duplicated"]) / sent


def recovered_s(
    healthy: Sequence[int], sleeper: Sequence[int], slots_before: int, sleeps: Sequence[tuple[float, float]]
) -> list[float]:
    """Return, for each sleep, how long after it the sleeper was as far as it came before the next one, in seconds.

    Given are messages in each slot at a healthy receiver and at the sleeper. What it never got does not count.
    """
    behind = [far - near for far, near in zip(accumulate(healthy), accumulate(sleeper), strict=True)]
    ends = [start for start, _ in sleeps[1:]] + [(len(behind) - slots_before) * SLOT_S]
    found = []
    for (_, woke_s), end_s in zip(sleeps, ends, strict=True):
        woke, end = (slots_before + round(at_s / SLOT_S) for at_s in (woke_s, end_s))
        last = behind[woke:end]
        slack = sum(healthy[woke:end]) / max(1, len(last)) * CAUGHT_UP_S / SLOT_S
        # The end itself is a moment; a burst may be on its way then.
        goal = min(last[-SLOTS_AT_END:]) + slack
        found.append(round(next(at for at, each in enumerate(last) if each <= goal) * SLOT_S, 2))
    return found
