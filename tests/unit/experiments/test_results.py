import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from experiments import results
from experiments.description import (
    ColumnSpec,
    Experiment,
    MeasureSpec,
    PlotSpec,
    Point,
    PointParameters,
    QuickSpec,
    TargetSpec,
)
from experiments.pages import make_results, make_targets, write_between
from experiments.results import SIMULATED, Outcome, Spread, compared, outcomes_of, pending, summarize
from experiments.tables import format_spread, make_lines, make_table

ROOT = Path(results.__file__).parents[1]


def outcome(axes, rate, source="abc", key="k", seed=1):
    return Outcome(key, axes, seed, "c0ffee", source, 1.0, 30.0, {"rate_median": rate})


def experiment(**changes):
    return Experiment("t", "f", {"nodes": 2}, [], QuickSpec([]), MeasureSpec(), **changes)


def test_finished_points_are_skipped_only_for_the_code_that_finished_them():
    point = Point({"nodes": 3}, PointParameters({"nodes": 3}, 1, 1, 1), 1)
    done = {point.key: outcome({"nodes": 3}, 5.0, source="old")}
    assert pending([point], done, "old") == []
    assert pending([point], done, "new") == [point]
    assert outcomes_of([point], done) == list(done.values())


def test_rates_are_compared_with_the_point_that_differs_only_by_the_baseline():
    every = [
        outcome({"nodes": n, "variant": v}, r) for n, v, r in [(1, "a", 10), (1, "b", 9), (2, "a", 5), (2, "b", 4)]
    ]
    assert [each.numbers["rate_relative"] for each in compared(every, {"variant": "a"})] == [1, 0.9, 1, 0.8]
    assert compared(every, {}) == every


def test_each_seed_is_compared_with_itself():
    every = [outcome({"variant": v}, rate, seed=seed) for v, seed, rate in [("a", 1, 10), ("a", 2, 20), ("b", 2, 10)]]
    assert [each.numbers["rate_relative"] for each in compared(every, {"variant": "a"})] == [1, 1, 0.5]


def test_seeds_of_a_point_are_put_together_with_their_spread():
    every = [
        outcome({"nodes": n}, rate, seed=seed) for n, seed, rate in [(2, 1, 7), (3, 1, 10), (3, 2, 11), (3, 3, 15)]
    ]
    every[1].numbers["recover_ms_mean"] = 4.0
    two, three = summarize(every)
    assert (two.axes, two.seeds, two.numbers["rate_median"]) == ({"nodes": 2}, (1,), Spread(7, 7, 7))
    assert (three.seeds, three.numbers["rate_median"]) == ((1, 2, 3), Spread(12, 10, 15))
    assert three.numbers["rate_median"].deviation == 3
    assert three.numbers["recover_ms_mean"] == Spread(4, 4, 4)


def test_a_spread_is_told_only_where_the_seeds_differ_to_the_decimals_shown():
    assert format_spread(Spread(11410.2, 11406.1, 11412.0)) == "11,410 ± 4"
    assert format_spread(Spread(0.9543, 0.9541, 0.9546), 1, 100) == "95.4"
    assert format_spread(Spread(0.9543, 0.9521, 0.9546), 1, 100) == "95.4 ± 0.2"


def test_a_table_shows_means_and_spread_and_names_code_and_seeds():
    columns = [ColumnSpec("rate_median", "rate", 1), ColumnSpec("nodes", "nodes"), ColumnSpec("nothing", "nothing")]
    every = [outcome({"nodes": 3}, rate, seed=seed) for seed, rate in [(1, 1234.5), (2, 1234.7)]]
    lines = make_table(experiment(table=columns), every).splitlines()
    # What tells rows apart comes first.
    assert lines[:3] == ["| nodes | rate | nothing |", "|---:|---:|---:|", "| 3 | 1,234.6 ± 0.1 | – |"]
    assert lines[-1] == "Commit c0ffee (sources abc); seeds 1, 2. Measured for 1s after 1s."


def test_a_table_tells_of_each_row_when_it_was_measured_if_that_is_not_the_same_for_all():
    described = experiment(
        table=[ColumnSpec("variant", "variant")], variants={"a": {"measure": {"duration": "9s"}}, "b": {}}
    )
    lines = make_table(described, [outcome({"variant": name}, 1.0) for name in "ab"]).splitlines()
    assert lines[0] == "| variant | measured for | after |"
    assert lines[2:4] == ["| a | 9s | 1s |", "| b | 1s | 1s |"]
    assert lines[-1] == "Commit c0ffee (sources abc); seeds 1."


def test_results_are_written_between_their_marks(tmp_path):
    plot = PlotSpec("a.png", "A picture", "nodes", {}, "", "")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- results: begin -->\nold\n<!-- results: end -->\nafter\n")
    described = experiment(plots=[plot], table=[ColumnSpec("nodes", "nodes")])
    write_between(page, "results", make_results(described, [outcome({"nodes": 3}, 1.0)]))
    text = page.read_text()
    assert text.startswith("before\n<!-- results: begin -->\n![A picture](a.png)\n\n| nodes |")
    assert text.endswith("1s.\n<!-- results: end -->\nafter\n")
    assert "old" not in text
    with pytest.raises(ValueError, match="has no '<!-- other: begin -->'"):
        write_between(page, "other", "")


def test_a_target_is_judged_by_the_worst_of_all_runs():
    target = TargetSpec("fast", "rate_median", 0.95, {"nodes": 3})
    runs = [outcome({"nodes": n}, rate, seed=seed) for n, seed, rate in [(2, 1, 0.1), (3, 1, 0.97), (3, 2, 0.96)]]

    def told(least):
        return make_targets([(experiment(targets=[msgspec.structs.replace(target, least=least)]), runs)])

    assert told(0.95).startswith("- fast: at least 95 %; the lowest of all runs 96.0 %: met.\n")
    assert told(0.965).startswith("- fast: at least 96.5 %; the lowest of all runs 96.0 %: **missed**.\n")
    assert told(0.95).endswith("Commit c0ffee (sources abc): 2 points, 3 runs, 0.0 hours of one core.")
    assert make_targets([(experiment(targets=[target]), runs[:1])]).startswith("- fast: not measured.")


def test_a_simulation_runs_nothing_of_vivum_that_the_digest_of_the_code_leaves_out():
    run = """
import sys
from experiments.description import PointParameters
from experiments.point import point
scenario = {"nodes": 2, "protocol": "qsm", "checkers": [], "duration": "30ms", "traffic": [{"start": "10ms"}]}
point(PointParameters(scenario, 20_000_000, 10_000_000, 1_000_000), 1)
print({name.split(".")[1] for name in sys.modules if name.startswith("vivum.")})
"""
    done = subprocess.run([sys.executable, "-c", run], cwd=ROOT, capture_output=True, text=True, check=True)
    assert eval(done.stdout) <= {name.removesuffix(".py") for name in SIMULATED}


def test_a_table_that_is_wider_than_a_page_becomes_several_with_the_columns_that_tell_rows_apart():
    rows = [["key", "a" * 40, "b" * 40, "c" * 40, "d"], ["1", "2", "3", "4", "5"]]
    assert make_lines(rows, 1) == [
        f"| key | {'a' * 40} | {'b' * 40} |",
        "|---:|---:|---:|",
        "| 1 | 2 | 3 |",
        "",
        f"| key | {'c' * 40} | d |",
        "|---:|---:|---:|",
        "| 1 | 4 | 5 |",
    ]
