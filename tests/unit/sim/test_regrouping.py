"""Applications that leave and join groups while the world runs."""

import pytest

from effects import MemoryTrace
from vivum.core.ids import NodeId
from vivum.core.time import MILLISECOND
from vivum.observe.trace import GroupJoined, GroupLeft, MessageSent
from vivum.sim.scenario import Scenario, ScenarioError, parse_scenario
from vivum.sim.world import World

QSM = {"nodes": 3, "duration": "1s", "protocol": "qsm", "groups": {"count": 2}, "traffic": [{"senders": 3, "rate": 50}]}


def scenario(*faults: dict[str, object]) -> Scenario:
    return parse_scenario({**QSM, "faults": list(faults)}, "test")


def run(*faults: dict[str, object]) -> list[object]:
    trace = MemoryTrace()
    assert World(scenario(*faults), 1, trace).run().violations == []
    return list(trace.records)


def test_a_node_leaves_a_group_for_a_time_and_sends_to_the_other_meanwhile() -> None:
    records = run({"kind": "leave", "at": "300ms", "lasts": "300ms", "nodes": [2], "groups": [1]})
    changes = [
        (type(each), each.group) for each in records if isinstance(each, GroupLeft | GroupJoined) and each.node == 2
    ]
    assert changes == [(GroupJoined, 1), (GroupJoined, 2), (GroupLeft, 1), (GroupJoined, 1)]
    away = [each for each in records if isinstance(each, MessageSent) and each.node == 2]
    groups = {each.group for each in away if 400 * MILLISECOND < each.time_ns < 600 * MILLISECOND}
    assert groups == {2}


def test_a_node_that_left_all_groups_sends_nothing_and_one_that_was_down_comes_up_without_them() -> None:
    records = run(
        {"kind": "crash", "at": "300ms", "lasts": "200ms", "nodes": [2]},
        {"kind": "leave", "at": "400ms", "nodes": [2], "groups": [1, 2]},
    )
    late = [each for each in records if isinstance(each, MessageSent) and each.time_ns > 300 * MILLISECOND]
    assert {each.node for each in late} == {1, 3}


def test_an_application_that_sleeps_leaves_when_it_wakes() -> None:
    world = World(
        scenario(
            {"kind": "pause", "at": "300ms", "lasts": "200ms", "nodes": [2]},
            {"kind": "leave", "at": "400ms", "nodes": [2], "groups": [1]},
        ),
        1,
        trace := MemoryTrace(),
    )
    world.run()
    (left,) = [each for each in trace.records if isinstance(each, GroupLeft)]
    assert left.node == NodeId(2)
    assert left.time_ns > 500 * MILLISECOND


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ({"kind": "leave", "at": "1ms"}, "a leave needs the groups"),
        ({"kind": "join", "at": "1ms", "groups": [3]}, "3; groups are 1 to 2"),
    ],
)
def test_a_change_without_groups_or_of_unknown_ones_is_refused(fault: dict[str, object], cause: str) -> None:
    with pytest.raises(ScenarioError, match=cause):
        scenario(fault)
