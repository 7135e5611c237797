"""The swarm of QSM holds: loss to 20 %, bursts, crashes, pauses, partitions, joins and leaves, rings of two nodes up.

Seeds that failed once stand here with what was wrong. Worlds of the plain swarm have 2 to 9 nodes and last seconds;
large ones have up to five levels of rings. Long ones, which drop members, are in `test_long_worlds`.
"""

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor

import pytest

from qsm_worlds.worlds import by_region, make_up_hybrid, make_up_large, run_checked
from vivum.cli import main
from vivum.protocols.streams import sender_fifo as chain
from vivum.sim.library import find_scenario
from vivum.sim.scenario import Scenario
from vivum.sim.swarm import EFFECTS_MAX, make_up, run_swarm


def make_up_qsm(seed: int) -> Scenario:
    return make_up(seed, "qsm")


def _violations(make: Callable[[int], Scenario], seed: int) -> list[str]:
    try:
        return run_checked(make(seed), seed)[1]
    except Exception as error:
        return [f"crash: {type(error).__name__}: {error}"]


def failures(make: Callable[[int], Scenario], seeds: Sequence[int]) -> dict[int, list[str]]:
    """Run many worlds on all cores; return what was wrong, by seed."""
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        found = pool.map(_violations, [make] * len(seeds), seeds)
        return {seed: what for seed, what in zip(seeds, found, strict=True) if what}


@pytest.mark.slow
def test_two_hundred_seeds_hold() -> None:
    assert failures(make_up_qsm, range(1, 201)) == {}


@pytest.mark.slow
def test_sixty_worlds_in_which_all_go_the_hybrid_way_hold() -> None:
    assert failures(make_up_hybrid, range(1, 61)) == {}


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed in (4, 6) else []) for seed in range(1, 13)]
)
def test_worlds_in_which_little_may_be_delivered_at_once_hold(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(chain, "BURST_BYTES", 1)
    assert _violations(make_up_qsm, seed) == []


@pytest.mark.slow
def test_ten_large_worlds_hold() -> None:
    assert failures(make_up_large, range(1, 11)) == {}


@pytest.mark.soak
def test_two_thousand_seeds_hold() -> None:
    assert failures(make_up_qsm, [*range(201, 301), *range(1001, 3001)]) == {}
    assert failures(make_up_hybrid, [*range(61, 101), *range(1001, 2001)]) == {}


@pytest.mark.soak
def test_many_large_worlds_hold() -> None:
    assert failures(make_up_large, range(100, 300)) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1, id="delivered in a group that had been left"),
        pytest.param(10, id="a sender that had left was not told what its old region lacked"),
        pytest.param(52, id="a node that had jumped over a view went on with a gap"),
        pytest.param(67, id="a sender came back to a region view from which it had closed its stream"),
        pytest.param(71, id="a view that was over took with it what waited for an older one"),
        pytest.param(131, id="nobody held frames of a partition that was passed over, and the sender forgot them"),
        pytest.param(218, id="confirmed although the leader did not know the stream"),
        pytest.param(238, id="own message delivered after the group had been left in the same moment"),
        pytest.param(256, id="gave up what lay in its own socket after a pause"),
        pytest.param(324, id="given up at a receiver, and confirmed"),
        pytest.param(515, id="confirmed although what a ring below had said was older than the stable point"),
    ],
)
def test_a_seed_that_failed_once_holds(seed: int) -> None:
    assert run_checked(by_region(make_up_qsm(seed)), seed)[1] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            700081, id="behind a frame of a dead sender that nobody had, messages were taken for another view's"
        )
    ],
)
def test_a_seed_that_failed_once_with_groups_that_go_the_hybrid_way_holds(seed: int) -> None:
    assert run_checked(make_up_qsm(seed), seed)[1] == []


def make_up_minority(seed: int) -> Scenario:
    return make_up(seed, "qsm", minority=True)


B1 = pytest.mark.xfail(
    reason="B1: a service in the minority drops the majority member by member, and the rest confirms what they lack"
)


@B1
@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 14, 44])
def test_a_world_with_the_service_in_the_minority_holds(seed: int) -> None:
    assert _violations(make_up_minority, seed) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 14, 29, 44, 46])
def test_a_service_in_the_minority_breaks_nothing_but_what_was_confirmed(seed: int) -> None:
    assert [each for each in _violations(make_up_minority, seed) if not each.startswith("all_delivered: ")] == []


@B1
@pytest.mark.soak
def test_sixty_worlds_with_the_service_in_the_minority_hold() -> None:
    assert failures(make_up_minority, range(1, 61)) == {}


def test_a_split_leaves_the_service_with_the_smaller_side_only_on_request() -> None:
    for seed in range(1, 101):
        plain, split = make_up_qsm(seed), make_up_minority(seed)
        assert all(2 * len(each.nodes) <= max(plain.nodes, 2) for each in plain.faults if each.kind == "partition")
        assert split.nodes // 2 < len(split.faults[0].nodes) < split.nodes
        assert {each.kind for each in split.faults} <= {"partition", "leave", "join", "loss", "duplicate", "reorder"}


def test_hosts_crash_at_a_moment_and_between_two_effects() -> None:
    for kind in ("crash", "service_crash"):
        after = {each.after for seed in range(1, 201) for each in make_up_qsm(seed).faults if each.kind == kind}
        assert 0 in after
        assert 0 < max(after) <= EFFECTS_MAX


def test_worlds_of_qsm_bound_what_may_be_lost() -> None:
    assert {"lives_explained", "failures_explained"} <= set(make_up_qsm(1).checkers)


def test_a_world_with_the_service_in_the_minority_is_asked_for_and_replayed_from_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for protocol in (["--protocol", "live"], []):
        assert main(["sim", "swarm", "--minority", *protocol, "--seeds", "1", "--jobs", "1"]) == 2
        assert "--minority: whole programs are not made up" in capsys.readouterr().err
    assert main(["sim", "run", "swarm:live:minority"]) == 2
    assert "'live' is no protocol of nodes alone" in capsys.readouterr().err
    assert main(["sim", "swarm", "--minority", "--protocol", "reference", "--seeds", "1", "--jobs", "1"]) == 2
    assert "'reference' has no configuration service" in capsys.readouterr().err
    assert main(["sim", "run", "swarm:qsm:majority"]) == 2
    assert "'majority' is no kind of world" in capsys.readouterr().err
    assert find_scenario("swarm:qsm:minority", 3) == make_up_minority(3)


def test_the_swarm_of_a_protocol_is_run_and_replayed_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["sim", "swarm", "--protocol", "qsm", "--seeds", "2", "--first-seed", "28", "--jobs", "1", "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["failed"] == []
    assert found["first_seed"] == 28
    assert main(["sim", "run", "swarm:qsm", "--seed", "28", "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert replayed["scenario"] == "swarm:qsm"
    (verdict,) = run_swarm(28, 1, 1, "qsm")
    assert replayed["trace_hash"] == verdict.trace_hash


def test_an_unknown_protocol_is_refused_with_those_that_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "swarm", "--protocol", "qsn"]) == 2
    assert main(["sim", "run", "swarm:qsn"]) == 2
    assert "qsm, reference" in capsys.readouterr().err


def test_worlds_of_qsm_have_more_loss_and_changing_groups_and_those_of_the_reference_do_not() -> None:
    scenarios = [make_up_qsm(seed) for seed in range(200)]
    kinds = {fault.kind for scenario in scenarios for fault in scenario.faults}
    assert {"leave", "join", "crash", "pause", "partition", "burst"} <= kinds
    assert max(scenario.network.loss for scenario in scenarios) == 0.2
    assert {scenario.settings["ring_nodes_max"] for scenario in scenarios} == {2, 3, 4, 25}
    assert {scenario.settings["spread_channels"] for scenario in scenarios} == {0, 1, 256}
    plain = [make_up(seed, "reference") for seed in range(200)]
    assert not {"leave", "join"} & {fault.kind for scenario in plain for fault in scenario.faults}
