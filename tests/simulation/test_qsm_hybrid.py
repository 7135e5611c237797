"""The hybrid way in whole worlds: groups that overlap in part, loss, crashes, joins and leaves, with every check."""

from typing import Any

import msgspec
import pytest

from qsm_worlds.worlds import by_region, run_checked
from vivum.sim.scenario import Scenario, parse_scenario
from vivum.sim.world import Result

CHECKERS = ["no_duplicate", "no_creation", "fifo", "view_agreement", "bounded_queues", "all_delivered"]


def world(pattern: str = "hierarchical", **keys: Any) -> Scenario:
    """Twelve nodes in groups that overlap in part; all of several regions go the hybrid way."""
    table: dict[str, Any] = {
        "nodes": 12,
        "protocol": "qsm",
        "duration": "2s",
        "settle": "20s",
        "checkers": CHECKERS,
        "groups": {"pattern": pattern, "count": 11, "members": 6},
        "traffic": [{"senders": 4, "rate": 100, "size": 300, "start": "500ms", "choose": "random"}],
        **keys,
    }
    table["settings"] = {"spread_address_cost": 0.0, **keys.get("settings", {})}
    return parse_scenario(table, "test")


def run(scenario: Scenario, seed: int = 1) -> Result:
    result, violations = run_checked(scenario, seed)
    assert violations == []
    return result


@pytest.mark.parametrize("pattern", ["hierarchical", pytest.param("random", marks=pytest.mark.slow)])
def test_a_frame_for_all_regions_takes_the_place_of_one_for_each(pattern: str) -> None:
    scenario = world(pattern)
    hybrid, plain = run(scenario), run(by_region(scenario))
    assert "frames_spread" not in plain.counters
    assert hybrid.delivered == plain.delivered
    spread, streams = hybrid.counters["frames_spread"], hybrid.counters["frames_spread_streams"]
    assert streams > 2 * spread, "frames that stand for several each"
    saved = plain.counters["datagrams_sent"] - hybrid.counters["datagrams_sent"]
    assert saved > 0.7 * (streams - spread)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["hierarchical", "random"])
@pytest.mark.parametrize(
    ("network", "size"),
    [
        pytest.param({"loss": 0.1}, 300, id="loss"),
        pytest.param({"loss": 0.05}, 6000, id="loss of pieces of messages"),
        pytest.param({"burst_rate": 0.05, "burst_length": 20.0}, 300, id="bursts"),
        pytest.param({"duplicate": 0.05, "reorder": 0.05}, 300, id="duplicates and disorder"),
    ],
)
def test_each_region_repairs_what_it_lost_of_frames_for_all(network: dict[str, float], size: int, pattern: str) -> None:
    traffic = [{"senders": 4, "rate": 60, "size": size, "start": "500ms", "choose": "random"}]
    result = run(world(pattern, network=network, traffic=traffic))
    assert result.counters["frames_spread"] > 50
    assert result.counters.get("messages_failed", 0) == 0
    if "duplicate" not in network:
        assert result.counters["repairs_received"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([{"kind": "crash", "at": "900ms", "lasts": "600ms", "nodes": [1, 7]}], id="a sender crashes"),
        pytest.param(
            [
                {"kind": "leave", "at": "800ms", "lasts": "200ms", "every": "400ms", "nodes": [2, 6], "groups": [1, 3]},
                {"kind": "join", "at": "700ms", "lasts": "300ms", "every": "500ms", "nodes": [3, 11], "groups": [4, 7]},
            ],
            id="groups change their regions and their ways again and again",
        ),
        pytest.param(
            [
                {"kind": "partition", "at": "900ms", "lasts": "3s", "nodes": [2, 9, 10]},
                {"kind": "leave", "at": "1s", "nodes": [5], "groups": [1]},
            ],
            id="members are dropped and come back",
        ),
        pytest.param([{"kind": "pause", "at": "800ms", "lasts": "400ms", "nodes": [4, 8, 12]}], id="members sleep"),
    ],
)
def test_guarantees_hold_while_members_come_and_go(faults: list[dict[str, Any]], seed: int) -> None:
    scenario = world(
        "random" if seed % 2 else "hierarchical",
        faults=faults,
        network={"loss": 0.03},
        settings={"spread_delay_ns": 0 if seed > 2 else 100_000_000, "spread_channels": (1, 256)[seed % 2]},
    )
    assert run(scenario, seed).counters["frames_spread"] > 20


def test_who_does_not_listen_yet_is_repaired_by_its_region() -> None:
    scenario = world(
        traffic=[{"senders": 12, "rate": 50, "size": 100}],
        settings={"spread_delay_ns": 0},
        faults=[{"kind": "join", "at": "800ms", "nodes": [1, 2, 9], "groups": [5, 6, 7]}],
    )
    result = run(scenario)
    assert result.counters["frames_spread"] > 100
    assert result.counters["repairs_received"] > 0


def test_groups_that_share_a_channel_hear_each_other_and_drop_what_is_not_theirs() -> None:
    scenario = world("random", settings={"spread_channels": 1})
    few, many = run(scenario), run(world("random"))
    assert few.counters["frames_unwanted"] > 10 * many.counters.get("frames_unwanted", 0)
    assert few.delivered == many.delivered


@pytest.mark.slow
def test_a_full_load_of_both_ways_is_shared() -> None:
    """Groups of one region and of many, from the same senders, all as fast as they go."""
    traffic = [{"senders": [1, 5], "rate": "max", "size": 1000, "start": "500ms"}]
    scenario = world(traffic=traffic, duration="1s", network={"bandwidth": "10Mbit"})
    scenario = msgspec.structs.replace(scenario, groups=msgspec.structs.replace(scenario.groups, count=7))
    result = run(scenario)
    assert result.counters["frames_spread"] > 50
