"""Senders share the rate of a region: evenly if all want it, and else so that nothing of it is lost."""

from typing import Any

import pytest

from vivum.core.ids import NodeId
from vivum.core.time import MILLISECOND, SECOND
from vivum.sim.scenario import parse_scenario
from vivum.sim.world import World

pytestmark = pytest.mark.slow


def delivered(traffic: list[dict[str, Any]]) -> float:
    """Messages a second at a receiver in the half second that ends after 2.5 s, on links of 100 Mb/s."""
    scenario = parse_scenario(
        {
            "nodes": 4,
            "protocol": "qsm",
            "duration": "3s",
            "checkers": [],
            "network": {"bandwidth": "100Mbit", "egress_bytes": 32768},
            "host": {"receive_cost": "100us", "send_cost": "20us"},
            "traffic": [{"size": 1000, "start": "200ms", **each} for each in traffic],
        },
        "rates",
    )
    world = World(scenario, 1, frames=False, checked=False)
    world.start()
    counts = []
    for at_ns in (2000 * MILLISECOND, 2500 * MILLISECOND):
        world.advance_to(at_ns)
        node = world.hosts[NodeId(4)].node
        assert node is not None
        counts.append(node.counters.messages_delivered)
    return (counts[1] - counts[0]) * SECOND / (500 * MILLISECOND)


def test_a_fast_sender_is_not_held_down_by_a_slow_one() -> None:
    """Ours: the slow one's share was lost, less came than was allowed, and the rate stayed at 12 % of the link."""
    assert delivered([{"senders": [1], "rate": "max"}, {"senders": [2], "rate": 50}]) > 10_500


def test_two_senders_together_fill_the_link() -> None:
    assert delivered([{"senders": [1, 2], "rate": "max"}]) > 10_500
