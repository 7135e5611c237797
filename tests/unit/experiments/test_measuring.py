import msgspec
import pytest
from experiments.description import PointParameters
from experiments.measuring import StreamLog, datagrams_per_s, payload_bytes_per_s
from experiments.point import point

from vivum.core.time import MILLISECOND


def test_the_rates_of_a_link_count_all_headers():
    assert payload_bytes_per_s(100_000_000) == pytest.approx(11_963_589, abs=1)
    assert datagrams_per_s(100_000_000, 1000) == pytest.approx(11_726, abs=1)


def test_a_frame_is_acknowledged_from_its_sealing_to_its_stability():
    log = StreamLog()
    for now, sealed, stable in [(0, 10, 10), (1, 18, 10), (2, 26, 10), (3, 26, 18), (4, 26, 26)]:
        log.note(now, sealed, stable)
    # Frames 10 and 18: sealed at 1 and 2, stable at 3 and 4.
    assert log.acknowledge_times_ns() == [2, 2]


def test_frames_that_are_not_stable_yet_are_left_out():
    log = StreamLog()
    for now, sealed, stable in [(0, 0, 0), (1, 20, 0)]:
        log.note(now, sealed, stable)
    assert log.acknowledge_times_ns() == []


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


def test_a_point_is_a_function_of_its_parameters_and_its_seed(parameters):
    again = msgspec.convert(msgspec.to_builtins(parameters), PointParameters)
    assert point(parameters, 1) == point(again, 1)
