"""Lateral error correction in made-up worlds."""

import pytest

from vivum.sim.swarm import run_seed, run_swarm


@pytest.mark.slow
def test_some_seeds_hold() -> None:
    assert [each for each in run_swarm(1, 12, jobs=2, protocol="ricochet") if each.violations] == []


@pytest.mark.soak
def test_three_hundred_seeds_hold() -> None:
    assert [each for each in run_swarm(1, 300, jobs=2, protocol="ricochet") if each.violations] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 11, 15, 50, 62, 66, 223])
def test_seeds_that_failed_once_hold(seed: int) -> None:
    assert run_seed(seed, "ricochet").violations == ()
