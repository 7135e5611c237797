"""Seed 001, section 2: members of a region share recovery, whatever the number of their groups.

The cost of the simulator is counted in calls of functions, Python's and C's, in each step: the same on every machine.
"""

import sys
from types import FrameType

import pytest

from vivum.core.time import MILLISECOND
from vivum.sim.scenario import parse_scenario
from vivum.sim.world import World

WARM_UP_NS = 1700 * MILLISECOND
"""By then there was a message for each of 8,192 groups."""

MEASURED_NS = 100 * MILLISECOND


def calls_per_step(groups: int) -> float:
    """Run ten nodes that are in all groups, with one sender whose messages go to each group in turn."""
    scenario = parse_scenario(
        {
            "protocol": "qsm",
            "nodes": 10,
            "duration": "2s",
            "checkers": [],
            "groups": {"pattern": "identical", "count": groups},
            "network": {"bandwidth": "100Mbit"},
            "traffic": [{"senders": 1, "rate": 8000, "size": 100, "start": "500ms"}],
        },
        "groups",
    )
    world = World(scenario, 1, frames=False, checked=False)
    world.start()
    world.advance_to(WARM_UP_NS)
    calls, steps = 0, world.scheduler.events

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        world.advance_to(WARM_UP_NS + MEASURED_NS)
    finally:
        sys.setprofile(None)
    steps = world.scheduler.events - steps
    assert steps > 5000
    return calls / steps


@pytest.mark.slow
def test_a_step_of_the_simulator_costs_the_same_with_thousands_of_groups_as_with_few() -> None:
    one, few, many = calls_per_step(1), calls_per_step(256), calls_per_step(8192)
    assert many == pytest.approx(few, rel=0.005)
    # Frames with messages of several groups have several runs, however many groups there are.
    assert many == pytest.approx(one, rel=0.05)
