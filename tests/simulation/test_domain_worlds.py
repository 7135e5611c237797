"""Whole live nodes in simulated worlds: they find each other by beacons, carry the service, and survive its crash."""

import pytest

from vivum.core.ids import NodeId
from vivum.core.time import SECOND
from vivum.node.domain import DomainMachine
from vivum.sim.scenario import (
    Duration,
    FaultSpec,
    GroupsSpec,
    HostSpec,
    NetworkSpec,
    Scenario,
    TrafficSpec,
)
from vivum.sim.swarm import SAFETY, run_seed
from vivum.sim.world import Result, World

# One seed is enough for the inner loop.
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
PROMISED = ("no_duplicate", "no_creation", "fifo", "bounded_queues", "view_agreement", "all_delivered")


def domain_of(
    nodes: int,
    *faults: FaultSpec,
    seconds: int = 4,
    settle: int = 20,
    loss: float = 0.01,
    checkers: tuple[str, ...] = PROMISED,
) -> Scenario:
    """Describe a domain: clocks that are off and drift, a network that loses, and everybody sends to two groups."""
    return Scenario(
        nodes=nodes,
        duration=Duration(seconds * SECOND),
        settle=Duration(settle * SECOND),
        protocol="domain",
        checkers=checkers,
        network=NetworkSpec(loss=loss),
        host=HostSpec(clock_offset=Duration(SECOND), clock_drift_ppm=200),
        groups=GroupsSpec(count=2),
        traffic=(TrafficSpec(senders=nodes, rate=10.0, size=100),),
        faults=faults,
    )


def places_of(world: World) -> dict[NodeId, DomainMachine]:
    return {
        node: next(each for each in host.node.protocols if isinstance(each, DomainMachine))
        for node, host in world.hosts.items()
        if host.node is not None
    }


def carriers(world: World) -> list[NodeId]:
    return [node for node, place in places_of(world).items() if place.carries_service]


def lives(world: World) -> dict[NodeId, str]:
    return {node: str(host.node.member) for node, host in world.hosts.items() if host.node is not None}


def check_whole(world: World, result: Result) -> None:
    """Nothing was violated, and all nodes belong to one service."""
    assert result.violations == []
    (carrier,) = carriers(world)
    assert {place.service.endpoint for place in places_of(world).values() if place.service is not None} == {
        world.hosts[carrier].endpoint
    }


@pytest.mark.parametrize("seed", range(3))
def test_five_nodes_that_start_at_once_have_one_service(seed: int):
    world = World(domain_of(5), seed)
    world.start()
    world.advance_to(2 * SECOND)
    assert len(carriers(world)) == 1
    before = lives(world)
    world.advance_to(world.end_ns)
    check_whole(world, result := world.finish())
    assert lives(world) == before
    assert result.accepted > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_when_the_carrier_dies_a_standby_goes_on_and_no_life_is_lost(seed: int):
    world = World(domain_of(5, FaultSpec(kind="service_crash", at=Duration(3 * SECOND)), seconds=15), seed)
    world.start()
    world.advance_to(3 * SECOND - 1)
    (dead,) = carriers(world)
    before = lives(world)
    world.advance_to(15 * SECOND - 1)
    (successor,) = carriers(world)
    assert successor != dead
    assert lives(world) == {node: life for node, life in before.items() if node != dead}
    # Then everything heals: the dead one starts again, and joins its successor.
    world.advance_to(world.end_ns)
    check_whole(world, world.finish())
    assert carriers(world) == [successor]


@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_starts_later_joins_those_that_are_there(seed: int):
    late = FaultSpec(kind="crash", at=Duration(0), lasts=Duration(2 * SECOND), nodes=(5,))
    world = World(domain_of(5, late), seed)
    world.start()
    world.advance_to(1900 * SECOND // 1000)
    before = lives(world)
    world.advance_to(world.end_ns)
    check_whole(world, world.finish())
    assert before.items() <= lives(world).items()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_minority_without_the_service_comes_back_and_its_nodes_get_new_lives(seed: int):
    world = World(domain_of(5, seconds=20, settle=30), seed)
    world.start()
    world.advance_to(3 * SECOND)
    (carrier,) = carriers(world)
    away = tuple(node for node in world.hosts if node != carrier)[:2]
    world.faults.schedule(FaultSpec(kind="partition", at=Duration(3 * SECOND), lasts=Duration(12 * SECOND), nodes=away))
    before = lives(world)
    world.advance_to(world.end_ns)
    check_whole(world, world.finish())
    for node in world.hosts.keys() - set(away):
        assert lives(world)[node] == before[node]


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="B1: a service in the minority drops the majority, then confirms what it lacks")
def test_what_a_minority_with_the_service_confirms_is_everywhere():
    world = World(domain_of(5, seconds=30, settle=30), 1)
    world.start()
    world.advance_to(3 * SECOND)
    (carrier,) = carriers(world)
    away = tuple(node for node in world.hosts if node != carrier)[:3]
    world.faults.schedule(FaultSpec(kind="partition", at=Duration(3 * SECOND), lasts=Duration(24 * SECOND), nodes=away))
    world.advance_to(world.end_ns)
    check_whole(world, world.finish())


@pytest.mark.xfail(strict=True, reason="B2: services that began apart give the same numbers to different views")
def test_domains_that_began_apart_never_gave_the_same_number_twice():
    apart = FaultSpec(kind="partition", at=Duration(0), lasts=Duration(3 * SECOND), nodes=(1, 2))
    world = World(domain_of(5, apart), 1)
    check_whole(world, world.run())


def test_domains_that_began_apart_become_one_when_they_hear_each_other():
    apart = FaultSpec(kind="partition", at=Duration(0), lasts=Duration(3 * SECOND), nodes=(1, 2))
    # Not LIVENESS: services that began apart number views alike, and the checker takes both halves for one view.
    world = World(domain_of(5, apart, checkers=SAFETY), 1)
    world.start()
    world.advance_to(3 * SECOND - 1)
    assert len(carriers(world)) == 2
    before = lives(world)
    world.advance_to(world.end_ns)
    check_whole(world, world.finish())
    assert {node: lives(world)[node] for node in (3, 4, 5)} == {node: before[node] for node in (3, 4, 5)}


@pytest.mark.xfail(strict=True, reason="B14: a carrier that is back within 2 s begins a new history")
def test_a_carrier_that_is_started_again_at_once_costs_no_life():
    crash = FaultSpec(kind="service_crash", at=Duration(3 * SECOND), lasts=Duration(SECOND))
    world = World(domain_of(5, crash, seconds=15), 1)
    world.start()
    world.advance_to(3 * SECOND - 1)
    (dead,) = carriers(world)
    before = lives(world)
    world.advance_to(world.end_ns)
    assert {node: life for node, life in lives(world).items() if node != dead} == {
        node: life for node, life in before.items() if node != dead
    }


def test_the_same_seed_gives_the_same_trace_and_another_seed_another():
    crash = FaultSpec(kind="service_crash", at=Duration(2 * SECOND))
    first, again, other = (World(domain_of(4, crash, seconds=3, settle=10), seed).run() for seed in (1, 1, 2))
    assert first.trace_hash == again.trace_hash
    assert first.trace_hash != other.trace_hash


@pytest.mark.parametrize("seed", [2, 24, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (8, 13))])
def test_made_up_worlds_of_whole_nodes_hold(seed: int):
    # Of these the service died, alone or in a split; two of them have two nodes or three.
    assert run_seed(seed, "domain").violations == ()
