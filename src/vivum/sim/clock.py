"""Clocks that drift: the local time of a simulated host.

The world has one true time. A host's clock starts at its own offset and runs faster or slower by some parts per
million, as quartz does. Arithmetic is on integers, so that the trace is the same on every machine.
"""

MILLION = 1_000_000


class DriftingClock:
    """Converts between true time and the time of one host, both in nanoseconds."""

    __slots__ = ("drift_ppm", "offset_ns")

    def __init__(self, offset_ns: int = 0, drift_ppm: int = 0) -> None:
        assert drift_ppm > -MILLION, "a clock does not run backwards"
        self.offset_ns = offset_ns
        self.drift_ppm = drift_ppm

    def local_ns(self, true_ns: int) -> int:
        """Return what the host's clock shows at a true time."""
        if not self.drift_ppm:
            return true_ns + self.offset_ns
        return true_ns + self.offset_ns + true_ns * self.drift_ppm // MILLION

    def true_ns(self, local_ns: int) -> int:
        """Return the earliest true time at which the host's clock shows at least this: when its timer must fire."""
        if not self.drift_ppm:
            return local_ns - self.offset_ns
        # The first t with t * (million + drift) // million >= wanted.
        wanted = local_ns - self.offset_ns
        return -(-wanted * MILLION // (MILLION + self.drift_ppm))
