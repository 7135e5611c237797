"""How long a point will take: to begin with the longest ones, and to say how long a sweep lasts.

A guess from what the time depends on, within a factor of two: frames that arrive, tokens, and groups that are joined.
"""

from statistics import fmean
from typing import Any

from experiments.description import PointParameters
from vivum.core.time import SECOND, parse_duration_ns

ARRIVALS_PER_S = 72_000
"""Frames that one core of the reference machine makes arrive in a second, with all that nodes do about them."""

LINK_FRAMES_PER_S = 8_150
"""Full frames that a link of 100 Mb/s carries: nothing goes faster."""

TOKENS_PER_S = 500
"""Tokens and receipts of a node, in terms of arrivals."""

JOIN_S = 0.000004
"""Seconds for one node to join one group."""


def estimate_s(parameters: PointParameters) -> float:
    """Return the seconds that a point takes on one core, more or less."""
    scenario = parameters.scenario
    nodes: int = scenario["nodes"]
    groups: dict[str, Any] = scenario.get("groups", {})
    end_s = (parameters.warm_up_ns + parameters.duration_ns) / SECOND
    frames = sum(_frames_per_s(each) for each in scenario["traffic"]) * _share_of_nodes(nodes, groups)
    start_s = fmean(parse_duration_ns(each.get("start", "0s")) for each in scenario["traffic"]) / SECOND
    arrivals = nodes * max(0.0, end_s - start_s) * (min(frames, LINK_FRAMES_PER_S) + TOKENS_PER_S)
    joined: int = nodes * groups.get("count", 1)
    return arrivals / ARRIVALS_PER_S + JOIN_S * joined


def _frames_per_s(traffic: dict[str, Any]) -> float:
    # A rate that is none fails when the point runs, which is the place to tell of it.
    rate = traffic.get("rate", 1000)
    return LINK_FRAMES_PER_S if isinstance(rate, str) else float(rate)


def _share_of_nodes(nodes: int, groups: dict[str, Any]) -> float:
    """Return which share of all nodes a message reaches, in the mean."""
    count = groups.get("count", 1)
    if groups.get("pattern") == "random":
        return float(groups.get("members", 3) / nodes)
    if groups.get("pattern") == "hierarchical":
        # All nodes, then two halves, four quarters and so on.
        return float(int(count).bit_length() / count)
    return 1.0
