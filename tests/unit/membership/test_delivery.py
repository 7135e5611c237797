"""Configurations in parts, and what becomes of lost frames."""

from membership_net.scenes import is_message, net_of
from vivum.core.ids import Incarnation, Member, NodeId
from vivum.core.ranges import RangeSet
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.membership.assembly import Assembly, cut
from vivum.protocols.membership.client.changes import ConfigurationChanged
from vivum.wire.membership import (
    Configuration,
    ConfigurationAck,
    ConfigurationChanges,
    encode_changes,
)


def test_a_configuration_that_does_not_fit_a_frame_goes_in_parts_and_is_applied_as_a_whole():
    net, clients = net_of(30, frame_bytes_max=200)
    for client in clients:
        net.subscribe(client, (0, 4))
    net.run_for(SECOND)
    assert all(len(client.own_region.members) == 30 for client in clients)
    assert max(net.frames.values()) > 100
    epochs = [change.epoch for change in net.changes[clients[0]] if isinstance(change, ConfigurationChanged)]
    assert len(epochs) == net.service.epoch


CONTENT = encode_changes(ConfigurationChanges((), tuple(range(1, 100)), ()))


def parts_of(epoch, content=CONTENT, base=1):
    return list(cut(Member(NodeId(1), Incarnation(1)), 0, base, epoch, content, 40))


def test_parts_may_come_in_any_order_and_twice():
    assembly, parts = Assembly(10), parts_of(5)
    assert len(parts) == 3
    assert [assembly.configuration(part) is not None for part in (parts[2], parts[0], parts[2], parts[1])] == [
        False
    ] * 3 + [True]


def test_a_later_whole_replaces_one_that_is_half_there_and_not_the_other_way():
    assembly, early, late = Assembly(10), parts_of(5), parts_of(6)
    assert assembly.configuration(early[0]) is None
    assert assembly.configuration(late[0]) is None
    assert assembly.configuration(early[1]) is None
    assert assembly.configuration(early[2]) is None
    assert assembly.configuration(late[1]) is None
    assert assembly.configuration(late[2]) is not None


def test_parts_of_two_wholes_of_one_epoch_are_not_mixed():
    other = encode_changes(ConfigurationChanges((), tuple(range(101, 200)), ()))[: len(CONTENT)]
    assembly, one, two = Assembly(10), parts_of(5), parts_of(5, other)
    assert assembly.configuration(one[0]) is None
    assert assembly.configuration(two[1]) is None
    assert assembly.configuration(one[2]) is None
    assert assembly.configuration(one[1]) is None
    assert assembly.configuration(one[0]).gone == tuple(range(1, 100))


def test_a_lost_configuration_is_sent_again_and_then_no_more():
    net, (a, b) = net_of(2)
    net.subscribe(a, (0, 4))
    net.run_for(50 * MILLISECOND)
    lost = []
    net.drop = lambda source, destination, data: (
        destination.host == "h1" and is_message(data, Configuration) and len(lost) < 2 and lost.append(data) is None
    )
    net.subscribe(b, (0, 4))
    net.run_for(500 * MILLISECOND)
    assert len(lost) == 2
    assert a.own_region.members == (a.member, b.member)
    frames = net.frames["CONFIGURATION"]
    net.run_for(20 * SECOND)
    assert net.frames["CONFIGURATION"] == frames


def test_an_answer_that_says_only_that_a_request_was_applied_is_given_again_when_lost():
    net, (a, _) = net_of(2)
    net.subscribe(a, (0, 4))
    net.run_for(50 * MILLISECOND)
    # A request that changes nothing at the service makes no epoch; its answer is lost.
    net.drop = lambda source, destination, data: is_message(data, Configuration)
    net.subscribe(a, (7, 8))
    net.run_for(2 * MILLISECOND)
    net.unsubscribe(a, (7, 8))
    net.run_for(50 * MILLISECOND)
    net.drop = lambda source, destination, data: False
    net.run_for(5 * SECOND)
    assert a._requests.under_way is None
    net.subscribe(a, (9, 10))
    net.run_for(100 * MILLISECOND)
    assert a.groups == RangeSet([(0, 4), (9, 10)])


def test_a_lost_acknowledgement_is_given_again():
    net, (a,) = net_of(1)
    lost = []
    net.drop = lambda source, destination, data: (
        is_message(data, ConfigurationAck) and not lost and lost.append(data) is None
    )
    net.subscribe(a, (0, 4))
    net.run_for(SECOND)
    assert lost
    frames = net.frames["CONFIGURATION"]
    net.run_for(10 * SECOND)
    assert net.frames["CONFIGURATION"] == frames
    assert len([change for change in net.changes[a] if isinstance(change, ConfigurationChanged)]) == 1


def test_a_node_that_does_not_acknowledge_is_not_flooded_with_every_epoch():
    net, (a, b) = net_of(2)
    net.subscribe(a, (0, 9))
    net.subscribe(b, (0, 9))
    net.run_for(50 * MILLISECOND)
    to_b = []
    net.drop = lambda source, destination, data: destination.host == "h2" and to_b.append(data) is None
    for number in range(50):
        net.subscribe(a, (20 + number, 21 + number))
        net.run_for(30 * MILLISECOND)
    assert net.service.epoch > 30
    assert len(to_b) < 12


def own_views(net, client):
    return [
        (each.view, [member.node for member in each.members])
        for change in net.changes[client]
        if isinstance(change, ConfigurationChanged)
        for each in (*change.passed, *change.after.values())
        if each is not None and client.member in each.members
    ]


def test_a_member_sees_every_region_view_that_it_belongs_to_though_configurations_are_lost():
    net, (a, b, c) = net_of(3)
    for client in (a, b):
        net.subscribe(client, (0, 4))
    net.run_for(50 * MILLISECOND)
    net.drop = lambda source, destination, data: destination.host == "h2"
    for change in (net.subscribe, net.unsubscribe, net.subscribe):
        change(c, (0, 4))
        net.run_for(30 * MILLISECOND)
    net.drop = lambda source, destination, data: False
    net.run_for(2 * SECOND)
    assert own_views(net, b) == [(1, [1, 2]), (2, [1, 2, 3]), (3, [1, 2]), (4, [1, 2, 3])]
    net.assert_saw_every_view(b)
    assert net.service.life_of(b.member).passed == [], "forgotten when acknowledged"


def test_a_member_that_was_in_other_regions_meanwhile_sees_their_views_in_order():
    net, (a, b) = net_of(2)
    net.subscribe(a, (0, 4))
    net.run_for(50 * MILLISECOND)
    # Its requests are applied, and no configuration reaches it; the request is one, so it moves with others' changes.
    net.drop = lambda source, destination, data: destination.host == "h2" and is_message(data, Configuration)
    net.subscribe(b, (0, 4))
    net.run_for(50 * MILLISECOND)
    net.unsubscribe(a, (0, 4))
    net.run_for(50 * MILLISECOND)
    net.subscribe(a, (0, 4))
    net.run_for(50 * MILLISECOND)
    net.drop = lambda source, destination, data: False
    net.run_for(2 * SECOND)
    assert own_views(net, b) == [(2, [1, 2]), (3, [2]), (4, [1, 2])]


def test_a_member_that_acknowledges_nothing_is_dropped_when_too_many_views_are_kept_for_it():
    net, (a, b, c) = net_of(3, passed_max=5)
    for client in (a, b):
        net.subscribe(client, (0, 4))
    net.run_for(50 * MILLISECOND)
    first = b.member
    # It speaks, and takes nothing that it is told.
    net.drop = lambda source, destination, data: destination.host == "h2" and is_message(data, Configuration)
    for number in range(6):
        (net.unsubscribe if number % 2 else net.subscribe)(c, (0, 4))
        net.run_for(50 * MILLISECOND)
        kept = net.service.life_of(first)
        assert kept is None or len(kept.passed) <= 5
    assert net.service.life_of(first) is not None
    net.subscribe(c, (0, 4))
    net.run_for(50 * MILLISECOND)
    assert net.service.life_of(first) is None
    assert net.service_gate.counters.members_dropped == 1
    net.drop = lambda source, destination, data: False
    net.settle(5 * SECOND)
    assert b.member == (2, 2)
    net.assert_agreement()
