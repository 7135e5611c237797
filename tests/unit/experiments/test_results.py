import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from experiments.description import ColumnSpec, Experiment, MeasureSpec, Point, PointParameters, QuickSpec
from experiments.results import Outcome, ResultFile, compared, outcomes_of, pending
from experiments.tables import BEGIN, END, make_lines, make_table, write_into

ROOT = Path(__file__).resolve().parents[3]

TINY = """
title = "t"
figures = "none"
sweep = []
measure = { warm_up = "100ms" }
# Three senders of two nodes cannot be.
quick = { sweep = [{ "traffic.0.senders" = [1, 3] }], duration = "20ms" }

[scenario]
nodes = 2
protocol = "qsm"
checkers = []
traffic = [{ rate = 100, start = "10ms" }]
"""


def outcome(axes, rate, source="abc", key="k"):
    return Outcome(key, axes, 1, "c0ffee", source, 1.0, 30.0, {"rate_median": rate})


def test_results_survive_a_line_that_was_cut_off(tmp_path):
    file = ResultFile(tmp_path / "deep/x.jsonl")
    assert file.read() == {}
    file.add(outcome({"nodes": 3}, 5.0))
    with file.path.open("a") as stream:
        stream.write('{"key": "torn')
    assert file.read() == {"k": outcome({"nodes": 3}, 5.0)}


def test_finished_points_are_skipped_only_for_the_code_that_finished_them():
    point = Point({"nodes": 3}, PointParameters({"nodes": 3}, 1, 1, 1), 1)
    done = {point.parameters.digest(1): outcome({"nodes": 3}, 5.0, source="old")}
    assert pending([point], done, "old") == []
    assert pending([point], done, "new") == [point]
    assert outcomes_of([point], done) == list(done.values())


def test_rates_are_compared_with_the_point_that_differs_only_by_the_baseline():
    every = [
        outcome({"nodes": n, "variant": v}, r) for n, v, r in [(1, "a", 10), (1, "b", 9), (2, "a", 5), (2, "b", 4)]
    ]
    assert [each.numbers["rate_relative"] for each in compared(every, {"variant": "a"})] == [1, 0.9, 1, 0.8]
    assert compared(every, {}) == every


def test_a_table_is_written_between_its_marks(tmp_path):
    columns = [ColumnSpec("nodes", "nodes"), ColumnSpec("rate_median", "rate", 1), ColumnSpec("nothing", "nothing")]
    experiment = Experiment("t", "f", {}, [], QuickSpec([]), MeasureSpec(), table=columns)
    table = make_table(experiment, [outcome({"nodes": 3}, 1234.56)])
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_into(page, table)
    text = page.read_text()
    assert "| 3 | 1,234.6 | – |" in text
    assert "c0ffee" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")


def test_rows_of_a_table_say_which_code_gave_them_where_it_was_not_the_same_for_all():
    experiment = Experiment("t", "f", {}, [], QuickSpec([]), MeasureSpec(), table=[ColumnSpec("nodes", "nodes")])
    old = msgspec.structs.replace(outcome({"nodes": 3}, 1.0, source="old"), commit="0ddc0de")
    table = make_table(experiment, [old, outcome({"nodes": 4}, 1.0)]).splitlines()
    assert table[:4] == ["| nodes | commit |", "|---:|---:|", "| 3 | 0ddc0de |", "| 4 | c0ffee |"]


@pytest.mark.slow
def test_the_command_runs_skips_what_is_done_and_reports_what_failed(tmp_path):
    description = tmp_path / "tiny.toml"
    description.write_text(TINY)
    command = [sys.executable, "-m", "experiments", str(description), "--quick", "--json", "--out", str(tmp_path)]
    first = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert first.returncode == 1
    assert "FAILED: ScenarioError" in first.stderr
    assert msgspec.json.decode(first.stdout, type=Outcome).axes == {"traffic.0.senders": 1}
    second = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "2 points, 1 done before" in second.stderr


def test_a_table_that_is_wider_than_a_page_becomes_several_with_numbered_rows() -> None:
    rows = [["a" * 40, "b" * 40, "c" * 40, "d"], ["1", "2", "3", "4"]]
    assert make_lines(rows) == [
        f"| # | {'a' * 40} | {'b' * 40} |",
        "|---:|---:|---:|",
        "| 1 | 1 | 2 |",
        "",
        f"| # | {'c' * 40} | d |",
        "|---:|---:|---:|",
        "| 1 | 3 | 4 |",
    ]
