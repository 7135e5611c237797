"""Worlds in which membership is what matters: pauses and deaths, the service's own death, merged regions."""

from collections import Counter
from typing import Any

import pytest

from qsm_worlds.aftermath import Aftermath
from vivum.checkers.registry import CheckerSet
from vivum.core.time import SECOND
from vivum.observe.trace import MessageDelivered, MessageSent, NodeStopped, TraceRecord, ViewInstalled
from vivum.protocols.membership.service.role import ServiceRole
from vivum.protocols.membership.service.state import ERA_BITS
from vivum.sim.host import Host
from vivum.sim.scenario import parse_scenario
from vivum.sim.swarm import make_up
from vivum.sim.world import Result, World

CHECKERS = ["no_duplicate", "no_creation", "fifo", "bounded_queues", "view_agreement", "all_delivered"]


def run(table: dict[str, Any], seed: int = 1) -> tuple[Result, list[TraceRecord], World]:
    """Run a world of QSM with all checks; fail on any violation."""
    base = {"protocol": "qsm", "checkers": CHECKERS, "duration": "8s", "settle": "10s", "groups": {"members": 6}}
    base["traffic"] = [{"senders": [1, 4], "rate": 50.0, "size": 100}]
    records: list[TraceRecord] = []
    aftermath = Aftermath()
    checkers = CheckerSet([aftermath])

    def trace(record: TraceRecord) -> None:
        records.append(record)
        checkers(record)

    world = World(parse_scenario({"nodes": 6, **base, **table}, "test"), seed, trace, frames=False)
    result = world.run()
    assert [str(each) for each in [*result.violations, *aftermath.finish()]] == []
    return result, records, world


def place_of(host: Host) -> ServiceRole:
    assert host.node is not None
    (place,) = [each for each in host.node.protocols if isinstance(each, ServiceRole)]
    return place


def stopped(records: list[TraceRecord]) -> list[tuple[int, str]]:
    return [(each.node, each.cause) for each in records if isinstance(each, NodeStopped)]


@pytest.mark.parametrize("node", [1, 3], ids=["the leader of the ring", "another member"])
def test_a_node_that_is_paused_for_less_than_report_and_test_take_is_not_dropped_and_accuses_nobody(node: int) -> None:
    """Passed over for 2 s, then tested for 2 s: whoever sleeps for less than 4 s stays."""
    _, records, _ = run({"faults": [{"kind": "pause", "at": "2s", "lasts": "3500ms", "nodes": [node]}]})
    assert stopped(records) == []


def test_how_long_a_node_may_be_paused_can_be_set() -> None:
    faults = [{"kind": "pause", "at": "1s", "lasts": "6s", "nodes": [3]}]
    _, records, _ = run({"faults": faults, "service": {"suspect_timeout_ns": 6 * SECOND}})
    assert stopped(records) == []
    _, records, _ = run({"faults": faults})
    assert stopped(records) == [(3, "dropped by the configuration service")]


@pytest.mark.parametrize("node", [1, 3], ids=["the leader of the ring", "another member"])
def test_a_dead_node_is_dropped_within_five_seconds(node: int) -> None:
    """2 s until it is reported, 2 s under test, and less than 1 s for the ring to miss it, probes and the batch."""
    _, records, _ = run({"faults": [{"kind": "crash", "at": "2s", "nodes": [node]}]})
    without = {
        each.node: each.time_ns
        for each in reversed(records)
        if isinstance(each, ViewInstalled) and not any(name.startswith(f"{node}.1") for name in each.members)
    }
    assert len(without) >= 5
    assert max(without[other] for other in without if other != node) <= 7 * SECOND


def test_a_node_that_crashes_between_two_effects_goes_on_until_it_has_carried_them_out() -> None:
    deaths_ns = []
    for after in (0, 5, 50):
        _, records, _ = run({"faults": [{"kind": "crash", "at": "2s", "nodes": [4], "after": after}]})
        (death,) = [each for each in records if isinstance(each, NodeStopped)]
        assert (death.node, death.cause) == (4, "crash")
        deaths_ns.append(death.time_ns)
    assert deaths_ns[0] == 2 * SECOND
    assert deaths_ns == sorted(set(deaths_ns))
    assert deaths_ns[-1] < 4 * SECOND


def test_many_nodes_paused_in_turn_are_not_dropped() -> None:
    faults = [
        {"kind": "pause", "at": f"{500 + 700 * node}ms", "lasts": "1500ms", "nodes": [node]} for node in range(1, 7)
    ]
    _, records, _ = run({"faults": faults})
    assert stopped(records) == []


def test_a_standby_goes_on_when_the_service_dies_and_nobody_is_dropped() -> None:
    faults = [
        {"kind": "service_crash", "at": "1s"},
        {"kind": "leave", "at": "1200ms", "nodes": [5], "groups": [1]},
        {"kind": "join", "at": "7s", "nodes": [5], "groups": [1]},
    ]
    _, records, world = run({"faults": faults, "settle": "15s"})
    assert stopped(records) == []
    last = max(each.view for each in records if isinstance(each, ViewInstalled))
    assert last >> ERA_BITS == 1, "the changes were made by the second service"
    assert len(serving_nodes(world)) == 1


def serving_nodes(world: World) -> list[int]:
    return [node for node, host in world.hosts.items() if host.node is not None and place_of(host).serving is not None]


def test_the_second_service_dies_too() -> None:
    first = {"kind": "service_crash", "at": "500ms"}
    _, _, world = run({"faults": [first], "settle": "20s"})
    (second,) = serving_nodes(world)
    crash = {"kind": "crash", "at": "7s", "nodes": [second]}
    _, records, world = run({"faults": [first, crash], "settle": "30s"})
    assert max(each.view for each in records if isinstance(each, ViewInstalled)) >> ERA_BITS == 2
    assert [node for node, _ in stopped(records)] == [second]


@pytest.mark.slow
def test_members_of_a_merged_region_drop_no_more_than_the_stated_share() -> None:
    table = {
        "nodes": 8,
        "groups": {"count": 16, "pattern": "random", "members": 5},
        "traffic": [{"senders": 8, "rate": 60.0, "size": 100}],
        "duration": "3s",
        "settle": "6s",
    }
    exact, *_ = run(table)
    assert "messages_filtered" not in exact.counters
    for waste in (0.2, 0.4):
        merged, records, world = run({**table, "service": {"regions_max": 2, "waste_max": waste}})
        heard = sum(isinstance(each, MessageDelivered) and each.sender != each.node for each in records)
        filtered = merged.counters["messages_filtered"]
        assert 0 < filtered <= waste * (filtered + heard)
        assert world.service is not None
        service = place_of(world.service).serving
        assert service is not None
        assert len(service.service.regions) < 8, "some were merged"


def test_a_message_is_delivered_as_one_of_the_group_view_that_it_was_sent_in() -> None:
    """Node 6 is in another region of the group; what changes there does not change the region of the others."""
    faults = [
        {"kind": "leave", "at": f"{at}ms", "nodes": [6], "groups": [2], "lasts": "150ms"}
        for at in range(500, 2500, 300)
    ]
    table = {"groups": {"count": 3, "pattern": "random", "members": 4}, "faults": faults, "duration": "4s"}
    _, records, _ = run({**table, "traffic": [{"senders": 6, "rate": 200.0, "size": 60}]}, seed=4)
    sent = {(e.group, e.node, e.incarnation, e.sequence): e.view for e in records if isinstance(e, MessageSent)}
    views: Counter[int] = Counter()
    for each in records:
        if isinstance(each, MessageDelivered):
            assert sent[each.group, each.sender, each.sender_incarnation, each.sequence] == each.view
            views[each.view] += 1
    assert len(views) > 5


def test_a_fourth_of_the_worlds_of_the_swarm_loses_its_service() -> None:
    worlds = [make_up(seed, "qsm") for seed in range(200)]
    without = [each for each in worlds if any(fault.kind == "service_crash" for fault in each.faults)]
    assert 30 <= len(without) <= 70
    for world in without:
        died = {node for fault in world.faults if fault.kind == "crash" for node in fault.nodes}
        assert world.settle > 20 * SECOND
        assert len(died) <= 1
