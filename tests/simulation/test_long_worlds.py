"""Faults that last longer than anybody is waited for: members are dropped, senders given up, and come back.

The swarm's worlds are seconds long and never get there. Seeds 6, 10, 11, 18 and 19 once lost messages in silence:
what a receiver gave up at the end of a stream, and what a sender released while a member was not waited for.
"""

import msgspec
import pytest

from vivum.core.randomness import RandomSource
from vivum.core.time import MILLISECOND, SECOND
from vivum.sim.scenario import Duration, FaultSpec, Scenario
from vivum.sim.swarm import make_up
from vivum.sim.world import World

DURATION_NS = 30 * SECOND
RATE_MAX = 10.0


def make_up_long(seed: int) -> Scenario:
    """Make the world of a seed longer, with more faults that last longer and some that come again, and less traffic."""
    scenario = make_up(seed, "reference")
    rng = RandomSource(seed).fork("long")
    faults: list[FaultSpec] = []
    for fault in scenario.faults + make_up(seed + 100_000, "reference").faults:
        faults.append(
            msgspec.structs.replace(
                fault,
                at=Duration(rng.randint(0, DURATION_NS - 1)),
                lasts=Duration(rng.randint(10 * MILLISECOND, 20 * SECOND)),
                nodes=tuple(node for node in fault.nodes if node <= scenario.nodes) or (1,),
                every=Duration(rng.randint(SECOND, 20 * SECOND)) if rng.random() < 0.3 else None,
            )
        )
    traffic = [
        msgspec.structs.replace(each, rate=RATE_MAX if each.rate == "max" else min(each.rate, RATE_MAX))
        for each in scenario.traffic
    ]
    return msgspec.structs.replace(
        scenario, duration=Duration(DURATION_NS), faults=tuple(faults), traffic=tuple(traffic)
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6, 10, 11, 18, 19])
def test_a_long_world_holds(seed: int) -> None:
    result = World(make_up_long(seed), seed).run()
    assert result.violations == []
    assert result.counters["members_dropped"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_long_worlds_hold(seed: int) -> None:
    assert World(make_up_long(seed), seed).run().violations == []
