"""How long tokens take to go round, and how often they do, for each level of rings."""

from statistics import fmean

from experiments.measuring.numbers import Numbers, percentile
from vivum.core.time import MILLISECOND
from vivum.protocols.qsm.machine import QsmMachine
from vivum.protocols.rings.ring import Ring
from vivum.wire.tokens import Token


class RoundLog:
    """The rounds of all rings, as their leaders see them. A round that is shorter than a sample may be missed."""

    def __init__(self) -> None:
        # For each ring: term and round seen last, and when that was first seen; 0 if it was there from the beginning.
        self._last: dict[tuple[int, ...], tuple[int, int, int]] = {}
        self._round_trips_ns: dict[int, list[int]] = {}
        self._intervals_ns: dict[int, list[int]] = {}

    def sample(self, now_ns: int, machine: QsmMachine) -> None:
        """Look at the rings that a node leads."""
        for (region, view), member in machine.regions.items():
            # Rings of a view that was replaced run on for a while, mostly idle.
            for ring in member.ladder.rings if member.replaced_ns is None else ():
                if ring.is_leader and ring.round_trip_ns:
                    self._look_at(now_ns, (region, view, ring.plan.level, ring.plan.number), ring)

    def _look_at(self, now_ns: int, key: tuple[int, ...], ring: Ring[Token]) -> None:
        term, number, seen_ns = self._last.setdefault(key, (ring.term, ring.round, 0))
        if (term, number) == (ring.term, ring.round):
            return
        # The first round of a new leader was begun by another one: it cannot tell how long it took.
        if term == ring.term:
            self._round_trips_ns.setdefault(ring.plan.level, []).append(ring.round_trip_ns)
            if seen_ns:
                self._intervals_ns.setdefault(ring.plan.level, []).append(now_ns - seen_ns)
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
