"""How long tokens take to go round, and how often they do, for each level of rings."""

from statistics import fmean

from experiments.measuring.numbers import Numbers, percentile
from vivum.core.time import MILLISECOND
from vivum.protocols.qsm.machine import QsmMachine


class RoundLog:
    """The rounds of all rings, as their leaders see them. A round that is shorter than a sample may be missed."""

    def __init__(self) -> None:
        # For each ring: term and round seen last, and when that had come home.
        self._last: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        self._round_trips_ns: dict[int, list[int]] = {}
        self._intervals_ns: dict[int, list[int]] = {}

    def sample(self, now_ns: int, machine: QsmMachine) -> None:
        """Look at the rings that a node leads."""
        for (region, _), member in machine.regions.items():
            for ring in member.ladder.rings:
                if not ring.is_leader or not ring.round_trip_ns:
                    continue
                level = ring.plan.level
                key = (region, level, ring.plan.number)
                term, number, came_ns = self._last.get(key, (ring.term, ring.round, 0))
                if (term, number) == (ring.term, ring.round):
                    self._last.setdefault(key, (term, number, 0))
                    continue
                # The first round of a new leader was begun by another one: it cannot tell how long it took.
                if term == ring.term:
                    self._round_trips_ns.setdefault(level, []).append(ring.round_trip_ns)
                    if came_ns:
                        self._intervals_ns.setdefault(level, []).append(now_ns - came_ns)
                self._last[key] = (ring.term, ring.round, now_ns)

    def sum_up(self, seconds: float) -> Numbers:
        """Return means and percentiles, by level: 0 for rings of nodes, then rings of leaders."""
        numbers: Numbers = {"token_levels": len(self._round_trips_ns)}
        for level, times in self._round_trips_ns.items():
            times.sort()
            numbers[f"token_ms_{level}"] = fmean(times) / MILLISECOND
            numbers[f"token_ms_{level}_p50"] = percentile(times, 50) / MILLISECOND
            numbers[f"token_ms_{level}_p99"] = percentile(times, 99) / MILLISECOND
            numbers[f"token_rounds_per_s_{level}"] = len(times) / seconds
        for level, times in self._intervals_ns.items():
            times.sort()
            numbers[f"token_interval_ms_{level}_p50"] = percentile(times, 50) / MILLISECOND
            numbers[f"token_interval_ms_{level}_p99"] = percentile(times, 99) / MILLISECOND
        return numbers
