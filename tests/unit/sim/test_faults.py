"""Faults begin, end each for itself, and all end when everything heals."""

from collections.abc import Callable
from typing import Any

import pytest

from vivum.core.time import MILLISECOND, SECOND
from vivum.observe.trace import FaultInjected
from vivum.sim.faults import FaultInjector
from vivum.sim.scenario import Duration, FaultSpec, NetworkSpec

MakeRig = Callable[..., Any]
HEAL_NS = 100 * MILLISECOND


def inject(rig: Any, *faults: FaultSpec) -> FaultInjector:
    injector = FaultInjector(rig.scheduler, rig.network, rig.hosts, None, HEAL_NS, rig.trace)
    for fault in faults:
        injector.schedule(fault)
    return injector


def fault(kind: Any, at_ms: int, lasts_ms: int | None = None, **more: Any) -> FaultSpec:
    lasts = None if lasts_ms is None else Duration(lasts_ms * MILLISECOND)
    return FaultSpec(kind, Duration(at_ms * MILLISECOND), lasts, **more)


def heard(rig: Any, at_ms: int) -> set[tuple[int, int]]:
    """Let everybody send to everybody at a time; tell which (source, target) got through."""
    rig.scheduler.run_until(at_ms * MILLISECOND)
    for source in rig.hosts:
        rig.send(source, None, bytes(source))
    before = {target: len(rig.received(target)) for target in rig.hosts}
    rig.scheduler.run_until((at_ms + 1) * MILLISECOND)
    return {(size, target) for target in rig.hosts for _, size in rig.received(target)[before[target] :]}


ALL_OF_THREE = {(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)}


def test_a_partition_cuts_both_ways_and_ends(make_rig: MakeRig) -> None:
    rig = make_rig()
    inject(rig, fault("partition", 10, 10, nodes=(1,)))
    assert heard(rig, 5) == ALL_OF_THREE
    assert heard(rig, 15) == {(2, 3), (3, 2)}
    assert heard(rig, 25) == ALL_OF_THREE


def test_a_one_way_fault_silences_its_nodes_and_lets_them_hear(make_rig: MakeRig) -> None:
    rig = make_rig()
    inject(rig, fault("one_way", 10, 10, nodes=(1,)))
    assert heard(rig, 15) == ALL_OF_THREE - {(1, 2), (1, 3)}
    assert heard(rig, 25) == ALL_OF_THREE


def test_of_two_partitions_that_overlap_each_ends_for_itself(make_rig: MakeRig) -> None:
    rig = make_rig()
    inject(rig, fault("partition", 10, 20, nodes=(1,)), fault("partition", 20, 20, nodes=(1, 2)))
    assert heard(rig, 15) == {(2, 3), (3, 2)}
    assert heard(rig, 25) == set()
    assert heard(rig, 35) == {(1, 2), (2, 1)}
    assert heard(rig, 45) == ALL_OF_THREE


def test_of_two_slow_faults_that_overlap_each_ends_for_itself(make_rig: MakeRig) -> None:
    rig = make_rig()
    inject(rig, fault("slow", 10, 20, nodes=(1,), factor=5), fault("slow", 20, 20, nodes=(1,), factor=3))
    slowness = []
    for at_ms in (5, 15, 25, 35, 45):
        rig.scheduler.run_until(at_ms * MILLISECOND)
        slowness.append(rig.host(1).slowness)
    assert slowness == [1, 5, 15, 3, 1]


def test_a_crash_for_a_time_ends_with_a_new_incarnation(make_rig: MakeRig) -> None:
    rig = make_rig()
    inject(rig, fault("crash", 10, 10, nodes=(2,)))
    rig.scheduler.run_until(15 * MILLISECOND)
    assert rig.host(2).node is None
    rig.scheduler.run_until(25 * MILLISECOND)
    assert rig.host(2).node is not None
    assert rig.host(2).incarnation == 2


def test_a_host_that_had_no_effects_to_die_between_dies_when_the_crash_ends(make_rig: MakeRig) -> None:
    rig = make_rig()
    inject(rig, fault("crash", 10, 10, nodes=(2,), after=3))
    rig.scheduler.run_until(15 * MILLISECOND)
    assert (rig.host(2).is_dying, rig.host(2).incarnation) == (True, 1)
    rig.scheduler.run_until(25 * MILLISECOND)
    assert (rig.host(2).is_dying, rig.host(2).incarnation) == (False, 2)


def test_a_crash_of_a_dead_node_does_nothing_and_its_end_does_not_start_it(make_rig: MakeRig) -> None:
    rig = make_rig()
    inject(rig, fault("crash", 10, nodes=(2,)), fault("crash", 20, 10, nodes=(2,)))
    rig.scheduler.run_until(50 * MILLISECOND)
    assert rig.host(2).node is None


def test_the_end_of_a_crash_does_not_revive_a_node_that_came_back_and_died_again(make_rig: MakeRig) -> None:
    rig = make_rig()
    inject(
        rig,
        fault("crash", 10, 30, nodes=(2,)),
        fault("restart", 20, nodes=(2,)),
        fault("crash", 30, nodes=(2,)),
    )
    rig.scheduler.run_until(60 * MILLISECOND)
    assert rig.host(2).node is None
    assert rig.host(2).incarnation == 2


def test_a_node_that_crashes_while_it_sleeps_comes_back_awake(make_rig: MakeRig) -> None:
    rig = make_rig()
    inject(rig, fault("pause", 10, 50, nodes=(2,)), fault("crash", 20, 5, nodes=(2,)))
    rig.scheduler.run_until(24 * MILLISECOND)
    assert not rig.host(2).is_asleep
    rig.scheduler.run_until(26 * MILLISECOND)
    assert not rig.host(2).is_asleep
    rig.network.listen(1, 2)
    assert heard(rig, 30) == ALL_OF_THREE


def test_a_fault_comes_again_and_again_until_everything_heals(make_rig: MakeRig) -> None:
    rig = make_rig()
    inject(rig, fault("crash", 10, 5, nodes=(2,), every=Duration(20 * MILLISECOND)))
    rig.scheduler.run_until(SECOND)
    assert rig.host(2).incarnation == 1 + 5


def test_healing_ends_every_fault_at_once_and_their_own_ends_come_to_nothing(make_rig: MakeRig) -> None:
    rig = make_rig()
    kinds = ("partition", "one_way", "loss", "burst", "duplicate", "reorder", "slow", "pause")
    injector = inject(
        rig,
        *(fault(kind, 10 + index, 500, nodes=(1,), rate=0.4) for index, kind in enumerate(kinds)),
        fault("crash", 50, 500, nodes=(2,)),
        fault("crash", 60, nodes=(3,), after=1000),
    )
    rig.scheduler.at(HEAL_NS, injector.heal)
    rig.scheduler.run_until(HEAL_NS + 1)
    for node, host in rig.hosts.items():
        assert host.node is not None
        assert not host.is_dying
        assert host.slowness == 1
        assert not host.is_asleep
        assert not host.port.disturbed
        rig.network.listen(1, node)
    assert heard(rig, 200) == ALL_OF_THREE
    rig.scheduler.run_until(SECOND)
    assert heard(rig, 1100) == ALL_OF_THREE
    assert [host.incarnation for host in rig.hosts.values()] == [1, 2, 2]


def test_a_fault_without_an_end_lasts_until_everything_heals(make_rig: MakeRig) -> None:
    rig = make_rig()
    injector = inject(rig, fault("partition", 10, nodes=(3,)))
    rig.scheduler.at(HEAL_NS, injector.heal)
    assert heard(rig, 90) == {(1, 2), (2, 1)}
    assert heard(rig, 110) == ALL_OF_THREE


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (NetworkSpec(loss=0.05), []),
        (NetworkSpec(loss=0.1), ["loss at every node"]),
        (NetworkSpec(loss=0.2, burst_rate=0.1), ["loss at every node", "burst at every node"]),
    ],
)
def test_a_network_that_loses_much_from_the_beginning_is_told_of_as_a_fault(
    make_rig: MakeRig, network: NetworkSpec, told: list[str]
) -> None:
    rig = make_rig()
    inject(rig).tell_of(network)
    assert [each.cause for each in rig.trace.records if isinstance(each, FaultInjected)] == told
