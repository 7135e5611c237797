"""Who is dropped, who is not, and how they come back."""

import pytest

from effects import MemoryTrace
from membership_net.net import SERVICE, Net
from membership_net.scenes import net_of
from vivum.core.ids import Endpoint, GroupId
from vivum.core.ranges import RangeSet
from vivum.core.time import MILLISECOND, SECOND
from vivum.observe.trace import NodeStarted, NodeStopped
from vivum.protocols.membership.client.changes import ConfigurationChanged, Removed, Welcomed
from vivum.protocols.membership.client.client import ClientState


def test_a_dead_node_is_dropped_within_a_bound_and_the_others_learn_it():
    net, (a, b) = net_of(2)
    net.subscribe(a, (0, 4))
    net.subscribe(b, (0, 4))
    net.run_for(50 * MILLISECOND)
    net.kill("h2")
    a.report_failure(net.now_ns, b.member, 500 * MILLISECOND)
    net.run_for(1900 * MILLISECOND)
    assert len(a.own_region.members) == 2
    net.run_for(250 * MILLISECOND)
    assert a.own_region.members == (a.member,)
    assert net.service_gate.counters.members_dropped == 1


def test_a_live_node_that_is_accused_stays_whoever_accuses_it():
    net, (a, b) = net_of(2)
    for _ in range(50):
        a.report_failure(net.now_ns, b.member, SECOND)
        net.run_for(300 * MILLISECOND)
    assert net.service.life_of(b.member) is not None
    assert len(net.machine._suspicions) == 0


def test_a_node_that_is_paused_for_less_than_the_timeout_is_not_dropped():
    net, (a, b) = net_of(2)
    net.pause("h2")
    for _ in range(199):
        a.report_failure(net.now_ns, b.member, SECOND)
        net.run_for(10 * MILLISECOND)
    net.resume("h2")
    net.run_for(5 * SECOND)
    assert net.service.life_of(b.member) is not None
    assert not any(isinstance(change, Removed) for change in net.changes[b])


def test_a_service_that_was_paused_itself_does_not_take_the_silence_for_death():
    net, (a, b) = net_of(2)
    a.report_failure(net.now_ns, b.member, SECOND)
    answers = []
    net.drop = lambda source, destination, data: source.host == "h2" and answers.append(data) is None
    net._collect_all()
    net.run_for(MILLISECOND * 900)
    assert answers
    # It sleeps past every deadline; its timers run before it reads what lies in its socket.
    net.drop = lambda source, destination, data: False
    net.now_ns += 10 * SECOND
    net.machine.on_timer(net.now_ns)
    assert net.service.life_of(b.member) is not None
    net.run_for(SECOND)
    assert net.service.life_of(b.member) is not None


def test_a_node_that_nobody_watches_is_found_by_its_silence():
    net, (a, b) = net_of(2)
    net.kill("h2")
    net.run_for(9 * SECOND)
    assert net.service.life_of(b.member) is not None
    net.run_for(6 * SECOND)
    assert net.service.life_of(b.member) is None
    assert net.service.life_of(a.member) is not None, "an idle node that is alive is not suspected"


def test_reports_of_one_member_are_limited_in_rate():
    net, (a, b) = net_of(2)
    before = net.frames["MEMBERSHIP"]
    for _ in range(100):
        a.report_failure(net.now_ns, b.member, SECOND)
        net.run_for(MILLISECOND)
    assert net.frames["MEMBERSHIP"] - before <= 4, "one report, its answer to the probe"


def test_a_dropped_node_learns_it_and_comes_back_with_a_new_incarnation_and_all_its_groups():
    net, (a, b) = net_of(2)
    b.trace = trace = MemoryTrace()
    net.subscribe(a, (0, 4))
    net.subscribe(b, (0, 4), (7, 9))
    net.run_for(50 * MILLISECOND)
    first = b.member
    net.cut.add(Endpoint("h2", 1))
    a.report_failure(net.now_ns, first, SECOND)
    net.run_for(3 * SECOND)
    assert a.members_of(GroupId(0)) == (a.member,)
    net.settle(5 * SECOND)
    assert b.member == (2, 2)
    assert b.groups == RangeSet([(0, 4), (7, 9)])
    assert a.members_of(GroupId(0)) == (a.member, b.member)
    kinds = [type(change) for change in net.changes[b] if not isinstance(change, ConfigurationChanged)]
    assert kinds == [Welcomed, Removed, Welcomed]
    assert [type(record) for record in trace.records] == [NodeStopped, NodeStarted]
    assert [record.incarnation for record in trace.records] == [1, 2]


def test_a_restarted_process_takes_the_place_of_its_former_life():
    net, (a, b) = net_of(2)
    net.subscribe(a, (0, 4))
    net.subscribe(b, (0, 4))
    net.run_for(50 * MILLISECOND)
    again = net.add("h2", wanted=2)
    net.subscribe(again, (0, 4))
    net.run_for(100 * MILLISECOND)
    assert again.member == (2, 2)
    assert a.members_of(GroupId(0)) == (a.member, again.member)


def test_a_node_that_leaves_is_out_and_stays_out():
    net, (a, b) = net_of(2)
    net.subscribe(a, (0, 4))
    net.subscribe(b, (0, 4))
    net.run_for(50 * MILLISECOND)
    member = b.member
    b.leave(net.now_ns)
    net.run_for(10 * SECOND)
    assert b.state is ClientState.LEFT
    assert net.changes[b][-1] == Removed(member)
    assert (b.member, b.regions, b.next_deadline_ns()) == (None, {}, None)
    assert a.members_of(GroupId(0)) == (a.member,)


def test_a_node_that_cannot_reach_the_service_leaves_all_the_same():
    net, (a,) = net_of(1)
    net.cut.add(SERVICE)
    a.leave(net.now_ns)
    net.run_for(20 * SECOND)
    assert a.state is ClientState.LEFT
    assert a.next_deadline_ns() is None


def test_a_welcome_that_comes_after_leaving_is_given_back():
    net = Net()
    client = net.add("a")
    client.leave(net.now_ns)
    net.run_for(10 * MILLISECOND)
    assert net.service.lives == {}
    assert net.changes[client] == []


@pytest.mark.parametrize("leaves_first", [True, False])
def test_a_node_that_leaves_has_no_further_life(leaves_first: bool) -> None:
    """Its protocols may still find that the life cannot go on; it joined again then, after it had been left."""
    net = Net()
    net.add("h1", wanted=1)
    client = net.add("h9", wanted=9)
    net.run_for(5 * SECOND)
    if leaves_first:
        client.leave(net.now_ns)
        client.start_over(net.now_ns)
    else:
        client.start_over(net.now_ns)
        client.leave(net.now_ns)
    states = set()
    for _ in range(1000):
        net.run_for(2 * MILLISECOND)
        states.add(client.state)
    assert states <= {ClientState.LEAVING, ClientState.LEFT}
    assert client.state is ClientState.LEFT
