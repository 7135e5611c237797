"""How a process gets its place, and gives it back."""

from random import Random

import pytest

from membership_net.net import DOMAIN, SERVICE, Net
from membership_net.scenes import net_of
from vivum.core.errors import LimitError, UsageError
from vivum.core.ids import Endpoint, GroupId, Incarnation, Member, NodeId
from vivum.core.machine import Command
from vivum.core.ranges import RangeSet
from vivum.core.time import MILLISECOND, SECOND
from vivum.observe.counters import Counters
from vivum.protocols.membership.client.changes import ConfigurationChanged, Welcomed
from vivum.protocols.membership.client.client import ClientState, MembershipClient
from vivum.protocols.membership.settings import ClientSettings
from vivum.wire.gate import Gate


def test_a_process_becomes_a_member_and_learns_its_region():
    net, (a, b) = net_of(2)
    assert (a.member, b.member) == ((1, 1), (2, 1))
    net.subscribe(a, (0, 8192))
    net.subscribe(b, (0, 8192))
    net.run_for(50 * MILLISECOND)
    assert a.own_region == b.own_region
    assert a.own_region.members == (a.member, b.member), "oldest first"
    assert a.own_region.groups == (0, 8192)
    assert a.groups == RangeSet([(0, 8192)])
    assert (a.epoch, a.group_view(GroupId(5)), a.group_view(GroupId(9000))) == (1, 1, 0)
    assert a.endpoints == {1: Endpoint("h1", 1), 2: Endpoint("h2", 1)}
    welcomed, changed = net.changes[a]
    assert welcomed == Welcomed(a.member)
    assert isinstance(changed, ConfigurationChanged)
    assert (changed.before, changed.after) == ({1: None}, {1: a.own_region})


def test_groups_asked_for_before_the_welcome_are_not_forgotten():
    net = Net()
    client = net.add("a", start=False)
    net.subscribe(client, (3, 5))
    client.start(net.now_ns)
    net._collect_all()
    net.run_for(50 * MILLISECOND)
    assert client.groups == RangeSet([(3, 5)])


def test_a_burst_of_subscriptions_in_a_loop_is_one_request_and_one_epoch():
    net, (a,) = net_of(1)
    for group in range(8192):
        net.subscribe(a, (group, group + 1))
    net.run_for(100 * MILLISECOND)
    assert net.service.epoch == 1
    assert net.service.life_of(a.member).request == 1


def test_a_client_that_is_cut_off_asks_at_a_bounded_rate_forever():
    net = Net()
    net.cut.add(SERVICE)
    client = net.add("a")
    net.run_for(100 * SECOND)
    assert 30 <= net.frames["MEMBERSHIP"] <= 60, "every 2 to 3 s in the long run"
    net.settle(4 * SECOND)
    assert client.member == (1, 1)


def test_clients_that_were_cut_off_together_do_not_come_back_in_the_same_instant():
    net = Net()
    net.cut.add(SERVICE)
    clients = [net.add(f"h{number}") for number in range(20)]
    net.run_for(20 * SECOND)
    assert len({client.next_deadline_ns() for client in clients}) == 20


def test_another_service_is_asked_when_one_does_not_answer():
    gate = Gate(DOMAIN, Counters(), Member(NodeId(0), Incarnation(0)))
    services = [Endpoint("s1", 1), Endpoint("s2", 1)]
    client = MembershipClient("p", NodeId(0), Endpoint("a", 1), services, gate, Random(1))
    client.start(0)
    (first,) = client.make_datagrams(0)
    client.on_timer(client.next_deadline_ns())
    (second,) = client.make_datagrams(SECOND)
    assert [first.destination, second.destination] == services


def test_a_client_that_knows_no_service_asks_nobody_until_it_is_told_of_one():
    gate = Gate(DOMAIN, Counters(), Member(NodeId(0), Incarnation(0)))
    client = MembershipClient("name", NodeId(0), Endpoint("a", 1), (), gate, Random(1))
    client.start(0)
    assert (client.state, client.make_datagrams(0), client.follows(SERVICE)) == (ClientState.IDLE, [], False)
    client.serve_by(0, [SERVICE])
    client.start(0)
    assert [each.destination for each in client.make_datagrams(0)] == [SERVICE]


def test_wrong_arguments_are_the_callers_fault():
    gate = Gate(DOMAIN, Counters(), Member(NodeId(0), Incarnation(0)))
    for name in ("", "n" * 241):
        with pytest.raises(UsageError):
            MembershipClient(name, NodeId(0), Endpoint("a", 1), [SERVICE], gate, Random(1))
    settings = ClientSettings(group_ranges_max=1)
    client = MembershipClient("name", NodeId(0), Endpoint("a", 1), [SERVICE], gate, Random(1), settings)
    client.start(0)
    with pytest.raises(UsageError, match="started before"):
        client.start(0)
    with pytest.raises(LimitError, match="group_ranges_max=1"):
        client.subscribe(0, RangeSet([(0, 1), (2, 3)]))
    assert client.wanted_groups == RangeSet()
    net = Net()
    with pytest.raises(UsageError, match="no commands"):
        net.machine.submit(0, Command())
