import pytest

from vivum.core.errors import UsageError
from vivum.core.ids import Endpoint
from vivum.runtime.metrics import Metric, metrics_place, metrics_text


def test_a_port_alone_is_on_loopback():
    assert metrics_place(9100) == metrics_place("9100") == Endpoint("127.0.0.1", 9100)
    assert metrics_place("10.0.0.5:9100") == Endpoint("10.0.0.5", 9100)


@pytest.mark.parametrize("place", ["", "http", "10.0.0.5", ":9100", "1:²", 70_000, -1])
def test_what_is_no_place_is_refused_with_examples(place):
    with pytest.raises(UsageError, match="give a port, as in 9100"):
        metrics_place(place)


def test_counters_and_gauges_have_help_type_and_labels():
    text = metrics_text(
        [Metric("frames_total", "Frames", 12, is_counter=True), Metric("load", "Load", 0.5)],
        {"domain": 'a "b"\n', "node": "x"},
    )
    labels = '{domain="a \\"b\\"\\n",node="x"}'
    assert text == (
        "# HELP vivum_frames_total Frames\n# TYPE vivum_frames_total counter\n"
        f"vivum_frames_total{labels} 12\n"
        "# HELP vivum_load Load\n# TYPE vivum_load gauge\n"
        f"vivum_load{labels} 0.5\n"
    )
