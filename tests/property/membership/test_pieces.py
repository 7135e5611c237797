"""The parts of membership against dumb oracles."""

from hypothesis import given
from hypothesis import strategies as st

from vivum.core.ids import Endpoint, Incarnation, Member, NodeId
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.client.subscriptions import Subscriptions
from vivum.protocols.membership.group_epochs import GroupEpochs
from vivum.protocols.membership.service.regions import MemberPlacement, Regions, share_a_group

GROUP_SETS = st.sets(st.integers(0, 12), max_size=6)


def bounds_of(groups):
    return tuple(RangeSet((group, group + 1) for group in groups).bounds())


@given(st.lists(st.lists(st.tuples(st.integers(1, 8), GROUP_SETS), min_size=1, max_size=4), max_size=12))
def test_incremental_regions_equal_regions_made_from_nothing(epochs):
    regions, groups_of = Regions(), {}
    signature = {}
    for epoch, changes in enumerate(epochs, 1):
        moves = {}
        for node, groups in changes:
            bounds = bounds_of(groups)
            moves[Member(NodeId(node), Incarnation(1))] = MemberPlacement(node, Endpoint("h", node), bounds, bounds)
            groups_of[node] = frozenset(groups)
        done = regions.apply(moves, epoch)
        expected = {}
        for node in sorted(groups_of):
            if groups_of[node]:
                expected.setdefault(bounds_of(groups_of[node]), []).append(node)
        assert {each.key: [member.node for member in each.members] for each in regions.all()} == expected
        before, signature = signature, {each.region: each.members for each in regions.all()}
        changed = {region for region, members in signature.items() if before.get(region) != members}
        assert {each.region for each in done.changed} == changed
        assert {each.region for each in done.gone} == before.keys() - signature.keys()
        for region in regions.all():
            assert (region.epoch == epoch) == (region.region in changed)
            near = [each for each in regions.all() if share_a_group(each.key, region.key)]
            assert regions.near(region) == near
            for base in range(epoch + 1):
                assert regions.near(region, base) == [each for each in near if each.epoch > base]


@given(GROUP_SETS, GROUP_SETS)
def test_sharing_a_group_is_meeting_of_sets(a, b):
    assert share_a_group(bounds_of(a), bounds_of(b)) == bool(a & b)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 5)), max_size=20), GROUP_SETS)
def test_group_epochs_equal_a_dictionary(calls, kept):
    epochs, oracle = GroupEpochs(), dict.fromkeys(range(25), 0)
    for start, stop, epoch in calls:
        epochs.set_range(start, stop, epoch)
        oracle |= dict.fromkeys(range(start, stop), epoch)
    assert {group: epochs.at(group) for group in oracle} == oracle
    runs = 1 + sum(oracle[group] != oracle[group + 1] for group in range(24))
    assert len(epochs) == runs
    found = {
        group: epoch for epoch, bounds in epochs.above(RangeSet([(0, 25)]), 2) for group in RangeSet.from_bounds(bounds)
    }
    assert found == {group: epoch for group, epoch in oracle.items() if epoch > 2}
    epochs.keep_only(RangeSet((group, group + 1) for group in kept))
    assert all(epochs.at(group) == (epoch if group in kept else 0) for group, epoch in oracle.items())


@given(st.lists(st.tuples(GROUP_SETS, st.booleans()), max_size=12))
def test_requests_bring_the_service_to_what_is_wanted(steps):
    requests, service, numbers = Subscriptions(), set(), []
    for wanted, answered in [*steps, (None, True), (None, True)]:
        if wanted is not None:
            requests.wanted = RangeSet((group, group + 1) for group in wanted)
        if requests.begin():
            made = requests.under_way
            numbers.append(made.request)
            service -= set(RangeSet.from_bounds(made.remove))
            service |= set(RangeSet.from_bounds(made.add))
        if answered:
            requests.on_applied(requests.number)
    assert service == set(requests.wanted)
    assert numbers == list(range(1, len(numbers) + 1))
    assert not requests.begin()
