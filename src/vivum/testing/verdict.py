"""What became of a simulated world: which promises were broken, and which programs failed."""

from dataclasses import dataclass

from vivum.checkers.checker import Violation


@dataclass(frozen=True, slots=True)
class WorldVerdict:
    """The judgement of one run. `str()` of it is a report for people."""

    seed: int
    trace_hash: str
    """The same for every run of the same world from the same seed."""

    simulated_s: float
    sent: int
    """Messages that topics accepted."""

    delivered: int
    violations: tuple[Violation, ...]
    """Promises of topics that were broken."""

    failures: tuple[str, ...]
    """Programs that raised what nobody caught, and tasks and callbacks that did."""

    @property
    def holds(self) -> bool:
        """Whether every promise was kept and no program failed."""
        return not self.violations and not self.failures

    def check(self) -> None:
        """Raise `AssertionError`, with the report, unless the verdict holds."""
        if not self.holds:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        head = (
            f"seed {self.seed}: {self.sent:,} messages, {self.delivered:,} deliveries in {self.simulated_s:.1f} s "
            f"of virtual time, trace {self.trace_hash[:12]}"
        )
        if self.holds:
            return f"{head}\nall promises kept, no program failed"
        broken = [f"broken promise: {violation}" for violation in self.violations]
        return "\n".join([head, *broken, *(f"failure: {text}" for text in self.failures)])
