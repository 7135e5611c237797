import pytest
from experiments.description import CurveSpec, Experiment, MeasureSpec, PlotSpec, QuickSpec
from experiments.results import Outcome, Spread, summarize


def runs():
    return [
        Outcome("k", {"nodes": nodes, "variant": variant}, seed, "c", "s", 1.0, 1.0, {"rate": rate + seed})
        for nodes, variant, rate in [(20, "a", 2.0), (10, "a", 1.0), (10, "b", 5.0)]
        for seed in (1, 2, 3)
    ]


def plot(**changes):
    return PlotSpec("p.png", "A plot", "nodes", {"rate": ""}, "x", "y", **changes)


def lines(spec):
    plotting = pytest.importorskip("experiments.plotting")
    return list(plotting.lines_of(spec, summarize(runs())))


def test_a_line_has_the_spread_of_the_seeds_at_each_place():
    assert lines(plot(by="variant")) == [
        ("a", [10, 20], [Spread(3, 2, 4), Spread(4, 3, 5)]),
        ("b", [10], [Spread(7, 6, 8)]),
    ]


def test_points_are_chosen_by_their_axes():
    assert lines(plot(where={"variant": "b"})) == [("", [10], [Spread(7, 6, 8)])]
    assert lines(plot(only_axes=["nodes"])) == []


@pytest.mark.slow
def test_a_picture_of_the_same_results_is_the_same_file(tmp_path):
    plotting = pytest.importorskip("experiments.plotting")
    curves = {"others": CurveSpec([10, 20], [1, 0])}
    experiment = Experiment("t", "f", {}, [], QuickSpec([]), MeasureSpec(), plots=[plot(by="variant", curves=curves)])
    (first,), (second,) = (plotting.draw(experiment, runs(), tmp_path / name) for name in "ab")
    assert first.read_bytes() == second.read_bytes()
