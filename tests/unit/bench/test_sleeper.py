"""When a sleeper was stopped, and when it had recovered."""

import pytest

from vivum.bench.counting import SLOT_S
from vivum.bench.sleeper import FIRST_S, Sleeps, recovered_s

SLOTS_A_SECOND = round(1 / SLOT_S)


def test_it_sleeps_once_in_each_period() -> None:
    first, second = Sleeps(0.5, 5.0, 2).times
    assert first == (FIRST_S, FIRST_S + 0.5)
    assert second == (FIRST_S + 5.0, FIRST_S + 5.5)


@pytest.mark.parametrize("never_got", [0, 300])
def test_it_has_recovered_when_it_is_as_far_as_it_came(never_got: int) -> None:
    # Asleep from 1 to 2 s, it goes at half of the pace until 4 s, has all that it gets then, and keeps pace.
    healthy = [10] * (6 * SLOTS_A_SECOND)
    sleeper = [10] * SLOTS_A_SECOND + [0] * SLOTS_A_SECOND + [5] * (2 * SLOTS_A_SECOND) + [10] * (2 * SLOTS_A_SECOND)
    sleeper[4 * SLOTS_A_SECOND] += 20 * SLOTS_A_SECOND - never_got
    assert recovered_s(healthy, sleeper, 0, [(1.0, 2.0)]) == [2.0]
