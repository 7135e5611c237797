"""Views of groups by bundles against the dumb way: ask every region about every group."""

from hypothesis import given
from hypothesis import strategies as st

from vivum.core.ids import GroupId
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.client.view import ConfigurationView
from vivum.wire.membership import ConfigurationChanges, MemberAddress, RegionRecord

GROUPS = range(22)


def bounds_of(groups):
    return tuple(RangeSet((group, group + 1) for group in groups).bounds())


SETS = st.sets(st.integers(0, 19), min_size=1)


@st.composite
def records(draw, epoch):
    """Make a region of nodes of its own; a third of its members lack a few groups of it."""
    region = draw(st.integers(1, 5))
    # A region has the same groups as long as it is there; here it has them by its number, nearly always.
    groups = draw(st.sampled_from([set(range(2 * region, 3 * region + 4)), set(range(region, 20, region))]))
    nodes = draw(st.lists(st.integers(10 * region, 10 * region + 5), unique=True, min_size=1, max_size=5))
    members = tuple(MemberAddress(node, 1, draw(st.integers(0, 9)), f"h{node}", 1) for node in nodes)
    lacks = tuple(
        (index, bounds_of(draw(st.sets(st.sampled_from(sorted(groups)), min_size=1, max_size=3))))
        for index in range(len(nodes))
        if draw(st.integers(0, 2)) == 0
    )
    return RegionRecord(region, epoch, region, members, bounds_of(groups), lacks)


@st.composite
def histories(draw):
    steps = []
    for epoch in range(1, draw(st.integers(2, 8))):
        told = draw(st.lists(records(epoch), max_size=3, unique_by=lambda record: record.region))
        names = [record.region for record in told]
        gone = draw(st.sets(st.integers(1, 5).filter(lambda region, names=names: region not in names), max_size=2))
        went = tuple((epoch, bounds_of(groups)) for groups in draw(st.lists(SETS, max_size=1)))
        base = draw(st.sampled_from([epoch - 1, epoch - 1, epoch - 1, 0]))
        steps.append((base, epoch, ConfigurationChanges(tuple(told), tuple(sorted(gone)) if base else (), went)))
    return steps


class DumbView:
    """What `ConfigurationView` says of one group, found by asking all regions."""

    def __init__(self):
        self.regions, self.went = {}, {}

    def apply(self, base, changes):
        if base == 0:
            self.regions, self.went = {}, {}
        for region in changes.gone:
            self.regions.pop(region, None)
        self.regions |= {record.region: record for record in changes.regions}
        for epoch, bounds in changes.went:
            self.went |= dict.fromkeys(RangeSet.from_bounds(bounds), epoch)

    def view_of(self, group):
        """Return the regions, the number and the nodes of a group."""
        here = [self.regions[each] for each in sorted(self.regions)]
        here = [record for record in here if group in RangeSet.from_bounds(record.groups)]
        aged = []
        for record in here:
            lacking = {index for index, bounds in record.lacks if group in RangeSet.from_bounds(bounds)}
            aged += [(each.age, each.node) for index, each in enumerate(record.members) if index not in lacking]
        number = max([self.went.get(group, 0), *(record.view for record in here)]) if here else 0
        return [record.region for record in here], number, [node for _, node in sorted(aged)]


@given(histories(), SETS)
def test_bundles_say_the_same_as_asking_every_region_about_every_group(history, asked):
    view, dumb = ConfigurationView(10), DumbView()
    for base, epoch, changes in history:
        before = {group: (view.group_view(GroupId(group)), view.members_of(GroupId(group))) for group in GROUPS}
        done = view.apply(base, epoch, changes)
        dumb.apply(base, changes)
        expected = {group: dumb.view_of(group) for group in GROUPS}
        for group, (regions, number, nodes) in expected.items():
            assert [config.region for config in view.regions_of(GroupId(group))] == regions
            assert view.group_view(GroupId(group)) == number
            assert [member.node for member in view.members_of(GroupId(group))] == nodes
        found = {}
        bundles = list(view.bundles(RangeSet((group, group + 1) for group in asked)))
        for bundle in bundles:
            for group in RangeSet.from_bounds(bundle.groups):
                assert group not in found, "each group is in one bundle"
                found[group] = (bundle.number, [member.node for member in bundle.members])
                assert bundle.members is view.members_of(GroupId(group)), "one tuple for all"
        assert found == {group: (expected[group][1], expected[group][2]) for group in asked if expected[group][0]}
        assert [bundle.groups[0] for bundle in bundles] == sorted(bundle.groups[0] for bundle in bundles)
        same = [(bundle.number, id(bundle.members)) for bundle in bundles if bundle.members]
        assert len(set(same)) == len(same), "what is the same comes together"
        touched = set()
        for config in (*done.before.values(), *done.after.values()):
            touched |= set() if config is None else set(RangeSet.from_bounds(config.groups))
        for group in set(GROUPS) - touched:
            assert view.members_of(GroupId(group)) is before[group][1], "what did not change is not made anew"
