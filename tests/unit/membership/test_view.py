from vivum.core.ids import Endpoint, GroupId
from vivum.protocols.membership.client.view import ConfigurationView
from vivum.wire.membership import ConfigurationChanges, MemberAddress, RegionRecord


def record(region, view, nodes, groups=(0, 4)):
    members = tuple(MemberAddress(node, 1, node, f"h{node}", 1) for node in nodes)
    return RegionRecord(region, view, region, members, groups)


def changes(*records, gone=(), went=()):
    return ConfigurationChanges(records, gone, went)


def test_changes_are_told_with_what_was_before_and_only_if_they_are_news():
    view = ConfigurationView(10)
    view.apply(0, 1, changes(record(1, 1, [1, 2]), record(2, 1, [3], (3, 9))))
    one, two = view.regions[1], view.regions[2]
    done = view.apply(1, 3, changes(record(1, 2, [1]), record(3, 3, [4]), gone=(2, 77)))
    assert done.before == {2: two, 1: one, 3: None}
    assert done.after == {2: None, 1: view.regions[1], 3: view.regions[3]}
    done = view.apply(0, 4, changes(record(1, 2, [1]), record(3, 3, [4])))
    assert (done.before, done.after) == ({}, {})


def test_what_replaces_everything_removes_what_it_does_not_name():
    view = ConfigurationView(10)
    view.apply(0, 1, changes(record(1, 1, [1]), went=((5, (0, 2)),)))
    assert (view.group_view(GroupId(0)), view.group_view(GroupId(2))) == (5, 1)
    view.apply(0, 6, changes(record(2, 2, [1])))
    assert set(view.regions) == {2}
    assert view.group_view(GroupId(0)) == 2


def test_regions_of_a_group_are_looked_up_once_until_something_changes():
    view = ConfigurationView(10)
    view.apply(0, 1, changes(record(1, 1, [1]), record(2, 1, [2], (3, 9))))
    assert [each.region for each in view.regions_of(GroupId(3))] == [1, 2]
    assert view.regions_of(GroupId(3)) is view.regions_of(GroupId(3))
    assert view.members_of(GroupId(3)) is view.members_of(GroupId(3))
    view.apply(1, 2, changes(gone=(2,)))
    assert [each.region for each in view.regions_of(GroupId(3))] == [1]
    assert [member.node for member in view.members_of(GroupId(3))] == [1]


def test_endpoints_of_those_longest_gone_are_forgotten():
    view = ConfigurationView(2)
    for epoch in range(1, 6):
        view.apply(epoch - 1, epoch, changes(record(1, epoch, [9, 10 + epoch])))
    assert view.endpoints == {node: Endpoint(f"h{node}", 1) for node in (9, 13, 14, 15)}


def test_a_new_life_knows_nothing():
    view = ConfigurationView(2)
    view.apply(0, 5, changes(record(1, 5, [1])))
    view.forget()
    assert (view.epoch, view.regions, view.regions_of(GroupId(0)), view.group_view(GroupId(0))) == (0, {}, (), 0)


def test_regions_that_groups_had_in_common_once_are_forgotten():
    view = ConfigurationView(10)
    view.apply(0, 1, changes(record(1, 1, [1], (0, 10))))
    for epoch in range(2, 402):
        # Neighbours come one by one and stay, so that every set of regions that a group had still exists in part.
        view.apply(epoch - 1, epoch, changes(record(epoch, epoch, [epoch], (0, 10))))
        assert len(view.members_of(GroupId(0))) == epoch
    assert len(view._covers) <= 100
