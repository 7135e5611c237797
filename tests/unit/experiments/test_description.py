import msgspec
import pytest
from experiments.description import Experiment, PointParameters, load, names, points, shortened
from experiments.point import point

from vivum.core.errors import UsageError
from vivum.core.time import MILLISECOND
from vivum.sim.scenario import parse_scenario


def make(**changes):
    table = {
        "title": "t",
        "figures": "none",
        "scenario": {"nodes": 3, "protocol": "qsm", "traffic": [{"rate": 100, "start": "500ms"}]},
        "seeds": [1],
        "sweep": [{"nodes": [3, 4], "traffic.0.senders": [1, 2]}],
        "quick": {"sweep": [{"nodes": [3]}]},
    }
    return msgspec.convert({**table, **changes}, Experiment)


def test_points_are_the_product_of_every_grid():
    grids = [{"nodes": [3, 4], "traffic.0.senders": [1, 2]}, {"nodes": [9]}]
    axes = [each.axes for each in points(make(sweep=grids))]
    assert [tuple(each.values()) for each in axes] == [(3, 1), (3, 2), (4, 1), (4, 2), (9,)]


def test_a_path_reaches_into_lists_and_makes_tables():
    experiment = make(sweep=[{"traffic.0.senders": [2], "settings.cache_holders": [7]}])
    (point,) = points(experiment)
    assert [each["senders"] for each in point.parameters.scenario["traffic"]] == [[1], [2]]
    assert point.parameters.scenario["settings"] == {"cache_holders": 7}
    assert experiment.scenario["traffic"][0] == {"rate": 100, "start": "500ms"}


def test_a_variant_is_laid_over_the_scenario_and_the_last_node_is_named_by_the_number_of_nodes():
    faults = [{"kind": "pause", "at": "1s", "lasts": "1s", "nodes": ["$nodes"]}]
    experiment = make(variants={"sleep": {"faults": faults}}, sweep=[{"variant": ["sleep"], "nodes": [5]}])
    (point,) = points(experiment)
    assert point.parameters.scenario["faults"][0]["nodes"] == [5]


def test_a_path_with_commas_sets_several_keys_to_the_same_value():
    (point,) = points(make(sweep=[{"settings.token_busy_ns_min,settings.token_busy_ns_max": [7]}]))
    assert point.parameters.scenario["settings"] == {"token_busy_ns_min": 7, "token_busy_ns_max": 7}


def test_variants_are_laid_over_each_other_in_their_order_and_say_when_to_measure():
    variants = {
        "slow": {"measure": {"duration": "8s", "warm_up": "3s"}, "settings": {"cache_holders": 1}},
        "sleep": {"measure": {"duration": "9s"}, "faults": []},
    }
    (point,) = points(make(variants=variants, sweep=[{"variant.settings": ["slow"], "variant": ["sleep"]}]))
    assert (point.parameters.warm_up_ns, point.parameters.duration_ns) == (3_000_000_000, 9_000_000_000)
    assert point.parameters.scenario["settings"] == {"cache_holders": 1}
    assert "measure" not in point.parameters.scenario


def test_the_quick_form_is_short_whatever_variants_say():
    variants = {"slow": {"measure": {"duration": "8s", "warm_up": "3s"}}}
    quick = {"sweep": [{"variant": ["slow"]}], "duration": "100ms"}
    (point,) = points(shortened(make(variants=variants, quick=quick)))
    assert (point.parameters.warm_up_ns, point.parameters.duration_ns) == (3_000_000_000, 100_000_000)


def test_variants_that_several_experiments_have_are_known_to_all():
    assert load("scaling").variants["paper's settings"] == load("load").variants["paper's settings"]


def test_every_seed_lets_every_sender_and_every_fault_begin_at_another_moment():
    faults = [{"kind": "pause", "at": "2s", "lasts": "1s", "nodes": [3]}]
    scenario = {"nodes": 3, "protocol": "qsm", "traffic": [{"senders": 2, "start": "500ms"}], "faults": faults}
    experiment = make(scenario=scenario, seeds=[1, 2, 3], sweep=[{"measure.duration": ["3s"]}])
    scenarios = [parse_scenario(each.parameters.scenario, "t") for each in points(experiment)]
    starts = [traffic.start for each in scenarios for traffic in each.traffic]
    strikes = [fault.at for each in scenarios for fault in each.faults]
    assert len(set(starts)) == 6
    assert len(set(strikes)) == 3
    assert all(500_000_000 <= start <= 600_000_000 for start in starts)
    assert all(2_000_000_000 <= at <= 2_100_000_000 for at in strikes)
    assert [each.parameters for each in points(experiment)] == [each.parameters for each in points(experiment)]


def test_when_a_point_is_measured_may_vary():
    (point,) = points(make(sweep=[{"measure.warm_up": ["3s"], "measure.duration": ["2s"]}]))
    assert (point.parameters.warm_up_ns, point.parameters.duration_ns) == (3_000_000_000, 2_000_000_000)
    assert point.parameters.scenario["duration"] == "5s"


def test_an_unknown_variant_is_refused():
    with pytest.raises(UsageError, match="'sleep' is unknown"):
        points(make(sweep=[{"variant": ["sleep"]}]))


def test_an_unknown_experiment_is_refused_with_those_that_there_are():
    with pytest.raises(UsageError, match="scaling"):
        load("nonsense")


def test_the_key_of_a_point_tells_parameters_and_seeds_apart():
    every = points(make(seeds=[1, 2]))
    keys = {each.parameters.digest(each.seed) for each in every}
    assert len(keys) == len(every) == 8


@pytest.mark.parametrize("name", names())
def test_every_experiment_has_three_seeds_a_point(name):
    assert len(load(name).seeds) == 3


@pytest.mark.parametrize("name", names())
def test_what_is_shown_is_an_axis_or_a_number_that_is_measured(name, numbers):
    experiment = load(name)
    axes = {path for grid in experiment.sweep for path in grid}
    known = axes | numbers | {"rate_relative", "wall_s", "rss_mb", "traffic.0.rate"}
    shown = [column.value for column in experiment.table] + [target.value for target in experiment.targets]
    shown += [each for plot in experiment.plots for each in (plot.x, *plot.y)]
    assert [each for each in shown if each not in known] == []
    compared = {path for plot in experiment.plots for path in (*plot.where, *plot.only_axes)}
    assert compared | {path for target in experiment.targets for path in target.where} <= axes


@pytest.fixture(scope="module")
def numbers():
    """Names of all that is measured, as far as rings have up to four levels."""
    scenario = {
        "nodes": 9,
        "protocol": "qsm",
        "checkers": [],
        "duration": "500ms",
        "settings": {"ring_nodes_max": 2},
        "traffic": [{"rate": 1000, "size": 100, "start": "100ms"}],
        "faults": [{"kind": "loss", "at": "160ms", "lasts": "10ms", "nodes": [9], "rate": 0.999}],
    }
    found = point(PointParameters(scenario, 150 * MILLISECOND, 350 * MILLISECOND, MILLISECOND), 1)
    assert found["token_levels"] == 4
    return set(found)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("quick", [True, False])
def test_every_point_of_every_experiment_is_a_scenario(name, quick):
    experiment = load(name)
    for each in points(shortened(experiment) if quick else experiment):
        parse_scenario(each.parameters.scenario, name)
