"""`vivum bench consensus`: a log of three processes, in memory and with fsync, beside PySyncObj in one run."""

import importlib.util
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from vivum.bench.crew import Crew, Worker, free_port
from vivum.core.errors import HostError

REPLICAS = 3
WARM_S = 0.5
OURS = "vivum.bench.systems.vivum_replicas:replicate"
PEER = "vivum.bench.systems.pysyncobj_replicas:replicate"

WINDOW = 8192
"""Commands under way at the leader."""

PEER_WINDOW = 20_000
"""The same for PySyncObj: of 2,000, 20,000 and 100,000 the best for it, with a period of 10 ms (its default of 100 ms
makes it commit one window in each)."""

BATCH = 256
"""Commands that a client hands over at once."""

LEADER_S_MAX = 20.0
"""A group that has no leader by then will have none."""


def measure_consensus(
    size: int, seconds: float, rounds: int, progress: Callable[[str], None], folder: str | None = None
) -> dict[str, Any]:
    """Measure all three, by turns; return medians, and ratios to PySyncObj."""
    rates: dict[str, list[float]] = {"": [], "_fsync": [], "pysyncobj": []}
    times: dict[str, list[float]] = {"": [], "_fsync": [], "pysyncobj": []}
    skipped = "" if importlib.util.find_spec("pysyncobj") else "pysyncobj is not installed (pip install pysyncobj)"
    for number in range(rounds):
        for name in rates:
            if name == "pysyncobj" and skipped:
                continue
            progress(f"{name.strip('_') or 'in memory'}, round {number + 1} of {rounds}")
            if name == "pysyncobj":
                rate, singles = _measure_peer(size, seconds)
            else:
                rate, singles = _measure_ours(size, seconds, folder, is_durable=name == "_fsync")
            rates[name].append(rate)
            times[name] += singles
    result: dict[str, Any] = {"size": size, "replicas": REPLICAS, "seconds": seconds, "rounds": rounds}
    for name in ("", "_fsync"):
        result[f"commits_per_s{name}"] = round(median(rates[name]))
        result |= _percentiles(f"commit{name}_us", times[name])
    if skipped:
        return {**result, "skipped": skipped}
    peer = median(rates["pysyncobj"])
    result["pysyncobj_commits_per_s"] = round(peer)
    result |= _percentiles("pysyncobj_commit_us", times["pysyncobj"])
    result["to_pysyncobj"] = round(median(rates[""]) / peer, 2)
    result["to_pysyncobj_fsync"] = round(median(rates["_fsync"]) / peer, 2)
    return result


def _percentiles(name: str, times_us: Sequence[float]) -> dict[str, float]:
    cuts = quantiles(times_us, n=100)
    return {f"{name}_p50": round(cuts[49], 1), f"{name}_p99": round(cuts[98], 1)}


def _measure_ours(size: int, seconds: float, folder: str | None, *, is_durable: bool) -> tuple[float, list[float]]:
    with tempfile.TemporaryDirectory(prefix="vivum-bench-", dir=folder) as state, Crew() as crew:
        for number in range(1, REPLICAS + 1):
            where = str(Path(state) / str(number)) if is_durable else None
            options = {"id": number, "size": size, "batch": BATCH, "state": where}
            crew.start(f"replica-{number}", OURS, options)
        places = [worker.hear("place")["place"] for worker in crew.workers]
        return _drive(crew, places, WINDOW, seconds, singles=300 if is_durable else 2000)


def _measure_peer(size: int, seconds: float) -> tuple[float, list[float]]:
    places = [f"127.0.0.1:{free_port()}" for _ in range(REPLICAS)]
    with Crew() as crew:
        for number, place in enumerate(places, 1):
            others = [each for each in places if each != place]
            crew.start(f"replica-{number}", PEER, {"own": place, "others": others, "size": size})
        for worker in crew.workers:
            worker.hear("place")
        return _drive(crew, places, PEER_WINDOW, seconds, singles=300)


def _drive(
    crew: Crew, places: Sequence[Any], window: int, seconds: float, *, singles: int
) -> tuple[float, list[float]]:
    for worker in crew.workers:
        worker.tell(places=list(places))
    leader = _leader(crew)
    leader.tell(pipeline=[window, WARM_S, seconds])
    heard = leader.hear("commits_per_s")
    leader.tell(one_by_one=singles)
    times: list[float] = leader.hear("times_us")["times_us"]
    _check_counts(crew, heard["total"])
    for worker in crew.workers:
        worker.tell(end=True)
    return heard["commits_per_s"], times


def _leader(crew: Crew) -> Worker:
    deadline = time.monotonic() + LEADER_S_MAX
    while time.monotonic() < deadline:
        for worker, said in crew.hear_any(0.1):
            if "leads" in said:
                return worker
    raise HostError(f"no replica led within {LEADER_S_MAX:g} s")


def _check_counts(crew: Crew, total: int) -> None:
    """Refuse a rate of a log that did not reach all replicas."""
    deadline = time.monotonic() + LEADER_S_MAX
    for worker in crew.workers:
        while True:
            worker.tell(count=True)
            if worker.hear("count")["count"] >= total:
                break
            if time.monotonic() > deadline:
                raise HostError(f"{worker.name} did not apply {total:,} commands within {LEADER_S_MAX:g} s")
            time.sleep(0.05)
