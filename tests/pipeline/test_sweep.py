"""Sweeps as Spark jobs."""

import importlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vivum.core.errors import UsageError
from vivum.pipeline.audit import audit
from vivum.pipeline.sweep import Sweep, run_point

pytestmark = pytest.mark.slow

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

DESCRIPTION = """
title = "A small one"
figures = "none"
seeds = [1, 2]

[scenario]
nodes = 3
protocol = "qsm"
checkers = []

[[scenario.traffic]]
senders = 1
rate = 200
size = 100
start = "100ms"

[measure]
warm_up = "200ms"
duration = "100ms"
sample = "10ms"

[[sweep]]
"traffic.0.rate" = [200, RATE]

[quick]
sweep = [{ nodes = [3] }]
"""


def description(folder: Path, rate: object) -> Path:
    path = folder / "small.toml"
    path.write_text(DESCRIPTION.replace("RATE", str(rate)))
    return path


def test_a_sweep_runs_each_point_once_and_goes_on_where_it_was(spark, tmp_path, monkeypatch):
    path = description(tmp_path, 400)
    seen = []
    report = Sweep(path, tmp_path / "out").run(spark, lambda done, total: seen.append((done, total)))
    assert (report.points, report.before, report.failed) == (4, 0, {})
    rates = {(each.axes["traffic.0.rate"], each.seed): each.numbers["rate_median"] for each in report.outcomes}
    assert set(rates) == {(200, 1), (200, 2), (400, 1), (400, 2)}
    assert rates[400, 1] > rates[200, 1] > 0
    again = Sweep(path, tmp_path / "out")
    next(again.out.glob("*.parquet")).unlink()
    report = again.run(spark)
    assert (report.points, report.before, report.failed) == (4, 3, {})


def test_traces_of_points_are_kept_where_they_are_wanted(spark, tmp_path):
    path = description(tmp_path, 400)
    path.write_text(path.read_text().replace("seeds = [1, 2]", "seeds = [1]"))
    without = Sweep(path, tmp_path / "out").run(spark)
    sweep = Sweep(path, tmp_path / "out", traces=True)
    report = sweep.run(spark)
    # What has a result but no trace runs again, and gives the same numbers.
    assert (report.points, report.before, report.failed) == (2, 0, {})
    assert [each.numbers for each in report.outcomes] == [each.numbers for each in without.outcomes]
    for each in report.outcomes:
        verdict = audit(tmp_path / "out/small/traces" / each.key, spark, checks=["no_duplicate", "no_creation", "fifo"])
        assert verdict.records > 0
        assert verdict.violation_count == 0
    assert Sweep(path, tmp_path / "out", traces=True).run(spark).before == 2


def test_a_point_that_fails_twice_is_reported_and_the_others_are_kept(spark, tmp_path):
    report = Sweep(description(tmp_path, '"nonsense"'), tmp_path / "out").run(spark)
    assert len(report.outcomes) == 2
    assert len(report.failed) == 2
    assert all("nonsense" in point and error for point, error in report.failed.items())


@pytest.mark.parametrize(("failures", "is_kept"), [(1, True), (2, False)])
def test_a_point_that_fails_is_tried_once_more(tmp_path, monkeypatch, failures, is_kept):
    sweep = Sweep(description(tmp_path, 400), tmp_path / "out")
    sweep.out.mkdir(parents=True)
    running = importlib.import_module("experiments.running")
    plain, tries = running.run_all, []

    def fail_at_first(points: Any, *more: Any) -> Any:
        tries.append(points)
        return [(points[0], RuntimeError("the machine was asleep"))] if len(tries) <= failures else plain(points, *more)

    monkeypatch.setattr(running, "run_all", fail_at_first)
    point = sweep.points[0]
    key = point.parameters.digest(point.seed)
    wanted = (key, point.seed, msgspec.json.encode(point.parameters), json.dumps(point.axes))
    error = run_point(sweep.home, sweep.out, wanted, ("commit", "source"))
    assert error == (None if is_kept else "RuntimeError: the machine was asleep")
    assert len(tries) == 2
    assert list(sweep.done()) == ([key] if is_kept else [])


@pytest.mark.soak
@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_experiment_runs_as_a_sweep(spark, tmp_path, path):
    report = Sweep(path, tmp_path, quick=True).run(spark)
    assert report.failed == {}
    assert len(report.outcomes) == report.points > 0


def test_a_missing_description_is_told(tmp_path):
    with pytest.raises(UsageError, match=r"no such experiment; give a file such as experiments/load\.toml"):
        Sweep(tmp_path / "none.toml", tmp_path)
