"""How long data had waited in this host, by clocks of which one may be set at any time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivum.core.time import MILLISECOND, SECOND
from vivum.runtime import udp

if not udp.BATCHED:
    pytest.skip("the compiled way in and out was not built, or VIVUM_PURE=1 is set", allow_module_level=True)

waited_since = udp._datagrams.waited_since

WALL_NS = 1_700_000_000 * SECOND
"""How far the wall clock is ahead of the monotonic one, before it is set."""


def told(empty_ns: int, came_ns: int, now_ns: int, steps: list[tuple[int, int]]) -> int:
    """Return what is told of a datagram if the wall clock is set by so much at each of these times."""

    def wall_ns(at_ns: int) -> int:
        return WALL_NS + at_ns + sum(by_ns for when_ns, by_ns in steps if when_ns <= at_ns)

    found: int = waited_since(wall_ns(came_ns), wall_ns(now_ns), now_ns, wall_ns(empty_ns), empty_ns)
    return found


def test_a_step_of_the_clock_while_a_datagram_waits_does_not_make_its_wait_longer() -> None:
    """Set forward by 2 s, all that followed looked 2 s late: the shortest delay ever was that of this datagram."""
    empty_ns, came_ns, now_ns = SECOND, SECOND + 5 * MILLISECOND, SECOND + 6 * MILLISECOND
    assert told(empty_ns, came_ns, now_ns, []) == MILLISECOND
    assert told(empty_ns, came_ns, now_ns, [(came_ns + 1, 2 * SECOND)]) == MILLISECOND
    assert told(empty_ns, came_ns, now_ns, [(came_ns + 1, -2 * SECOND)]) == 0
    assert told(empty_ns, came_ns, now_ns, [(came_ns - 1, 2 * SECOND)]) == 0


TIMES = st.integers(0, 10 * SECOND)


@given(st.tuples(TIMES, TIMES, TIMES).map(sorted), st.lists(st.tuples(TIMES, st.integers(-3 * SECOND, 3 * SECOND))))
def test_a_wait_is_never_told_longer_than_the_socket_was_looked_at_and_is_right_if_no_clock_was_set(
    times: list[int], steps: list[tuple[int, int]]
) -> None:
    empty_ns, came_ns, now_ns = times
    assert 0 <= told(empty_ns, came_ns, now_ns, steps) <= now_ns - empty_ns
    for one in steps:
        assert told(empty_ns, came_ns, now_ns, [one]) <= now_ns - came_ns
    assert told(empty_ns, came_ns, now_ns, []) == now_ns - came_ns
