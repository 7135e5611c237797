import msgspec
import pytest
from experiments.description import PointParameters
from experiments.measuring.link import datagrams_per_s, payload_bytes_per_s
from experiments.measuring.probe import _times_between
from experiments.measuring.streams import StreamLog, _uncut
from experiments.point import point

from vivum.core.time import MILLISECOND, SECOND
from vivum.sim.scenario import parse_scenario


def test_the_rates_of_a_link_count_all_headers():
    assert payload_bytes_per_s(100_000_000) == pytest.approx(11_963_589, abs=1)
    assert datagrams_per_s(100_000_000, 1000) == pytest.approx(11_726, abs=1)


def test_a_frame_is_acknowledged_from_its_sealing_to_its_stability():
    log = StreamLog()
    for now, sealed, stable in [(0, 10, 10), (1, 18, 10), (2, 26, 10), (3, 26, 18), (4, 26, 26)]:
        log.note(now, sealed, stable)
    # Frames 10, 17 and 24: sealed at 1, 1 and 2; stable at 3, 3 and 4.
    assert log.acknowledged() == [(1, 2), (1, 2), (2, 2)]
    assert log.frames == 16


def test_frames_that_are_not_stable_yet_are_left_out():
    log = StreamLog()
    for now, sealed, stable in [(0, 0, 0), (1, 20, 0)]:
        log.note(now, sealed, stable)
    assert log.acknowledged() == []


def test_frames_of_the_end_are_left_out_since_only_the_quick_ones_of_them_are_known():
    # A token at 10 and at 20 makes all stable that came before; the measurement ends at 25.
    acknowledged = [(begin, 10 - begin) for begin in range(10)] + [(begin, 20 - begin) for begin in range(10, 20)]
    assert sum(_uncut(acknowledged, 25)) / 16 == sum([*range(1, 11), *range(5, 11)]) / 16
    assert _uncut([(0, 5)], 4) == []


@pytest.mark.parametrize(("every", "times"), [(None, 1), ("5s", 4), ("1s", 20)])
def test_it_is_known_how_often_a_fault_strikes_in_the_time_measured(every, times):
    table = {"kind": "pause", "at": "3s", "lasts": "500ms", "nodes": [2]} | ({"every": every} if every else {})
    (fault,) = parse_scenario({"nodes": 2, "duration": "30s", "faults": [table]}, "t").faults
    assert _times_between(fault, 3 * SECOND, 23 * SECOND) == times
    assert _times_between(fault, 0, 3 * SECOND) == 0


@pytest.fixture(scope="module")
def parameters():
    scenario = {
        "nodes": 4,
        "protocol": "qsm",
        "duration": "900ms",
        "checkers": [],
        "traffic": [{"rate": 1000, "size": 1000, "start": "500ms"}],
        "faults": [{"kind": "loss", "at": "710ms", "lasts": "10ms", "nodes": [4], "rate": 0.999}],
    }
    return PointParameters(scenario, 700 * MILLISECOND, 200 * MILLISECOND, MILLISECOND)


def test_a_point_measures_what_receivers_get_apart_from_the_perturbed_node(parameters):
    numbers = point(parameters, 1)
    assert numbers["rate_median"] == pytest.approx(1000, rel=0.02)
    assert numbers["perturbed_rate"] == pytest.approx(1000, rel=0.02)
    assert numbers["losses_link"] > 0
    assert numbers["repairs_received"] > 0
    assert numbers["frames_per_message"] == pytest.approx(1, rel=0.05)
    assert 0 < numbers["ack_ms_mean"] < 100
    assert numbers["regions"] == 1


def test_what_the_perturbed_node_misses_is_followed_until_it_is_repaired(parameters):
    numbers = point(parameters, 1)
    assert numbers["perturbations"] == 1
    assert 0.01 < numbers["missed_share"] < 0.1
    assert 0.01 < numbers["perturbed_loss"] < 0.1
    assert 1 < numbers["recover_ms_mean"] <= numbers["recover_ms_max"] < 100
    assert numbers["given_up_share"] == numbers["lives_ended"] == 0


def test_a_node_that_sleeps_is_behind_and_its_timers_are_late(parameters):
    fault = {"kind": "pause", "at": "710ms", "lasts": "150ms", "nodes": [4]}
    scenario = {**parameters.scenario, "faults": [fault]}
    numbers = point(msgspec.structs.replace(parameters, scenario=scenario), 1)
    assert 20 < numbers["timer_ms_perturbed"] <= 150
    assert numbers["timer_ms_receiver"] < 5
    assert 100 < numbers["behind_ms_each"] < 200
    # What came meanwhile waited in the socket.
    assert numbers["perturbed_loss"] == 0
    assert numbers["perturbed_kb_max"] > 50


def test_a_point_is_a_function_of_its_parameters_and_its_seed(parameters):
    again = msgspec.convert(msgspec.to_builtins(parameters), PointParameters)
    assert point(parameters, 1) == point(again, 1)
