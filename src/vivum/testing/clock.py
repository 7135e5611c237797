"""A clock that stands still until it is told to move."""


class VirtualClock:
    """Time for tests, in integer nanoseconds."""

    __slots__ = ("_now_ns",)

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    @property
    def now_ns(self) -> int:
        """The time."""
        return self._now_ns

    def advance_to(self, at_ns: int) -> None:
        """Move on to a time, which is not in the past."""
        if at_ns < self._now_ns:
            raise ValueError(f"a clock does not go back: it is {self._now_ns}, asked for {at_ns}")
        self._now_ns = at_ns

    def advance(self, by_ns: int) -> None:
        """Move on by a duration."""
        self.advance_to(self._now_ns + by_ns)
