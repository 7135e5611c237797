"""The leader of the service dies, sleeps or is cut off: another replica leads, and nobody is told two things."""

import pytest

from membership_net.net import SERVICE, Net
from membership_net.scenes import is_message
from vivum.core.ids import Endpoint, GroupId, NodeId
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.consensus.commands import AddLearner, PromoteLearner, RemoveReplica
from vivum.protocols.consensus.configuration import Replica, ReplicaConfiguration
from vivum.protocols.membership.client.allegiance import Allegiance
from vivum.protocols.membership.service.replicas import choose_replicas, next_change
from vivum.protocols.membership.service.state import LEAP_EPOCHS
from vivum.protocols.membership.settings import ServiceSettings
from vivum.wire.membership import Configuration


def replicated_net(count=5, **settings):
    """Members whose age is the order of their names, all in one region. The service and the two oldest vote."""
    net, clients = Net(1, ServiceSettings(**settings)), []
    for number in range(1, count + 1):
        clients.append(net.add(f"h{number}", wanted=number))
        net.subscribe(clients[-1], (0, 4))
        net.run_for(10 * MILLISECOND)
    net.run_for(SECOND)
    return net, clients


def voters(net):
    (where, _) = net.serving()[-1]
    return {each.host for each in net.roles[where].voters}


def assert_one_leader(net, clients):
    """All follow one leader, and agree with it and with each other."""
    ((where, machine),) = net.serving()
    net.assert_agreement()
    assert {(client.history, client.term) for client in clients} == {(machine.history, machine.term)}
    assert len({client.group_view(GroupId(0)) for client in clients}) == 1
    return where, machine


def test_the_oldest_members_have_the_same_state_as_the_leader():
    net, clients = replicated_net()
    net.subscribe(clients[3], (7, 9))
    net.run_for(500 * MILLISECOND)
    assert voters(net) == {"service", "h1", "h2"}
    assert len({net.roles[Endpoint(host, 1)].state.digest() for host in ("service", "h1", "h2")}) == 1
    assert net.roles[Endpoint("h3", 1)].history == 0
    net.run_for(5 * SECOND)
    told = [{each.host for each in client.service_status.replicas} for client in clients]
    assert told == [{"service", "h1", "h2"}] * 5


def test_another_replica_leads_when_the_leader_dies_and_no_life_ends():
    net, clients = replicated_net()
    before, epoch = [client.member for client in clients], net.service.epoch
    net.kill_service()
    net.run_for(1500 * MILLISECOND)
    where, machine = assert_one_leader(net, clients)
    assert where.host in ("h1", "h2")
    assert [client.member for client in clients] == before
    net.subscribe(clients[4], (9, 12))
    net.run_for(SECOND)
    net.assert_agreement()
    assert clients[4].epoch == machine.service.epoch == epoch + 1


def test_the_next_oldest_takes_the_place_of_a_replica_that_is_gone():
    net, clients = replicated_net()
    net.kill_service()
    net.run_for(10 * SECOND)
    assert voters(net) == {"h1", "h2", "h3"}
    net.kill("h1")
    net.run_for(15 * SECOND)
    assert voters(net) == {"h2", "h3", "h4"}
    assert_one_leader(net, clients[1:])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_nodes_have_an_odd_number_of_votes(count):
    net, _ = replicated_net(count)
    assert len(voters(net)) == (1 if count == 1 else 3), "the service counts"
    replicas = net.home.replica.configuration.replicas
    assert len(replicas) == min(count + 1, 3), "the second of two has a copy"


def test_of_two_votes_that_are_left_one_becomes_a_copy():
    net, clients = replicated_net(2)
    net.kill_service()
    net.run_for(15 * SECOND)
    (where, _) = assert_one_leader(net, clients)
    configuration = net.roles[where].replica.configuration
    assert (len(configuration.voters), len(configuration.replicas)) == (1, 2)
    # And so the other one goes on when this one goes too.
    left = next(client for client in clients if client.endpoint != where)
    life = left.member
    net.kill(where.host)
    net.run_for(5 * SECOND)
    assert_one_leader(net, [left])
    assert left.member == life


def test_who_wants_another_life_keeps_the_one_it_has_until_there_is_a_leader():
    """If all who have replicas gave theirs up while the leader is gone, nobody could lead after it."""
    net, clients = replicated_net()
    before = [client.member for client in clients]
    net.cut |= {SERVICE, Endpoint("h1", 1)}
    net.run_for(SECOND)
    for _ in range(30):
        for client in clients:
            client.start_over(net.now_ns)
        net.run_for(100 * MILLISECOND)
    assert [client.member for client in clients] == before
    net.cut.clear()
    net.run_for(10 * SECOND)
    assert_one_leader(net, clients)
    assert not {client.member for client in clients} & {None, *before}


@pytest.mark.parametrize(("age_s", "within_ms", "begins_anew"), [(5, 50, True), (1, 50, False), (1, 4000, True)])
def test_a_life_of_some_age_ends_at_once_and_a_young_one_with_the_next_word_of_the_leader(
    age_s: int, within_ms: int, begins_anew: bool
):
    # It asked for a sign of life by a word that the service does not answer, and waited for a keepalive every time.
    net, _ = replicated_net()
    net.run_for(age_s * SECOND)
    client = net.add("h9", wanted=9)
    net.run_for(age_s * SECOND)
    before = client.member
    client.start_over(net.now_ns)
    net.run_for(within_ms * MILLISECOND)
    assert (client.member != before) is begins_anew


def test_a_domain_that_was_quiet_for_days_takes_the_next_request():
    # The leader's session of the log had expired by log time, and nothing was applied any more.
    net, client = lone_pair(replicas=1)
    net.now_ns += 3 * 24 * 3600 * SECOND
    net.subscribe(client, (9, 12))
    net.run_for(SECOND)
    assert client.groups.count() == 7


def test_without_a_majority_nobody_leads_and_nothing_is_told():
    net, clients = replicated_net()
    before, epoch = [client.member for client in clients], net.service.epoch
    net.cut |= {Endpoint("h1", 1), Endpoint("h2", 1)}
    net.run_for(SECOND)
    assert net.serving() == [], "it has stepped down"
    net.subscribe(clients[4], (9, 12))
    net.run_for(30 * SECOND)
    assert net.serving() == []
    assert [client.member for client in clients] == before
    assert {client.epoch for client in clients} == {epoch}
    net.cut.clear()
    net.run_for(10 * SECOND)
    assert_one_leader(net, clients)
    assert [client.member for client in clients] == before, "nobody was dropped meanwhile"


def test_nothing_is_told_to_anybody_before_a_majority_has_it():
    net, clients = replicated_net()
    told = []
    net.drop = lambda source, destination, data: (
        destination.host in ("h1", "h2") and source == SERVICE and not (is_configuration(data) and told.append(data))
    )
    net.subscribe(clients[4], (9, 12))
    net.run_for(400 * MILLISECOND)
    assert told == []
    assert clients[4].epoch == net.service.epoch


def is_configuration(data):
    return is_message(data, Configuration)


def test_a_leader_that_was_cut_off_follows_the_one_that_came_after_it():
    net, clients = replicated_net()
    net.cut.add(SERVICE)
    net.run_for(5 * SECOND)
    assert len(net.serving()) == 1
    net.subscribe(clients[0], (9, 12))
    net.run_for(SECOND)
    net.cut.clear()
    net.run_for(5 * SECOND)
    assert_one_leader(net, clients)
    assert net.home.serving is None
    assert clients[0].groups.count() == 7


def test_a_leader_that_is_paused_for_a_moment_is_not_replaced():
    net, clients = replicated_net()
    term = net.machine.term
    net.pause("service")
    net.run_for(300 * MILLISECOND)
    net.resume("service")
    net.run_for(SECOND)
    where, machine = assert_one_leader(net, clients)
    assert (where, machine.term) == (SERVICE, term)


def test_a_new_process_finds_the_leader_from_any_member_that_it_knows():
    net, clients = replicated_net()
    net.kill_service()
    net.run_for(2 * SECOND)
    late = net.add("h9", wanted=9, seeds=[Endpoint("h4", 1)])
    net.subscribe(late, (0, 4))
    net.run_for(3 * SECOND)
    assert_one_leader(net, [*clients, late])


def test_words_of_another_history_or_of_a_lower_term_are_refused():
    allegiance = Allegiance()
    assert allegiance.fault_of(0, 1) == "of no history"
    assert allegiance.fault_of(7, 3) is None
    assert allegiance.fault_of(7, 2) == "of a leader that was replaced"
    assert allegiance.fault_of(8, 9) == "of another history than this node follows"
    assert allegiance.fault_of(7, 4) is None
    assert (allegiance.history, allegiance.term) == (7, 4)


def lone_pair(**more):
    """A founder with a copy at one node, and another node without."""
    net, clients = Net(1, ServiceSettings(**more)), []
    clients.append(net.add("h1", wanted=1))
    net.subscribe(clients[0], (0, 4))
    net.run_for(SECOND)
    return net, clients[0]


def test_the_copy_of_a_lone_vote_goes_on_with_higher_numbers_and_its_life():
    net, client = lone_pair()
    assert voters(net) == {"service"}
    life, epoch, history = client.member, client.epoch, client.history
    net.kill_service()
    net.run_for(1900 * MILLISECOND)
    assert net.serving() == []
    net.run_for(SECOND)
    ((where, machine),) = net.serving()
    assert where == client.endpoint
    assert machine.state.parent == history
    assert (client.member, client.history) == (life, machine.history)
    net.subscribe(client, (9, 12))
    net.run_for(SECOND)
    assert client.epoch >= epoch + LEAP_EPOCHS
    net.assert_agreement()


def test_a_life_that_was_told_more_than_the_copy_has_begins_anew():
    net, client = lone_pair()
    life = client.member
    net.drop = lambda source, destination, data: source == SERVICE and not is_configuration(data)
    net.subscribe(client, (9, 12))
    net.run_for(100 * MILLISECOND)
    net.kill_service()
    net.run_for(5 * SECOND)
    net.assert_agreement()
    assert client.member is not None
    assert client.member != life
    assert client.groups.count() == 7


def test_so_many_voters_are_known_to_be_gone_that_a_copy_goes_on():
    net, clients = replicated_net()
    net.kill_service()
    net.kill("h1")
    net.run_for(5 * SECOND)
    assert net.serving() == [], "they might be cut off"
    role = net.roles[Endpoint("h2", 1)]
    role.on_refused(net.now_ns, SERVICE)
    role.on_refused(net.now_ns, Endpoint("h1", 1))
    net.run_for(15 * SECOND)
    assert_one_leader(net, clients[1:])


# Who should have a replica.


def replica(number, host="", votes=True):
    return Replica(number, host or f"host{number}", 1, votes)


@pytest.mark.parametrize(
    ("present", "willing", "lost", "caught_up", "change"),
    [
        ([replica(1)], [], (), (), None),
        ([replica(1)], [replica(2)], (), (), AddLearner(replica(2))),
        ([replica(1), replica(2, votes=False)], [replica(2)], (), {2}, None),
        ([replica(1), replica(2, votes=False)], [replica(2), replica(3)], (), {2}, AddLearner(replica(3))),
        ([replica(1), replica(2, votes=False), replica(3, votes=False)], [], (), {2}, None),
        ([replica(1), replica(2, votes=False), replica(3, votes=False)], [], (), {2, 3}, PromoteLearner(NodeId(2))),
        ([replica(1), replica(2), replica(3)], [replica(4)], (), (), None),
        ([replica(1), replica(2), replica(3)], [replica(4)], {2}, (), RemoveReplica(NodeId(2))),
        ([replica(1), replica(3)], [replica(2), replica(4)], (), (), AddLearner(replica(2))),
        ([replica(1), replica(3)], [], (), (), RemoveReplica(NodeId(3))),
        ([replica(1), replica(2), replica(3), replica(4, votes=False)], [], (), (), RemoveReplica(NodeId(4))),
    ],
)
def test_the_replicas_change_one_at_a_time_to_an_odd_number_of_votes(present, willing, lost, caught_up, change):
    lost, caught_up = {NodeId(each) for each in lost}, {NodeId(each) for each in caught_up}
    assert next_change(NodeId(1), ReplicaConfiguration(present), willing, lost, caught_up, 3) == change


def test_replicas_are_on_different_hosts_as_far_as_there_are_any():
    own, same, other, third = replica(1, "a"), replica(2, "a"), replica(3, "b"), replica(4, "c")
    assert choose_replicas(own, [same, other, third], 3) == [own, other, third]
    assert choose_replicas(own, [same, other], 3) == [own, other, same]
    assert choose_replicas(own, [same, replica(5, "a")], 3) == [own, same, replica(5, "a")]
