from time import perf_counter

import pytest

from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.protocols.membership.service.regions import MemberPlacement, Regions, share_a_group


def member(node, incarnation=1):
    return Member(NodeId(node), Incarnation(incarnation))


def exact(age, *bounds):
    return MemberPlacement(age, Endpoint(f"h{age}", 1), bounds, bounds)


def shape(regions):
    return {region.key: tuple(each.node for each in region.members) for region in regions.all()}


def test_nodes_are_in_one_region_exactly_if_they_have_the_same_groups():
    """Seed 001, section 2: "nodes x and y are in the same region iff G(x) = G(y)"."""
    regions = Regions()
    groups = {1: (0, 4), 2: (0, 4), 3: (2, 6), 4: (0, 4, 5, 6), 5: (2, 6)}
    regions.apply({member(node): exact(node, *bounds) for node, bounds in groups.items()}, 1)
    assert shape(regions) == {(0, 4): (1, 2), (2, 6): (3, 5), (0, 4, 5, 6): (4,)}


def test_members_are_ranked_by_age_whatever_the_order_of_arrival():
    regions = Regions()
    regions.apply({member(7): exact(30, 0, 1)}, 1)
    regions.apply({member(9): exact(10, 0, 1), member(8): exact(20, 0, 1)}, 2)
    assert shape(regions) == {(0, 1): (9, 8, 7)}


def test_only_what_changed_gets_a_new_view():
    regions = Regions()
    regions.apply({member(1): exact(1, 0, 4), member(2): exact(2, 0, 4), member(3): exact(3, 8, 9)}, 1)
    near, far = regions.region_of(member(1)), regions.region_of(member(3))
    done = regions.apply({member(2): exact(2, 0, 5)}, 2)
    new = regions.region_of(member(2))
    assert {each.region for each in done.changed} == {near.region, new.region}
    assert (near.epoch, new.epoch, far.epoch) == (2, 2, 1)
    assert far not in done.concerned
    assert done.gone == ()


def test_a_region_goes_with_its_last_member_and_its_id_never_comes_back():
    regions = Regions()
    regions.apply({member(1): exact(1, 0, 4)}, 1)
    first = regions.region_of(member(1)).region
    assert [each.region for each in regions.apply({member(1): None}, 2).gone] == [first]
    regions.apply({member(1): exact(1, 0, 4)}, 3)
    assert regions.region_of(member(1)).region != first


def test_a_region_that_all_leave_and_another_enters_in_one_epoch_goes_on():
    regions = Regions()
    regions.apply({member(1): exact(1, 0, 4), member(2): exact(2, 4, 5)}, 1)
    region = regions.region_of(member(1))
    done = regions.apply({member(1): None, member(2): exact(2, 0, 4)}, 2)
    assert regions.region_of(member(2)) is region
    assert region.epoch == 2
    assert len(done.gone) == 1


def test_a_placement_that_says_nothing_new_changes_nothing():
    regions = Regions()
    regions.apply({member(1): exact(1, 0, 4)}, 1)
    done = regions.apply({member(1): exact(1, 0, 4), member(2): None}, 2)
    assert (done.changed, done.gone, done.concerned) == ((), (), ())
    assert regions.region_of(member(1)).epoch == 1


def test_who_shares_a_group_with_a_region_that_changed_or_went_is_concerned():
    regions = Regions()
    regions.apply({member(1): exact(1, 0, 4), member(2): exact(2, 3, 6), member(3): exact(3, 5, 9)}, 1)
    one, two, three = (regions.region_of(member(node)) for node in (1, 2, 3))
    assert regions.near(one) == [one, two]
    assert regions.near(two) == [one, two, three]
    done = regions.apply({member(1): None}, 2)
    assert done.concerned == (two,)
    assert (two.epoch, two.concern_epoch, three.concern_epoch) == (1, 2, 1)
    assert regions.near(two) == [two, three]


@pytest.mark.parametrize(
    ("a", "b", "shared"),
    [
        ((), (0, 9), False),
        ((0, 4), (4, 8), False),
        ((0, 5), (4, 8), True),
        ((0, 1, 8, 9), (2, 7), False),
        ((0, 1, 8, 9), (2, 7, 8, 9), True),
        ((5, 6), (0, 9), True),
    ],
)
def test_sharing_a_group(a, b, shared):
    assert share_a_group(a, b) is shared
    assert share_a_group(b, a) is shared


def test_a_change_costs_the_same_with_8192_groups_as_with_one():
    def seconds(groups):
        regions = Regions()
        start = perf_counter()
        for epoch in range(1, 2001):
            first = epoch % 7 * groups
            regions.apply({member(epoch % 50): exact(epoch % 50, first, first + groups)}, epoch)
        return perf_counter() - start

    # Within one run, and the best of several: a busy machine does not make it fail.
    assert min(seconds(8192) for _ in range(5)) < 3 * min(seconds(1) for _ in range(5))
