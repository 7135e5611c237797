"""The cost model: which way the frames of a group go, and on which channels."""

from collections.abc import Mapping, Sequence

import pytest

from loose_streams import config
from vivum.core.ids import Channel, Endpoint, GroupId, NodeId
from vivum.core.ranges import RangeSet
from vivum.protocols.dissemination.ways import (
    HYBRID,
    PER_REGION,
    UNICAST,
    WAYS,
    Cost,
    Means,
    SpreadPlan,
    Way,
    cheapest,
    choose_destinations,
    spread_regions_max,
)
from vivum.protocols.membership.region_config import RegionConfig
from vivum.protocols.membership.service.regions import REGION_CHANNELS
from vivum.wire.spread import ENTRY_BYTES_MAX

MEANS = Means(multicast=True, frame_bytes=1472, spread_channels=256, address_cost=2.0)


@pytest.mark.parametrize(
    ("sizes", "way"),
    [
        pytest.param([1], UNICAST, id="nobody else"),
        pytest.param([2], UNICAST, id="one receiver: no address needed"),
        pytest.param([1, 1], UNICAST, id="one receiver, in another region"),
        pytest.param([3], PER_REGION, id="one region"),
        pytest.param([100], PER_REGION, id="one large region"),
        pytest.param([50, 50], PER_REGION, id="two large regions"),
        pytest.param([1, 1, 1], UNICAST, id="three nodes with nothing in common: an address costs more"),
        pytest.param([2, 2, 2], PER_REGION, id="three pairs"),
        pytest.param([2, 2, 2, 2], HYBRID, id="four pairs: three datagrams saved for one address"),
        pytest.param([1] * 10, HYBRID, id="ten nodes with nothing in common: the paper's application multicast"),
        pytest.param([2] * 32, HYBRID, id="many small regions"),
        pytest.param([1] * 200, UNICAST, id="more regions than the list of a frame holds, of one node each"),
        pytest.param([5] * 200, PER_REGION, id="more regions than the list of a frame holds"),
    ],
)
def test_the_cheapest_way_is_chosen(sizes: list[int], way: Way) -> None:
    assert cheapest(sizes, MEANS) is way


def test_costs_are_datagrams_copies_and_addresses() -> None:
    assert UNICAST.cost([2, 3], MEANS) == Cost(4, 4, 0)
    assert PER_REGION.cost([2, 3], MEANS) == Cost(2, 4, 0)
    # Nobody sends into the region where it is alone.
    assert PER_REGION.cost([1, 1, 1], MEANS) == Cost(2, 2, 0)
    hybrid = HYBRID.cost([2, 3], MEANS)
    assert hybrid is not None
    assert hybrid.addresses == 1
    assert 1 < hybrid.datagrams < 1.01
    assert hybrid.copies == 4 * hybrid.datagrams


def test_a_longer_list_costs_more_frames() -> None:
    costs = [cost.datagrams for regions in (2, 20, 80) if (cost := HYBRID.cost([1] * regions, MEANS))]
    assert len(costs) == 3
    assert costs == sorted(costs)
    assert costs[-1] > 1.4


def test_without_multicast_everything_is_unicast_and_without_channels_nothing_is_hybrid() -> None:
    assert cheapest([2] * 10, MEANS._replace(multicast=False)) is UNICAST
    assert cheapest([2] * 10, MEANS._replace(spread_channels=0)) is PER_REGION


def test_dearer_addresses_keep_groups_of_more_regions_by_region() -> None:
    for cost in (0.0, 1.0, 2.0, 5.0, 20.0):
        means = MEANS._replace(address_cost=cost)
        ways = [cheapest([3] * regions, means) for regions in range(2, 40)]
        first = ways.index(HYBRID)
        # From some number of regions on, and then for all that are more.
        assert set(ways[:first]) <= {PER_REGION}
        assert set(ways[first:]) == {HYBRID}
        assert abs(2 + first - (1 + cost)) <= 1.5


@pytest.mark.parametrize("frame_bytes", [64, 128, 256, 1472, 9000, 60_000])
def test_the_list_leaves_room_for_messages_whatever_the_frame(frame_bytes: int) -> None:
    regions = spread_regions_max(frame_bytes)
    left = frame_bytes - 40 - 16 - regions * ENTRY_BYTES_MAX - 16 - 4
    assert left >= frame_bytes // 8 or not regions
    assert cheapest([1] * (regions + 1), MEANS._replace(frame_bytes=frame_bytes)) is not HYBRID


# Destinations.

CHANNEL = Channel(9)
ENDPOINTS = {NodeId(number): Endpoint("10.0.0.1", number) for number in range(1, 6)}


def where(others: int, *, multicast: bool = True, ways: tuple[Way, ...] = WAYS) -> tuple[Endpoint | Channel, ...]:
    nodes = [NodeId(number) for number in range(2, 2 + others)]
    return choose_destinations(nodes, CHANNEL, ENDPOINTS, multicast, ways)


def test_a_region_of_two_gets_unicast_and_a_larger_one_its_channel() -> None:
    assert where(0) == ()
    assert where(1) == (ENDPOINTS[NodeId(2)],)
    assert where(2) == where(4) == (CHANNEL,)
    assert where(4, multicast=False) == tuple(ENDPOINTS[NodeId(number)] for number in (2, 3, 4, 5))


class Relay:
    """A copy to the first member, which passes it on."""

    spans_regions = False

    def cost(self, sizes: Sequence[int], means: Means) -> Cost | None:
        return Cost(len(sizes), 2 * (sum(sizes) - 1), 0)

    def destinations(
        self, others: Sequence[NodeId], channel: Channel, endpoints: Mapping[NodeId, Endpoint]
    ) -> tuple[Endpoint | Channel, ...]:
        return (endpoints[others[0]],)


def test_a_further_way_is_chosen_where_it_is_cheapest_and_nowhere_else() -> None:
    ways = (*WAYS, Relay())
    assert where(1, ways=ways) == where(1)
    assert where(4, ways=ways) == (CHANNEL,)
    assert where(4, multicast=False, ways=ways) == (ENDPOINTS[NodeId(2)],)


# Plans.

FREE = MEANS._replace(address_cost=0)
"""Addresses cost nothing: every group of several regions has a channel."""


def regions_of(*groups: tuple[int, ...], nodes: int = 2) -> list[RegionConfig]:
    """Make regions 1, 2, ... that cover these ranges of groups."""
    return [config(region, 1, nodes, bounds) for region, bounds in enumerate(groups, 1)]


def plan(own: int, regions: list[RegionConfig]) -> SpreadPlan:
    return SpreadPlan(regions[own - 1], regions, FREE)


def test_groups_of_one_region_have_no_channel_and_those_of_several_have_one() -> None:
    regions = regions_of((1, 5), (3, 9), (20, 30))
    found = plan(1, regions)
    assert [group for group in range(40) if found.channel_of(GroupId(group)) is not None] == [3, 4]
    (channel,) = found.channels
    assert REGION_CHANNELS <= channel < REGION_CHANNELS + 256


def test_groups_with_the_same_regions_share_a_channel() -> None:
    regions = regions_of((1, 5, 10, 12), (1, 20), (3, 5))
    found = plan(1, regions)
    assert found.channel_of(1) == found.channel_of(2) == found.channel_of(10) == found.channel_of(11)
    assert found.channel_of(3) == found.channel_of(4) != found.channel_of(1)
    assert found.channel_of(15) is None, "not a group of ours"


def test_all_members_of_a_group_plan_the_same_though_they_know_different_regions() -> None:
    everything = regions_of((1, 7), (5, 20), (2, 8, 15, 16), (15, 18), (6, 7), (100, 200))
    covered = {each.region: RangeSet.from_bounds(each.groups) for each in everything}
    near = {
        own.region: [each for each in everything if covered[own.region].intersection(covered[each.region])]
        for own in everything
    }
    plans = {own.region: SpreadPlan(own, near[own.region], FREE) for own in everything}
    for group in range(250):
        channels = {plans[own.region].channel_of(group) for own in everything if group in covered[own.region]}
        assert len(channels) <= 1, f"group {group}"


def test_channels_are_a_budget() -> None:
    # 500 groups, each with a pair of regions of its own beside ours.
    ours = config(1, 1, 2, (1, 501))
    regions = [ours, *(config(number + 1, 1, 2, (number, number + 1)) for number in range(1, 501))]
    assert len(SpreadPlan(ours, regions, FREE._replace(spread_channels=16)).channels) <= 16
    found = SpreadPlan(ours, regions, FREE)
    assert 200 < len(found.channels) <= 256
    assert not SpreadPlan(ours, regions, FREE._replace(spread_channels=0)).channels
    found = SpreadPlan(ours, regions, FREE._replace(spread_channels=1 << 20))
    assert max(found.channels) < 1 << 16, "a driver has no address for more"


def test_many_groups_with_one_region_cost_one_look() -> None:
    ours = config(1, 1, 100, (1, 8193))
    found = SpreadPlan(ours, [ours], FREE)
    assert not found.channels
    assert found.channel_of(5000) is None
