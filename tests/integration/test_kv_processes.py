"""A key-value store of three processes holds under kill -9 and SIGSTOP, by what its clients saw."""

import asyncio
from pathlib import Path

import pytest

from kv_processes.run import judge, run


def check(seconds: float, seed: int, state: Path) -> None:
    records, counts = asyncio.run(run(seconds, seed, state))
    assert judge(records) == []
    # It was worth something.
    assert counts["kill"] + counts["stop"] > 0
    assert counts["answered"] > 20 * seconds
    assert counts["changes"] > 0
    assert counts["locks"] > 0


@pytest.mark.slow
def test_six_seconds_of_faults_leave_every_key_linearizable(tmp_path: Path) -> None:
    check(6, 1, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [11, 12])
def test_a_minute_of_faults_leaves_every_key_linearizable(tmp_path: Path, seed: int) -> None:
    check(60, seed, tmp_path)
