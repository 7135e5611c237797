"""Groups, regions and their views, as clients see them."""

from membership_net.scenes import net_of
from vivum.core.ids import Endpoint, GroupId
from vivum.core.ranges import RangeSet
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.membership.client.changes import Removed


def test_a_group_spans_regions_and_its_view_has_the_number_of_the_last_change_in_any():
    """Seed 001, Figure 2: a group view maps to region views, and both are versioned."""
    net, (a, b, c) = net_of(3)
    for client, ranges in ((a, (0, 4)), (b, (2, 6)), (c, (9, 10))):
        net.subscribe(client, ranges)
    net.run_for(50 * MILLISECOND)
    group = GroupId(3)
    assert a.regions_of(group) == b.regions_of(group)
    assert a.members_of(group) == (a.member, b.member)
    assert (a.group_view(group), a.group_view(GroupId(0))) == (1, 1)
    net.unsubscribe(b, (5, 6))
    net.run_for(50 * MILLISECOND)
    assert (a.group_view(group), b.group_view(group), a.group_view(GroupId(0))) == (2, 2, 1)
    assert c.epoch == 1, "it is not concerned and is not told"
    net.kill("h2")
    a.report_failure(net.now_ns, b.member, SECOND)
    net.run_for(3 * SECOND)
    assert (a.group_view(group), a.members_of(group)) == (3, (a.member,))
    assert a.endpoints[b.member.node] == Endpoint("h2", 1), "kept for a while"


def test_a_region_that_came_and_went_unseen_shows_in_the_number_of_the_group_view():
    net, (a, b, c) = net_of(3)
    net.subscribe(a, (0, 4))
    net.subscribe(b, (0, 4))
    net.run_for(50 * MILLISECOND)
    net.cut.add(Endpoint("h2", 1))
    net.subscribe(c, (3, 9))
    net.run_for(100 * MILLISECOND)
    net.unsubscribe(c, (3, 9))
    net.run_for(100 * MILLISECOND)
    net.settle(5 * SECOND)
    assert [client.group_view(GroupId(3)) for client in (a, b)] == [3, 3]
    assert [client.group_view(GroupId(0)) for client in (a, b)] == [1, 1]
    assert not any(isinstance(change, Removed) for change in net.changes[b])


def test_members_of_an_approximate_region_know_what_they_did_not_ask_for():
    net, (a, b) = net_of(2, regions_max=1, waste_max=0.5)
    net.subscribe(a, (0, 8))
    net.subscribe(b, (4, 10))
    net.run_for(50 * MILLISECOND)
    region = a.own_region
    assert region == b.own_region
    assert region.lacks == {a.member: (8, 10), b.member: (0, 4)}
    assert (a.groups, b.groups) == (RangeSet([(0, 8)]), RangeSet([(4, 10)]))
    assert [region.lacks_group(b.member, group) for group in (3, 4)] == [True, False]
    assert [a.members_of(GroupId(group)) for group in (0, 5, 9)] == [
        (a.member,),
        (a.member, b.member),
        (b.member,),
    ]


def test_200_nodes_that_subscribe_to_8192_groups_at_once_make_a_handful_of_epochs():
    net, clients = net_of(200)
    before = net.bytes["CONFIGURATION"]
    for client in clients:
        client.subscribe(net.now_ns, RangeSet([(0, 8192)]))
    net.run_for(2 * SECOND)
    assert net.service.epoch <= 5
    assert len(net.service.regions) == 1
    # A record of 200 members has some 2 KB; each of 200 nodes needs one.
    assert net.bytes["CONFIGURATION"] - before < 200 * 5 * 3000
    assert all(client.groups.count() == 8192 for client in clients)
    assert {client.group_view(GroupId(77)) for client in clients} == {net.service.epoch}


def test_scattered_groups_go_in_several_requests():
    net, (a,) = net_of(1)
    net.subscribe(a, *((group, group + 1) for group in range(0, 20_000, 2)))
    net.run_for(SECOND)
    assert a.groups.count() == 10_000
    assert net.service.life_of(a.member).request == 3
