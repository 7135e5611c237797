"""Worlds of QSM made up from seeds, and how to run one with every check."""

import msgspec

from qsm_worlds.aftermath import Aftermath
from vivum.checkers.checker import Checker
from vivum.checkers.registry import CheckerSet
from vivum.core.randomness import RandomSource
from vivum.core.time import MILLISECOND, SECOND
from vivum.sim.scenario import Duration, FaultSpec, Scenario, TrafficSpec
from vivum.sim.swarm import make_up
from vivum.sim.world import Result, World

LONG_NS = 30 * SECOND


def run_checked(scenario: Scenario, seed: int, *more: Checker) -> tuple[Result, list[str]]:
    """Run a world; return what all checkers and `Aftermath` found. `more` checkers are asked by the caller."""
    aftermath = Aftermath()
    result = World(scenario, seed, CheckerSet([aftermath, *more])).run()
    return result, [str(each) for each in [*result.violations, *aftermath.finish()]]


def by_region(scenario: Scenario) -> Scenario:
    """Let no group of a world go the hybrid way: the worlds of seeds that failed before there was one."""
    return msgspec.structs.replace(scenario, settings={**scenario.settings, "spread_channels": 0})


def make_up_hybrid(seed: int) -> Scenario:
    """Make the world of a seed one of overlapping groups that all go the hybrid way, on few channels."""
    scenario = make_up(seed, "qsm")
    rng = RandomSource(seed).fork("hybrid")
    nodes = max(scenario.nodes, 4)
    hybrid = {"spread_channels": rng.choice([1, 2, 256]), "spread_address_cost": 0.0, "spread_delay_ns": 0}
    groups = msgspec.structs.replace(
        scenario.groups,
        count=max(scenario.groups.count, 3),
        pattern=rng.choice(["hierarchical", "random"]),
        members=rng.randint(2, nodes),
    )
    return msgspec.structs.replace(
        scenario,
        nodes=nodes,
        groups=groups,
        settings={**scenario.settings, **hybrid},
        # A node that crashed may be dropped late, here at 15 s in seed 88, and a stream to it is given up 15 s later.
        settle=Duration(40 * SECOND),
    )


def make_up_long(seed: int, protocol: str = "qsm") -> Scenario:
    """Make the world of a seed longer, with more faults that last longer, so that members are dropped and return."""
    scenario = make_up(seed, protocol)
    rng = RandomSource(seed).fork("long")
    faults: list[FaultSpec] = []
    for fault in scenario.faults + make_up(seed + 100_000, protocol).faults:
        at = Duration(rng.randint(0, LONG_NS - 1))
        lasts = Duration(rng.randint(10 * MILLISECOND, 20 * SECOND))
        faults.append(
            msgspec.structs.replace(
                fault,
                at=at,
                lasts=lasts if fault.lasts is not None else None,
                nodes=tuple(node for node in fault.nodes if node <= scenario.nodes) or (1,),
                groups=tuple(group for group in fault.groups if group <= scenario.groups.count)
                or ((1,) if fault.groups else ()),
                every=Duration(rng.randint(SECOND, 20 * SECOND)) if rng.random() < 0.3 else None,
            )
        )
    return msgspec.structs.replace(
        scenario, duration=Duration(LONG_NS), faults=tuple(faults), traffic=_at_most(scenario, 10.0)
    )


def make_up_large(seed: int, protocol: str = "qsm") -> Scenario:
    """Make the world of a seed larger: 12 to 40 nodes in rings of few, so that there are two to five levels of them."""
    scenario = make_up(seed, protocol)
    rng = RandomSource(seed).fork("large")
    nodes = rng.randint(12, 40)
    return msgspec.structs.replace(
        scenario,
        nodes=nodes,
        duration=Duration(min(scenario.duration, 2 * SECOND)),
        settings={**scenario.settings, "ring_nodes_max": rng.choice([2, 3, 4, 5, 8])},
        groups=msgspec.structs.replace(scenario.groups, members=rng.randint(1, nodes)),
        faults=tuple(each for each in scenario.faults if each.at < 2 * SECOND),
        traffic=_at_most(scenario, 50.0),
    )


def _at_most(scenario: Scenario, rate: float) -> tuple[TrafficSpec, ...]:
    return tuple(
        msgspec.structs.replace(each, rate=rate if each.rate == "max" else min(each.rate, rate))
        for each in scenario.traffic
    )
