import msgspec
import pytest
from experiments.description import Experiment, load, names, points

from vivum.core.errors import UsageError
from vivum.sim.scenario import parse_scenario


def make(**changes):
    table = {
        "title": "t",
        "figures": "none",
        "scenario": {"nodes": 3, "protocol": "qsm", "traffic": [{"rate": 100, "start": "500ms"}]},
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
    assert point.parameters.scenario["traffic"][0]["senders"] == 2
    assert point.parameters.scenario["settings"] == {"cache_holders": 7}
    assert experiment.scenario["traffic"][0] == {"rate": 100, "start": "500ms"}


def test_a_variant_is_laid_over_the_scenario_and_the_last_node_is_named_by_the_number_of_nodes():
    faults = [{"kind": "pause", "at": "1s", "lasts": "1s", "nodes": ["$nodes"]}]
    experiment = make(variants={"sleep": {"faults": faults}}, sweep=[{"variant": ["sleep"], "nodes": [5]}])
    (point,) = points(experiment)
    assert point.parameters.scenario["faults"][0]["nodes"] == [5]


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
@pytest.mark.parametrize("quick", [True, False])
def test_every_point_of_every_experiment_is_a_scenario(name, quick):
    for each in points(load(name), quick=quick):
        parse_scenario(each.parameters.scenario, name)
