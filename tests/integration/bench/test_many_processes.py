"""Many real processes in one region, at a low rate: all deliver everything."""

import pytest

from vivum.bench.cell import Cell, measure
from vivum.bench.throughput import our_system


@pytest.mark.soak
def test_110_processes_in_one_region_deliver_everything():
    cell = Cell(1000, 109, 20.0, options={"per_s": 100.0, "batch": 5}, patience_s=300.0)
    outcome = measure(our_system(), cell, warm_s=5.0)
    assert [outcome.total(key) for key in ("lost", "duplicated", "out_of_order")] == [0, 0, 0]
    assert len(outcome.received) == 109
    assert outcome.per_s_min > 50


@pytest.mark.slow
def test_12_processes_in_one_region_deliver_everything():
    cell = Cell(1000, 11, 2.0, options={"per_s": 200.0, "batch": 5})
    outcome = measure(our_system(), cell)
    assert [outcome.total(key) for key in ("lost", "duplicated", "out_of_order")] == [0, 0, 0]
