"""Faults that last longer than anybody is waited for: members are dropped, senders given up, and come back.

The swarm's worlds are seconds long and seldom get there.
"""

import pytest

from qsm_worlds.worlds import make_up_long, run_checked
from vivum.checkers.checker import ENDS_FROM_OUTSIDE, Checker
from vivum.observe.trace import NodeStopped


class LostLives(Checker):
    """Counts lives that the protocol ended."""

    name = "lost_lives"

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def on_node_stopped(self, record: NodeStopped) -> None:
        self.count += record.cause not in ENDS_FROM_OUTSIDE


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [
        *(1, 2, 5, 6, 7, 11, 14, 18),
        pytest.param(10, id="what a member held back was confirmed, and its life ended"),
        pytest.param(84, id="a dropped sender that had not heard of it was taken for a new one behind a hole"),
    ],
)
def test_a_long_world_holds(seed: int) -> None:
    lost = LostLives()
    assert run_checked(make_up_long(seed), seed, lost)[1] == []
    assert lost.count > 0


TWO_LIVES = "a fault that goes on for long costs a node two lives; the bounds allow one for each fault"
OPEN = {
    102: "where who is slow is dropped after 0.3 s, so is who waits for repairs by a slow sender",
    146: TWO_LIVES,
    158: "a sender that slept for 13 s gives up what its region did not confirm; the bounds do not know of it",
    245: TWO_LIVES,
    276: "a node that was cut off takes over with a stale copy and lives on: primary partition is not promised",
    278: "a receiver lets a quiet region view go before it hears of a stream into it, and misses that in silence",
}


@pytest.mark.soak
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=[pytest.mark.xfail(strict=True, reason=OPEN[seed])] if seed in OPEN else [])
        for seed in range(100, 300)
    ],
)
def test_many_long_worlds_hold(seed: int) -> None:
    assert run_checked(make_up_long(seed), seed)[1] == []
