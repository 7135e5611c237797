"""Sweeps as Spark jobs."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from vivum.core.errors import UsageError
from vivum.pipeline.audit import audit
from vivum.pipeline.sweep import Sweep, Watch, longest_first, run_point, run_sweeps

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


class Notes(Watch):
    """What a sweep told while it ran."""

    def __init__(self):
        super().__init__()
        self.told = []

    def show_begin(self):
        self.told.append((self.processors, self.left_s > 0))

    def show_finished(self, task, took_s):
        self.told.append((task.name, took_s < 60))


def test_a_sweep_runs_each_point_once_and_goes_on_where_it_was(spark, tmp_path):
    path, notes = description(tmp_path, 400), Notes()
    (report,) = run_sweeps(spark, [Sweep(path, tmp_path / "out")], notes)
    assert (report.points, report.before, report.failed) == (4, 0, {})
    rates = {(each.axes["traffic.0.rate"], each.seed): each.numbers["rate_median"] for each in report.outcomes}
    assert set(rates) == {(200, 1), (200, 2), (400, 1), (400, 2)}
    assert rates[400, 1] > rates[200, 1] > 0
    assert notes.told[0] == (2, True)
    names = [f"small rate={rate} seed={seed}" for rate in (200, 400) for seed in (1, 2)]
    assert sorted(notes.told[1:]) == [(name, True) for name in names]
    assert notes.left_s == 0
    again = Sweep(path, tmp_path / "out")
    next(again.out.glob("*.parquet")).unlink()
    (report,) = run_sweeps(spark, [again])
    assert (report.points, report.before, report.failed) == (4, 3, {})


def test_a_result_of_other_code_does_not_count_and_is_replaced(spark, tmp_path):
    path, notes = description(tmp_path, 400), Notes()
    old = Sweep(path, tmp_path / "out", quick=True)
    old.source = "other"
    run_sweeps(spark, [old])
    new = Sweep(path, tmp_path / "out", quick=True)
    (report,) = run_sweeps(spark, [new], notes)
    assert (report.points, report.before) == (2, 0)
    assert {each.source for each in new.done().values()} == {new.source}
    assert len(notes.told) == 3


def test_the_longest_points_of_several_sweeps_come_first(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    sweeps = [Sweep(description(folder, rate), folder) for folder, rate in ((one, 4000), (two, 1000))]
    tasks = longest_first([task for each in sweeps for task in each.tasks()])
    assert [json.loads(task.axes)["traffic.0.rate"] for task in tasks] == [4000] * 2 + [1000] * 2 + [200] * 4


def test_traces_of_points_are_kept_where_they_are_wanted(spark, tmp_path):
    path = description(tmp_path, 400)
    path.write_text(path.read_text().replace("seeds = [1, 2]", "seeds = [1]"))
    (without,) = run_sweeps(spark, [Sweep(path, tmp_path / "out")])
    (report,) = run_sweeps(spark, [Sweep(path, tmp_path / "out", traces=True)])
    # What has a result but no trace runs again, and gives the same numbers.
    assert (report.points, report.before, report.failed) == (2, 0, {})
    assert [each.numbers for each in report.outcomes] == [each.numbers for each in without.outcomes]
    for each in report.outcomes:
        verdict = audit(tmp_path / "out/small/traces" / each.key, spark, checks=["no_duplicate", "no_creation", "fifo"])
        assert verdict.records > 0
        assert verdict.violation_count == 0
    assert Sweep(path, tmp_path / "out", traces=True).tasks() == []


def test_a_point_that_fails_twice_is_reported_and_the_others_are_kept(spark, tmp_path):
    (report,) = run_sweeps(spark, [Sweep(description(tmp_path, '"nonsense"'), tmp_path / "out")])
    assert len(report.outcomes) == 2
    assert len(report.failed) == 2
    assert all("nonsense" in point and error for point, error in report.failed.items())


@pytest.mark.parametrize(("failures", "is_kept"), [(1, True), (2, False)])
def test_a_point_that_fails_is_tried_once_more(tmp_path, monkeypatch, failures, is_kept):
    sweep = Sweep(description(tmp_path, 400), tmp_path / "out")
    sweep.out.mkdir(parents=True)
    runner = importlib.import_module("experiments.point")
    plain, tries = runner.point, []

    def fail_at_first(*words: Any) -> Any:
        tries.append(words)
        if len(tries) <= failures:
            raise RuntimeError("the machine was asleep")
        return plain(*words)

    monkeypatch.setattr(runner, "point", fail_at_first)
    task = sweep.tasks()[0]
    error = run_point(sweep.home, task, ("commit", "source"))
    assert error == (None if is_kept else "RuntimeError: the machine was asleep")
    assert len(tries) == 2
    assert list(sweep.done()) == ([task.key] if is_kept else [])


@pytest.mark.soak
@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_experiment_runs_as_a_sweep(spark, tmp_path, path):
    (report,) = run_sweeps(spark, [Sweep(path, tmp_path, quick=True)])
    assert report.failed == {}
    assert len(report.outcomes) == report.points > 0


def test_a_missing_description_is_told(tmp_path):
    with pytest.raises(UsageError, match=r"no such experiment; give a file such as experiments/load\.toml"):
        Sweep(tmp_path / "none.toml", tmp_path)
