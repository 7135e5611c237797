"""Clocks that drift: there and back again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from vivum.core.time import SECOND
from vivum.sim.clock import DriftingClock

CLOCKS = st.builds(DriftingClock, st.integers(0, 10**18), st.integers(-999_999, 10_000))
TIMES = st.integers(0, 10**18)
DETERMINISTIC = settings(derandomize=True, database=None, deadline=None)


def test_a_true_clock_reads_the_true_time() -> None:
    clock = DriftingClock()
    assert clock.local_ns(123) == 123
    assert clock.true_ns(123) == 123


def test_a_fast_clock_gains_its_parts_per_million() -> None:
    clock = DriftingClock(offset_ns=5, drift_ppm=200)
    assert clock.local_ns(SECOND) == SECOND + 200_000 + 5


@DETERMINISTIC
@given(CLOCKS, TIMES)
def test_a_timer_fires_at_the_first_true_time_at_which_the_clock_has_reached_it(
    clock: DriftingClock, local_ns: int
) -> None:
    true_ns = clock.true_ns(local_ns)
    assert clock.local_ns(true_ns) >= local_ns
    assert clock.local_ns(true_ns - 1) < local_ns


@DETERMINISTIC
@given(CLOCKS, TIMES)
def test_reading_a_clock_and_going_back_never_gives_a_later_time(clock: DriftingClock, true_ns: int) -> None:
    assert clock.true_ns(clock.local_ns(true_ns)) <= true_ns


@DETERMINISTIC
@given(CLOCKS, TIMES, st.integers(0, 10**9))
def test_a_clock_never_runs_backwards(clock: DriftingClock, true_ns: int, step_ns: int) -> None:
    assert clock.local_ns(true_ns + step_ns) >= clock.local_ns(true_ns)
