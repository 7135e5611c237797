import pytest
from experiments.cost import ARRIVALS_PER_S, LINK_FRAMES_PER_S, TOKENS_PER_S, estimate_s
from experiments.description import PointParameters, load, names, points

from vivum.core.time import SECOND


def estimate(nodes=10, end_s=2, rate="max", **more):
    traffic = [{"rate": rate, "start": "1s", "senders": [1]}]
    return estimate_s(PointParameters({"nodes": nodes, "traffic": traffic, **more}, SECOND, (end_s - 1) * SECOND, 1))


def test_a_point_takes_as_long_as_its_frames_and_tokens_need():
    full = 10 * (LINK_FRAMES_PER_S + TOKENS_PER_S) / ARRIVALS_PER_S
    assert estimate() == pytest.approx(full, rel=0.01)
    assert estimate(nodes=20, end_s=3) == pytest.approx(4 * full, rel=0.01)
    assert estimate(rate=100_000) == estimate()
    assert estimate(rate=100) < estimate() / 10


def test_groups_of_few_members_cost_less_and_joining_many_costs_more():
    assert estimate(nodes=64, groups={"count": 63, "pattern": "hierarchical"}) < estimate(nodes=64) / 2
    assert estimate(nodes=64, groups={"count": 63, "pattern": "random", "members": 10}) < estimate(nodes=64) / 2
    assert estimate(groups={"count": 8192}) > estimate() + 0.3


def test_all_experiments_together_take_less_than_four_hours_on_two_cores():
    seconds = [estimate_s(each.parameters) for name in names() for each in points(load(name))]
    assert sum(seconds) / 2 < 2 * 3600
    assert max(seconds) < 15 * 60
