"""`vivum bench throughput`: how fast a sender, or several, reach all receivers through Vivum, and what it costs.

With `stop_one_s` one receiver is stopped by SIGSTOP in the middle of the window. Reported are the rate of the others
before it and during it, and what became of the one that was stopped: did it catch up, or was it told that it was
dropped.
"""

import os
import signal
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vivum.bench.cell import Cell, Outcome, measure
from vivum.bench.counting import SLOT_S
from vivum.bench.crew import Crew, Worker
from vivum.bench.systems import vivum_topics
from vivum.core.errors import UsageError

Progress = Callable[[str], None]

MB = 1024
"""KiB in what is called MB here: 2**20 bytes."""


def our_system() -> ModuleType:
    """Return the way in which Vivum is measured."""
    return vivum_topics


class _Stop:
    """Stops the last receiver once, a third into the window, and lets it go on after a while."""

    def __init__(self, stop_s: float, window_s: float) -> None:
        self.begin_s = window_s / 3
        self.end_s = self.begin_s + stop_s
        self._is_stopped = False
        self._is_done = False

    def __call__(self, _crew: Crew, receivers: list[Worker], since_s: float) -> None:
        pid = receivers[-1].process.pid
        if not self._is_stopped and since_s >= self.begin_s:
            os.kill(pid, signal.SIGSTOP)
            self._is_stopped = True
        elif self._is_stopped and not self._is_done and since_s >= self.end_s:
            os.kill(pid, signal.SIGCONT)
            self._is_done = True


def measure_throughput(cell: Cell, stop_one_s: float = 0.0) -> dict[str, Any]:
    """Run the benchmark once; the result has the keys that `vivum bench throughput --json` prints."""
    if stop_one_s and cell.receivers < 2:
        raise UsageError("--stop-one needs at least two receivers: one is stopped, the others are looked at")
    if stop_one_s and cell.seconds < 3 * stop_one_s:
        raise UsageError(f"--stop-one {stop_one_s:g} needs --seconds {3 * stop_one_s:g} or more, to compare with")
    stop = _Stop(stop_one_s, cell.seconds) if stop_one_s else None
    outcome = measure(our_system(), cell, stop)
    result = _as_result(outcome, cell)
    if stop is not None:
        result["stop_one"] = _effect_of(stop, outcome)
    return result


def _as_result(outcome: Outcome, cell: Cell) -> dict[str, Any]:
    sender, receivers = outcome.senders[0], outcome.receivers
    joins = [each for each in outcome.met if "rss_kb_joined" in each]
    grown = max((each["rss_kb_joined"] - each["rss_kb_before"] for each in joins), default=0)
    slowest = max(receivers, key=lambda each: max(each.rss_kb))
    return {
        "delivered_per_s_min": round(outcome.per_s_min),
        "delivered_per_s_mean": round(outcome.per_s_mean),
        "sent_per_s": round(outcome.sent["sent_per_s"]),
        "lost": outcome.total("lost"),
        "duplicated": outcome.total("duplicated"),
        "out_of_order": outcome.total("out_of_order"),
        "rss_mb_sender": round(max(sender.rss_kb) / MB, 1),
        "rss_mb_receiver_max": round(max(slowest.rss_kb) / MB, 1),
        "rss_mb_sender_start": round(sender.rss_kb[0] / MB, 1),
        "rss_mb_sender_end": round(sender.rss_kb[-1] / MB, 1),
        "rss_mb_receiver_start": round(slowest.rss_kb[0] / MB, 1),
        "rss_mb_receiver_end": round(slowest.rss_kb[-1] / MB, 1),
        "rss_kb_per_group": round(grown / cell.groups, 3),
        "join_s": round(outcome.join_s, 3),
        "cores_sender": round(max(each.user + each.kernel for each in outcome.used_senders) / cell.seconds, 2),
        "cores_receiver_max": round(max(each.user + each.kernel for each in outcome.used_receivers) / cell.seconds, 2),
        "cpu_ns_sender": round(outcome.cpu_ns_sender),
        "cpu_ns_receiver": round(outcome.cpu_ns_receiver),
        "starved": round(outcome.starved, 2),
        "lost_in_silence": outcome.lost_in_silence,
        "told": outcome.told,
        "settled_s": outcome.settled_s,
        "longest_pause_s": outcome.pause_s_max,
        "size": cell.size,
        "receivers": cell.receivers,
        "senders": cell.senders,
        "groups": cell.groups,
        "seconds": cell.seconds,
    }


def _effect_of(stop: _Stop, outcome: Outcome) -> dict[str, Any]:
    """Compare what the others got while one was stopped with what they got before."""
    before, during = [], []
    for each in outcome.received[:-1]:
        slots = each["by_slot"][each["slots_before"] :]
        first, last = round(stop.begin_s / SLOT_S), round(stop.end_s / SLOT_S)
        before.append(sum(slots[:first]) / max(1, first) / SLOT_S)
        during.append(sum(slots[first:last]) / max(1, last - first) / SLOT_S)
    stopped = outcome.received[-1]
    return {
        "others_before_per_s": round(min(before)),
        "others_during_per_s": round(min(during)),
        "others_ratio": round(min(during) / max(1.0, min(before)), 3),
        "stopped_caught_up": stopped["lost"] == 0,
        "stopped_was_told": bool(stopped.get("told", False)),
        "stopped_lost": stopped["lost"],
    }
