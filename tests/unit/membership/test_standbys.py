"""The service dies, sleeps or is cut off: a standby goes on, once, and nobody is told two things under one number."""

import pytest

from membership_net.net import SERVICE, Net
from membership_net.scenes import is_message
from vivum.core.ids import Endpoint, GroupId, Member, NodeId
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.membership.client.allegiance import Allegiance, term_of
from vivum.protocols.membership.client.changes import Removed
from vivum.protocols.membership.service.snapshot import write_state
from vivum.protocols.membership.service.state import ERA_BITS, ERA_INCARNATIONS
from vivum.protocols.membership.settings import ServiceSettings
from vivum.wire.codec import split
from vivum.wire.membership import Configuration
from vivum.wire.standby import Candidacy, CopyAck, ServiceStatus, StateChanges, StateCopy, Support

ERA = 1 << ERA_BITS


def standing_net(count=5, standbys=2, **settings):
    """Members whose age is the order of their names, all in one region."""
    net, clients = Net(1, ServiceSettings(standbys=standbys, **settings)), []
    for number in range(1, count + 1):
        clients.append(net.add(f"h{number}", wanted=number))
        net.subscribe(clients[-1], (0, 4))
        net.run_for(10 * MILLISECOND)
    net.run_for(SECOND)
    return net, clients


def copies(net):
    return {where.host: role.copy for where, role in net.roles.items() if role.copy.service is not None}


def assert_one_service(net, clients):
    """All follow one service, and agree with it and with each other."""
    ((where, machine),) = net.serving()
    net.follow_service()
    net.assert_agreement()
    assert {client.term for client in clients} == {machine.term}
    assert len({client.group_view(GroupId(0)) for client in clients}) == 1
    return where, machine


def test_the_oldest_members_have_the_same_state_as_the_service():
    net, clients = standing_net()
    net.subscribe(clients[3], (7, 9))
    net.run_for(200 * MILLISECOND)
    found = copies(net)
    assert set(found) == {"h1", "h2"}
    for copy in found.values():
        assert write_state(copy.service) == write_state(net.service)
    assert {tuple(each.host for each in client.service_status.standbys) for client in clients} == {("h1", "h2")}


def test_the_oldest_goes_on_when_the_service_dies_and_no_life_ends():
    net, clients = standing_net()
    before = [client.member for client in clients]
    epoch = net.service.epoch
    net.kill_service()
    net.run_for(10 * SECOND)
    where, machine = assert_one_service(net, clients)
    assert where.host == "h1"
    assert [client.member for client in clients] == before
    net.subscribe(clients[4], (9, 12))
    net.run_for(SECOND)
    net.assert_agreement()
    assert clients[4].epoch == machine.service.epoch == (1 << ERA_BITS) + 1 > epoch


def test_who_wants_another_life_keeps_the_one_it_has_until_there_is_a_service():
    """If all standbys gave theirs up while the service is gone, nobody could go on for it (seeds 7 and 49 of QSM)."""
    net, clients = standing_net()
    before = [client.member for client in clients]
    net.kill_service()
    for _ in range(30):
        for client in clients:
            client.start_over(net.now_ns)
        net.run_for(100 * MILLISECOND)
    assert [client.member for client in clients] == before
    for _ in range(100):
        for client, old in zip(clients, before, strict=True):
            if client.member == old:
                client.start_over(net.now_ns)
        net.run_for(100 * MILLISECOND)
    net.run_for(10 * SECOND)
    assert_one_service(net, clients)
    assert not {client.member for client in clients} & {None, *before}


@pytest.mark.parametrize(("age_s", "within_ms", "begins_anew"), [(5, 50, True), (1, 50, False), (1, 4000, True)])
def test_a_life_of_some_age_ends_at_once_and_a_young_one_with_the_next_word_of_the_service(
    age_s: int, within_ms: int, begins_anew: bool
):
    # It asked for a sign of life by a word that the service does not answer, and waited for a keepalive every time.
    net, _ = standing_net()
    net.run_for(age_s * SECOND)
    client = net.add("h9", wanted=9)
    net.run_for(age_s * SECOND)
    before = client.member
    client.start_over(net.now_ns)
    net.run_for(within_ms * MILLISECOND)
    assert (client.member != before) is begins_anew


def test_the_take_over_is_done_within_a_stated_time():
    """After 4 s of silence at a majority, each of which may have heard it last at another time, and a ping's time."""
    net, _ = standing_net()
    net.run_for(5 * SECOND)
    net.kill_service()
    net.run_for(SECOND)
    assert net.serving() == [], "the last words of the service are at most 3 s old"
    net.run_for(4 * SECOND)
    assert len(net.serving()) == 1


def test_the_second_standby_goes_on_when_the_first_dies_with_the_service():
    net, clients = standing_net()
    net.kill_service()
    net.kill("h1")
    net.run_for(12 * SECOND)
    where, machine = assert_one_service(net, clients[1:])
    assert where.host == "h2"
    assert clients[0].member not in {life.member for life in machine.service.lives.values()}


def test_the_new_service_has_standbys_of_its_own_and_they_go_on_after_it():
    net, clients = standing_net()
    net.kill_service()
    net.run_for(10 * SECOND)
    net.kill("h1")
    net.run_for(15 * SECOND)
    where, machine = assert_one_service(net, clients[1:])
    assert where.host == "h2"
    assert machine.term == term_of(2, clients[1].member.node)
    assert len(machine.service.ends) == 2


def test_without_a_majority_nobody_goes_on():
    net, _ = standing_net(5)
    net.kill_service()
    for host in ("h3", "h4", "h5"):
        net.kill(host)
    net.run_for(60 * SECOND)
    assert net.serving() == []


def test_support_for_a_life_that_has_ended_meanwhile_is_passed_over():
    """Live seed 131: the standby found another service while it asked for support, and stopped by a fault."""
    net, clients = standing_net()
    net.kill_service()
    asked = []
    net.drop = lambda _source, _destination, data: is_message(data, Support) and asked.append(data) is None
    while not asked:
        net.run_for(100 * MILLISECOND)
    net.drop = lambda *_: False
    clients[0].serve_by(net.now_ns, [Endpoint("elsewhere", 1)])
    role = net.roles[clients[0].endpoint]
    (support,) = split(asked[0])
    for each in clients[1:]:
        role.on_frame(net.now_ns, each.endpoint, support)
    assert role.serving is None
    # The second standby goes on for those who are left.
    net.run_for(10 * SECOND)
    assert [where.host for where, _ in net.serving()] == ["h2"]


def test_a_process_that_came_back_on_the_endpoint_of_a_dead_life_helps_to_a_majority():
    net, clients = standing_net(5)
    net.kill_service()
    seeds = [Endpoint(f"h{number}", 1) for number in range(1, 6)]
    fresh = [net.add(f"h{number}", wanted=number, seeds=seeds) for number in (3, 4, 5)]
    for client in fresh:
        net.subscribe(client, (0, 4))
    net.run_for(30 * SECOND)
    assert_one_service(net, [*clients[:2], *fresh])
    assert {client.member.incarnation for client in fresh} == {ERA_INCARNATIONS + 1}


def test_a_service_that_is_paused_for_less_is_not_replaced():
    net, clients = standing_net()
    net.cut.add(SERVICE)
    net.run_for(3 * SECOND)
    net.cut.clear()
    net.run_for(10 * SECOND)
    where, machine = assert_one_service(net, clients)
    assert (where, machine.term) == (SERVICE, 1)


def test_a_service_that_was_cut_off_steps_down_when_it_meets_the_new_one():
    net, clients = standing_net()
    net.cut.add(SERVICE)
    net.run_for(10 * SECOND)
    assert [machine.term for _, machine in net.serving()] == [1, term_of(1, 1)]
    net.cut.clear()
    net.run_for(5 * SECOND)
    assert net.home.serving is None
    assert_one_service(net, clients)


def cut_in_two(net, side):
    """Let only those of one side, by host, talk with each other."""
    hosts = set(side)
    net.drop = lambda source, destination, data: (source.host in hosts) != (destination.host in hosts)


def test_the_losing_side_of_a_split_starts_new_lives_and_the_winning_one_does_not():
    net, clients = standing_net(5)
    loser, winners = clients[4], clients[:4]
    cut_in_two(net, {"service", "h5"})
    net.run_for(4 * SECOND)
    # The old service goes on with what is left to it, under numbers of its own.
    net.subscribe(loser, (9, 12))
    net.run_for(20 * SECOND)
    assert loser.epoch >> ERA_BITS == 0
    assert {client.epoch >> ERA_BITS for client in winners} == {1}
    before = [client.member for client in winners]
    net.drop = lambda source, destination, data: False
    net.run_for(20 * SECOND)
    assert_one_service(net, clients)
    assert [client.member for client in winners] == before
    assert loser.member.incarnation == ERA_INCARNATIONS + 1
    assert any(isinstance(change, Removed) for change in net.changes[loser])


def test_a_service_that_hears_less_than_half_drops_nobody_soon_and_takes_nobody_new():
    net, clients = standing_net(5)
    cut_in_two(net, {"service", "h5", "h6"})
    late = net.add("h6", wanted=6)
    net.run_for(4 * SECOND)
    # The rings accuse those who are away; none is accused by hand here.
    for client in clients[:4]:
        clients[4].report_failure(net.now_ns, client.member, SECOND)
    net.run_for(3 * SECOND)
    assert len(net.machine.service.lives) >= 5
    another = net.add("h7", wanted=7)
    cut_in_two(net, {"service", "h5", "h6", "h7"})
    net.run_for(3 * SECOND)
    assert late.member is not None
    assert another.member is None
    net.run_for(20 * SECOND)
    assert {life.endpoint.host for life in net.machine.service.lives.values()} == {"h5", "h6", "h7"}
    assert net.machine._replication.is_retired, "nobody can go on for the smaller side"
    assert [machine.term for _, machine in net.serving()] == [1, term_of(1, 1)]


def test_half_of_the_members_that_die_at_once_are_dropped_as_soon_as_one_is():
    net, clients = standing_net(4)
    for host in ("h3", "h4"):
        net.kill(host)
    for client in clients[2:]:
        clients[0].report_failure(net.now_ns, client.member, SECOND)
    net.run_for(2500 * MILLISECOND)
    assert len(net.service.lives) == 2


def test_nothing_is_told_to_anybody_before_the_standbys_have_it():
    net, clients = standing_net()
    net.drop = lambda source, destination, data: is_message(data, StateChanges) or is_message(data, StateCopy)
    epochs = [client.epoch for client in clients]
    net.subscribe(clients[3], (9, 12))
    net.run_for(500 * MILLISECOND)
    assert net.service.epoch > max(epochs)
    assert [client.epoch for client in clients] == epochs
    net.kill_service()
    net.drop = lambda source, destination, data: False
    net.run_for(12 * SECOND)
    # The request was never answered, so it was made again; its epoch is one of the new era.
    assert_one_service(net, clients)
    assert clients[3].groups == clients[3].wanted_groups
    assert {client.member.incarnation for client in clients} == {1}


def test_a_standby_that_does_not_acknowledge_counts_no_more_after_a_while():
    net, clients = standing_net()
    net.drop = lambda source, destination, data: source.host == "h2" and is_message(data, CopyAck)
    net.subscribe(clients[3], (9, 12))
    net.run_for(500 * MILLISECOND)
    assert clients[3].groups != clients[3].wanted_groups
    net.run_for(3 * SECOND)
    assert clients[3].groups == clients[3].wanted_groups
    net.run_for(5 * SECOND)
    assert {each.host for each in net.machine._replication.addresses} == {"h1", "h3"}
    assert {each.host for each in clients[0].service_status.standbys} == {"h1", "h3"}


def test_a_standby_behind_the_log_gets_a_copy_of_the_whole_again():
    net, clients = standing_net(log_entries_max=8)
    net.drop = lambda source, destination, data: destination.host == "h2" and is_message(data, StateChanges)
    for number in range(20):
        net.subscribe(clients[3], (10 + number, 11 + number))
        net.run_for(30 * MILLISECOND)
    net.drop = lambda source, destination, data: False
    net.run_for(5 * SECOND)
    assert write_state(copies(net)["h2"].service) == write_state(net.service)


def test_a_copy_that_does_not_fit_a_frame_goes_in_parts():
    net, clients = standing_net(30, frame_bytes_max=300)
    assert len(copies(net)) == 2
    net.kill_service()
    net.run_for(15 * SECOND)
    assert_one_service(net, clients)


def test_no_standby_asks_for_support_while_the_service_speaks():
    net, clients = standing_net()
    asked = []
    net.drop = lambda source, destination, data: (
        ((is_message(data, StateChanges) or is_message(data, StateCopy)) and destination.host == "h1")
        or (is_message(data, Candidacy) and asked.append(data) is None)
    )
    net.run_for(60 * SECOND)
    assert asked == []
    assert net.serving()[-1][0] == SERVICE
    assert "h1" not in copies(net), "what is not kept up is forgotten"
    assert {client.term for client in clients} == {1}


def test_a_new_process_finds_the_service_that_took_over_from_any_member_that_it_knows():
    net, clients = standing_net()
    net.kill_service()
    net.run_for(10 * SECOND)
    late = net.add("h9", wanted=9, seeds=[Endpoint("h4", 1)])
    net.subscribe(late, (0, 4))
    net.run_for(5 * SECOND)
    assert_one_service(net, [*clients, late])
    assert late.member == Member(NodeId(9), ERA_INCARNATIONS + 1)


def test_frames_of_a_lower_term_are_refused():
    net, clients = standing_net()
    old = []
    net.drop = lambda source, destination, data: (
        source == SERVICE and is_message(data, Configuration) and old.append((destination, data)) is not None
    )
    net.subscribe(clients[2], (20, 22))
    net.run_for(200 * MILLISECOND)
    net.kill_service()
    net.run_for(10 * SECOND)
    assert old
    before = net.gates[Endpoint("h3", 1)].counters.frames_refused_state
    epoch = clients[2].epoch
    destination, data = next(each for each in old if each[0].host == "h3")
    net.send(SERVICE, destination, data)
    net.run_for(10 * MILLISECOND)
    assert net.gates[Endpoint("h3", 1)].counters.frames_refused_state == before + 1
    assert clients[2].epoch == epoch


@pytest.mark.parametrize(
    ("epoch", "is_known"),
    [
        (0, True),
        (5, True),
        (6, False),
        ((1 << ERA_BITS) + 2, True),
        ((1 << ERA_BITS) + 3, False),
        (2 << ERA_BITS, False),
    ],
)
def test_a_history_knows_its_own_epochs_alone(epoch, is_known):
    status = ServiceStatus(3 << 16, "h", 1, (), (5, ERA + 2))
    assert Allegiance.is_of_its_history(status, epoch) is is_known


def test_one_candidate_is_supported_in_a_round():
    allegiance, one, other = Allegiance(), Endpoint("a", 1), Endpoint("b", 1)
    assert allegiance.support(1, one) is True
    assert allegiance.support(1, other) is False
    assert allegiance.support(1, one) is True
    assert allegiance.support(2, other) is True
    assert allegiance.support(1, one) is None
    allegiance.adopt(other, ServiceStatus(term_of(3, 2), "", 0, (), ()))
    assert allegiance.support(3, one) is None


def test_no_two_nodes_have_one_term():
    assert len({term_of(round_, node) for round_ in range(1, 5) for node in range(1, 5)}) == 16
