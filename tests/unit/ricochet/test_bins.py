"""Repair bins: what goes into one XOR, to whom, how often, and what it costs."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from vivum.core.ids import Channel, Incarnation, Member, NodeId, RegionId, ViewNumber
from vivum.core.time import MILLISECOND
from vivum.protocols.membership.region_config import RegionConfig
from vivum.protocols.ricochet.bins import Repair, RepairBins
from vivum.protocols.ricochet.settings import TimelySettings
from vivum.protocols.ricochet.tuning import choose, recovered_share


def member(node: int) -> Member:
    return Member(NodeId(node), Incarnation(1))


ME = member(1)


def region(number: int, *nodes: int) -> RegionConfig:
    members = tuple(map(member, nodes))
    return RegionConfig(RegionId(number), ViewNumber(1), Channel(number), members, tuple(nodes), (1, 100), {})


def fill(
    bins: RepairBins, config: RegionConfig, share: float, count: int, gap_ns: int = 1, sender: int = 99
) -> list[Repair]:
    made: list[Repair] = []
    for number in range(count):
        now_ns = number * gap_ns
        lane = bins.of(now_ns, config, ME)
        made += bins.add(now_ns, lane, (sender, 1, 5 + number % 7, number), b"x", share)
    return made


def test_copies_go_to_the_regions_of_a_group_by_size_and_cost_c_over_r() -> None:
    settings = TimelySettings(stride=1)
    bins = RepairBins(settings, Random(1))
    large, small = region(1, *range(1, 31)), region(2, *range(40, 50))
    made = {config.region: fill(bins, config, share, 8000) for config, share in ((large, 0.75), (small, 0.25))}
    sent = {number: sum(len(each.frames) for each in repairs) for number, repairs in made.items()}
    # Each frame is in c copies: 5 of 8,000 frames, three quarters of them in the large region.
    assert sent[large.region] == pytest.approx(8000 * 5 * 0.75, rel=0.02)
    assert sent[small.region] == pytest.approx(8000 * 5 * 0.25, rel=0.02)
    assert sum(map(len, made.values())) == pytest.approx(8000 * 5 / 8, rel=0.05)


def test_targets_are_all_members_alike_but_oneself() -> None:
    bins = RepairBins(TimelySettings(stride=1), Random(1))
    got = Counter(each.target.node for each in fill(bins, region(1, *range(1, 12)), 1.0, 8000))
    assert 1 not in got
    assert len(got) == 10
    assert max(got.values()) < 1.2 * min(got.values())


def test_nobody_gets_its_own_frames_back() -> None:
    bins = RepairBins(TimelySettings(stride=1), Random(1))
    made = fill(bins, region(1, 1, 2, 3), 1.0, 80, sender=2)
    assert {each.target.node for each in made} == {3}


def test_frames_that_follow_each_other_are_in_different_xors_as_far_as_the_stride_goes() -> None:
    settings = TimelySettings(stride=20)
    bins = RepairBins(settings, Random(1))
    # 8,000 frames a second: 20 bins of 8 are full in 20 ms, which is less than `fill_ns`.
    made = fill(bins, region(1, *range(1, 12)), 1.0, 4000, gap_ns=MILLISECOND // 8)
    for repair in made[-200:]:
        numbers = [each.name[3] for each in repair.frames]
        assert len(numbers) == 8
        assert all(after - before >= 20 for before, after in pairwise(numbers))


def test_few_frames_a_second_fill_few_bins_and_what_waits_too_long_is_sent_for_its_part_of_the_cost() -> None:
    settings = TimelySettings()
    bins = RepairBins(settings, Random(1))
    config = region(1, *range(1, 12))
    made: list[Repair] = []
    for number in range(4000):
        now_ns = number * 10 * MILLISECOND
        made += bins.close_old(now_ns)
        made += bins.add(now_ns, bins.of(now_ns, config, ME), (99, 1, 5, number), b"x", 1.0)
    copies = sum(len(each.frames) for each in made)
    sent = len(made)
    assert copies < 8 * sent, "they leave before they are full"
    assert sent == pytest.approx(4000 * 5 / 8, rel=0.1), "and cost what full ones cost"


def test_a_new_view_of_a_region_begins_with_empty_bins() -> None:
    bins = RepairBins(TimelySettings(), Random(1))
    fill(bins, region(1, 1, 2, 3), 1.0, 3)
    assert not bins.is_empty
    bins.of(0, region(1, 1, 2), ME)
    assert bins.is_empty


def test_the_cheapest_setting_is_chosen_that_repairs_the_wanted_share() -> None:
    for loss in (0.001, 0.01, 0.05):
        frames, copies = choose(loss, 0.95, 0.625, 16)
        assert recovered_share(frames, copies, loss) >= 0.95 - 1e-9
        assert copies / frames <= 0.625
    assert choose(0.001, 0.9, 0.625, 16)[0] == 16
    costs = [copies / frames for frames, copies in (choose(loss, 0.9, 0.625, 16) for loss in (0.001, 0.01, 0.1))]
    assert costs == sorted(costs)


def test_where_no_setting_repairs_enough_the_whole_overhead_is_spent() -> None:
    frames, copies = choose(0.25, 0.99, 0.625, 32)
    assert copies / frames == pytest.approx(0.625)
    best = max(recovered_share(each, 0.625 * each, 0.25) for each in range(1, 33))
    assert recovered_share(frames, copies, 0.25) == pytest.approx(best)
