"""Where a node belongs: whole nodes on a wire without sockets, in virtual time."""

from random import Random

import pytest

from vivum.core.errors import UsageError
from vivum.core.ids import Channel, Endpoint, GroupId
from vivum.core.limits import Limits
from vivum.core.machine import ChannelClosed, ChannelOpened, Datagram, Effect, Event
from vivum.core.time import MILLISECOND, SECOND
from vivum.node.compose import MemberParts, compose_member
from vivum.node.domain import (
    FOLLOW_PATIENCE_NS,
    DomainLeft,
    DomainState,
    JoinDomain,
    LeaveDomain,
    NetworkAwaited,
    TrustNetwork,
    WayIn,
)
from vivum.protocols.commands import JoinGroup, LifeBegan, LifeEnded
from vivum.protocols.discovery.finder import ServiceFound, ServiceLost
from vivum.protocols.discovery.rank import ServiceInfo
from vivum.protocols.membership.client.allegiance import term_of
from vivum.protocols.qsm.settings import QsmSettings
from vivum.wire.codec import split
from vivum.wire.control import decode_control, encode_control
from vivum.wire.directory import Beacon, Farewell, Seek
from vivum.wire.kinds import Kind

DOMAIN = 7
GROUP = GroupId(1)
STEP_NS = 10_000


class Hosts:
    """Nodes at one switch, each on a host of its own. Datagrams arrive at once."""

    def __init__(self, *numbers: int) -> None:
        self.now_ns = 10 * SECOND
        self.parts: dict[Endpoint, MemberParts] = {}
        self.told: dict[Endpoint, list[Effect]] = {}
        self.sent: list[tuple[Endpoint, Datagram]] = []
        self._channels: dict[Endpoint, set[Channel]] = {}
        self._sides: dict[Endpoint, int] = {}
        self.carries_multicast = True
        for number in numbers:
            self.start(number)

    def start(self, number: int, way_in: WayIn | None = None, group: GroupId | None = GROUP) -> MemberParts:
        """Let a node join the domain, and a group as soon as it can."""
        endpoint = endpoint_of(number)
        parts = compose_member(
            f"node {number}", DOMAIN, endpoint, Random(number), QsmSettings(), Limits(), way_in or WayIn()
        )
        self.parts[endpoint], self.told[endpoint], self._channels[endpoint] = parts, [], set()
        parts.node.submit(self.now_ns, JoinDomain())
        if group is not None:
            parts.node.submit(self.now_ns, JoinGroup(group, Channel(0), ()))
        return parts

    def kill(self, number: int) -> None:
        """End a node without a word."""
        del self.parts[endpoint_of(number)]

    def part(self, *numbers: int) -> None:
        """Cut these off from all others; without any, let all hear all."""
        self._sides = {endpoint_of(number): 1 for number in numbers}

    def advance(self, duration_ns: int) -> None:
        """Let time pass, and everybody do what is due."""
        until_ns = self.now_ns + duration_ns
        while True:
            while sum(self._carry(endpoint) for endpoint in list(self.parts)):
                pass
            deadlines = [parts.node.next_deadline_ns() for parts in self.parts.values()]
            next_ns = min((each for each in deadlines if each is not None), default=until_ns)
            if next_ns >= until_ns:
                break
            self.now_ns = max(self.now_ns + STEP_NS, next_ns)
            for parts in self.parts.values():
                parts.node.on_timer(self.now_ns)
        self.now_ns = until_ns

    def _carry(self, endpoint: Endpoint) -> bool:
        effects = self.parts[endpoint].node.take_output()
        for effect in effects:
            self.told[endpoint].append(effect)
            if isinstance(effect, ChannelOpened):
                self._channels[endpoint].add(effect.channel)
            elif isinstance(effect, ChannelClosed):
                self._channels[endpoint].discard(effect.channel)
            elif isinstance(effect, Datagram):
                self.sent.append((endpoint, effect))
                self._deliver(endpoint, effect)
        return bool(effects)

    def _deliver(self, source: Endpoint, datagram: Datagram) -> None:
        for endpoint, parts in self.parts.items():
            where = datagram.destination
            is_listener = self.carries_multicast and endpoint != source and where in self._channels[endpoint]
            hears = endpoint == where or is_listener
            if hears and self._sides.get(endpoint, 0) == self._sides.get(source, 0):
                parts.node.on_datagrams(self.now_ns, [(source, datagram.data)])

    def hear(self, number: int, source: Endpoint, message: Seek | Beacon | Farewell) -> None:
        """Let a node hear a word of discovery from somewhere else."""
        data = encode_control(Kind.DISCOVERY, DOMAIN, 0, 0, 0, 0, self.now_ns, message)
        self.parts[endpoint_of(number)].node.on_datagrams(self.now_ns, [(source, data)])

    def events(self, number: int) -> list[Event]:
        """List what a node told, channels left out."""
        told = self.told[endpoint_of(number)]
        return [each for each in told if isinstance(each, Event) and not isinstance(each, ChannelOpened)]

    @property
    def carriers(self) -> list[Endpoint]:
        """Where a service is carried."""
        return [endpoint for endpoint, parts in self.parts.items() if parts.domain.carries_service]

    @property
    def members(self) -> dict[Endpoint, str]:
        """The lives of all nodes."""
        return {endpoint: str(parts.client.member) for endpoint, parts in self.parts.items()}

    def check_whole(self) -> None:
        """All nodes have one service, a life of it, and one view of the group."""
        (carrier,) = self.carriers
        views = set()
        for parts in self.parts.values():
            assert parts.domain.service is not None
            assert parts.domain.service.endpoint == carrier
            assert parts.client.follows(carrier)
            views.add((parts.client.group_view(GROUP), parts.client.members_of(GROUP)))
        assert len(views) == 1
        assert len(views.pop()[1]) == len(self.parts)


def endpoint_of(number: int) -> Endpoint:
    return Endpoint(f"10.0.0.{number}", 1000)


def types(events: list[Event], *wanted: type[Event]) -> list[type[Event]]:
    return [type(each) for each in events if isinstance(each, wanted)]


def words(sent: list[tuple[Endpoint, Datagram]], source: Endpoint) -> list[tuple[object, object]]:
    """List what was said in discovery by one node, with the destinations."""
    frames = [(each.destination, split(each.data)[0]) for endpoint, each in sent if endpoint == source]
    return [(where, decode_control(frame)) for where, frame in frames if frame.kind is Kind.DISCOVERY]


def test_who_hears_nobody_carries_the_service_and_joins_it():
    hosts = Hosts(1)
    hosts.advance(240 * MILLISECOND)
    assert hosts.carriers == []
    hosts.advance(100 * MILLISECOND)
    assert hosts.carriers == [endpoint_of(1)]
    assert types(hosts.events(1), ServiceFound, LifeBegan) == [ServiceFound, LifeBegan]
    hosts.advance(SECOND)
    hosts.check_whole()


def test_who_finds_a_service_joins_it_and_carries_none():
    hosts = Hosts(1)
    hosts.advance(SECOND)
    hosts.start(2)
    hosts.advance(SECOND)
    assert hosts.carriers == [endpoint_of(1)]
    hosts.check_whole()
    assert types(hosts.events(2), ServiceFound, LifeBegan, LifeEnded) == [ServiceFound, LifeBegan]


def test_groups_that_are_joined_before_the_service_is_found_wait_for_it():
    hosts = Hosts()
    parts = hosts.start(1, WayIn(embedded=False))
    hosts.advance(3 * SECOND)
    assert all(isinstance(word, Seek) for _, word in words(hosts.sent, endpoint_of(1)))
    assert len(words(hosts.sent, endpoint_of(1))) == len(hosts.sent), (
        "nobody is asked for a place before there is a service"
    )
    hosts.start(2)
    hosts.advance(2 * SECOND)
    assert GROUP in parts.client.groups


def test_of_nodes_that_start_at_once_one_carries_the_service():
    hosts = Hosts(1, 2, 3, 4, 5)
    hosts.advance(3 * SECOND)
    hosts.check_whole()


def test_of_two_services_that_meet_one_gives_way_and_its_nodes_follow_with_new_lives():
    hosts = Hosts(1, 2, 3, 4, 5)
    hosts.part(1, 2)
    hosts.advance(5 * SECOND)
    assert len(hosts.carriers) == 2
    before = hosts.members
    hosts.part()
    hosts.advance(5 * SECOND)
    hosts.check_whole()
    for number in (3, 4, 5):
        assert hosts.members[endpoint_of(number)] == before[endpoint_of(number)], "the larger side stays"
    for number in (1, 2):
        # In the order of causes: another service, hence the end of the life that the former one gave.
        told = types(hosts.events(number), ServiceFound, LifeBegan, LifeEnded)
        assert told == [ServiceFound, LifeBegan, ServiceFound, LifeEnded, LifeBegan]


def test_nodes_that_have_nothing_to_say_count_for_their_service_all_the_time():
    # They put their sign of life off when the service spoke: the beacon of an idle domain said that nobody was there,
    # and the smaller side of a split won.
    hosts = Hosts(3, 4, 5)
    watching = hosts.parts[endpoint_of(4)]
    hosts.advance(SECOND)
    counted = set()
    for _ in range(60):
        hosts.advance(500 * MILLISECOND)
        assert watching.domain.service is not None
        counted.add(watching.domain.service.lives)
    assert counted == {3}


def test_a_service_that_gives_way_tells_its_nodes_of_the_other_before_it_ends():
    hosts = Hosts(1)
    hosts.advance(SECOND)
    hosts.start(2)
    hosts.advance(SECOND)
    hosts.sent.clear()
    greater = Beacon("10.0.0.9", 1000, True, 9, 1, 0)
    hosts.hear(1, endpoint_of(9), greater)
    hosts.advance(MILLISECOND)
    assert (endpoint_of(2), greater) in words(hosts.sent, endpoint_of(1))
    assert not hosts.parts[endpoint_of(1)].domain.carries_service


def test_a_standby_takes_over_from_a_service_that_died_and_all_lives_go_on():
    hosts = Hosts(1, 2, 3, 4)
    hosts.advance(5 * SECOND)
    hosts.check_whole()
    (dead,) = hosts.carriers
    before = hosts.members
    hosts.kill(int(dead.host.rpartition(".")[2]))
    hosts.advance(20 * SECOND)
    hosts.check_whole()
    assert hosts.members == {endpoint: life for endpoint, life in before.items() if endpoint != dead}
    for endpoint in hosts.parts:
        number = int(endpoint.host.rpartition(".")[2])
        assert types(hosts.events(number), LifeBegan, LifeEnded) == [LifeBegan]


def test_the_one_that_is_left_of_two_begins_a_later_round_with_a_new_life():
    hosts = Hosts(1)
    hosts.advance(SECOND)
    parts = hosts.start(2)
    hosts.advance(SECOND)
    hosts.kill(1)
    hosts.advance(10 * SECOND)
    hosts.check_whole()
    assert parts.domain.service is not None
    assert parts.domain.service.term >= term_of(1, 0)
    told = types(hosts.events(2), ServiceFound, ServiceLost, LifeBegan, LifeEnded)
    assert told == [ServiceFound, LifeBegan, ServiceLost, ServiceFound, LifeEnded, LifeBegan]


def test_a_service_of_a_later_round_has_time_to_take_the_node_over_before_it_begins_a_new_life():
    hosts = Hosts(1)
    hosts.advance(SECOND)
    parts = hosts.start(2)
    hosts.advance(SECOND)
    life, endpoint = parts.client.member, endpoint_of(9)
    later = ServiceInfo(endpoint, False, 9, term_of(1, 77), hosts.now_ns)
    hosts.sent.clear()
    hosts.hear(2, endpoint, later.to_beacon())
    hosts.advance(FOLLOW_PATIENCE_NS - 100 * MILLISECOND)
    assert parts.domain.service == later
    assert parts.client.member == life
    hosts.hear(2, endpoint, later.to_beacon())
    hosts.advance(200 * MILLISECOND)
    assert parts.client.member is None
    assert parts.client.follows(endpoint)
    assert LifeEnded(life) in hosts.events(2)


@pytest.mark.parametrize("hears_beacons", [True, False])
def test_a_service_that_was_replaced_while_it_was_cut_off_finds_its_successor(hears_beacons: bool):
    hosts = Hosts(1, 2, 3, 4, 5)
    hosts.advance(5 * SECOND)
    (before,) = hosts.carriers
    hosts.part(int(before.host.rpartition(".")[2]))
    hosts.advance(8 * SECOND)
    hosts.part()
    # Without beacons it steps down for the successor's own word, and must look for it.
    hosts.carries_multicast = hears_beacons
    hosts.advance(SECOND)
    hosts.carries_multicast = True
    hosts.advance(20 * SECOND)
    hosts.check_whole()
    assert hosts.carriers != [before]


def test_who_leaves_gives_its_place_back_and_says_so():
    hosts = Hosts(1)
    hosts.advance(SECOND)
    parts = hosts.start(2)
    hosts.advance(SECOND)
    parts.node.submit(hosts.now_ns, LeaveDomain(SECOND))
    hosts.advance(MILLISECOND)
    assert parts.domain.state is DomainState.LEFT
    assert hosts.events(2)[-2:] == [LifeEnded(hosts.events(2)[-2].member), DomainLeft()]
    hosts.advance(SECOND)
    assert hosts.parts[endpoint_of(1)].client.members_of(GROUP) == (hosts.parts[endpoint_of(1)].client.member,)


def test_who_leaves_and_gets_no_answer_has_left_when_its_time_is_over():
    hosts = Hosts(1)
    hosts.advance(SECOND)
    parts = hosts.start(2)
    hosts.advance(SECOND)
    hosts.kill(1)
    parts.node.submit(hosts.now_ns, LeaveDomain(300 * MILLISECOND))
    hosts.advance(290 * MILLISECOND)
    assert DomainLeft() not in hosts.events(2)
    hosts.advance(20 * MILLISECOND)
    assert hosts.events(2).count(DomainLeft()) == 1
    hosts.advance(10 * SECOND)
    assert hosts.carriers == [], "who leaves begins nothing any more"


def test_a_service_that_leaves_says_farewell_and_the_lives_of_its_nodes_go_on():
    hosts = Hosts(1)
    hosts.advance(SECOND)
    for number in (2, 3, 4):
        hosts.start(number)
    hosts.advance(3 * SECOND)
    before = hosts.members
    leaving = hosts.parts[endpoint_of(1)]
    leaving.node.submit(hosts.now_ns, LeaveDomain(SECOND))
    hosts.advance(MILLISECOND)
    assert DomainLeft() in hosts.events(1)
    assert Farewell(*endpoint_of(1)) in [word for _, word in words(hosts.sent, endpoint_of(1))]
    hosts.kill(1)
    hosts.advance(5 * SECOND)
    hosts.check_whole()
    assert hosts.members == {endpoint: life for endpoint, life in before.items() if endpoint != endpoint_of(1)}


def test_who_never_joined_leaves_at_once_and_nobody_joins_twice():
    hosts = Hosts(1)
    parts = hosts.parts[endpoint_of(1)]
    with pytest.raises(UsageError, match="takes part"):
        parts.node.submit(hosts.now_ns, JoinDomain())
    outside = compose_member("outside", DOMAIN, endpoint_of(2), Random(2), QsmSettings(), Limits(), WayIn())
    outside.node.submit(hosts.now_ns, LeaveDomain(SECOND))
    assert outside.node.take_output() == [DomainLeft()]


def test_a_node_whose_network_was_not_seen_to_work_begins_no_service_and_says_so():
    hosts = Hosts()
    parts = hosts.start(1, WayIn(awaits_network=True))
    hosts.advance(30 * SECOND)
    assert hosts.carriers == []
    assert hosts.events(1).count(NetworkAwaited()) == 1
    sought = [word for _, word in words(hosts.sent, endpoint_of(1))]
    assert len(sought) > 50, "it goes on looking"
    assert not any(word.willing for word in sought), "nobody need wait for it"
    parts.node.submit(hosts.now_ns, TrustNetwork())
    hosts.advance(240 * MILLISECOND)
    assert hosts.carriers == [], "now that somebody can answer, all have time for it"
    hosts.advance(100 * MILLISECOND)
    assert hosts.carriers == [endpoint_of(1)]


def test_a_word_of_another_host_shows_that_the_network_works():
    hosts = Hosts()
    first = hosts.start(1, WayIn(awaits_network=True))
    second = hosts.start(2, WayIn(awaits_network=True))
    hosts.advance(3 * SECOND)
    assert not first.domain.awaits_network
    assert not second.domain.awaits_network
    hosts.check_whole()


def test_who_waits_for_its_network_joins_the_others_when_it_is_there():
    hosts = Hosts(1)
    hosts.part(2)
    hosts.start(2, WayIn(awaits_network=True))
    hosts.advance(3 * SECOND)
    assert hosts.carriers == [endpoint_of(1)]
    hosts.part()
    hosts.advance(2 * SECOND)
    hosts.check_whole()
    assert types(hosts.events(2), LifeBegan, LifeEnded) == [LifeBegan]


@pytest.mark.parametrize(
    ("way_in", "after_ns"),
    [
        (WayIn(), 0),
        (WayIn(embedded=False), None),
        (WayIn([endpoint_of(1)]), 0),
        (WayIn([endpoint_of(9), endpoint_of(1)]), 150 * MILLISECOND),
        (WayIn([endpoint_of(9)]), None),
        (WayIn([endpoint_of(9)], meets=True), 1500 * MILLISECOND),
    ],
)
def test_with_seeds_only_a_seed_carries_a_service_the_first_of_them_first(way_in: WayIn, after_ns: int | None):
    assert way_in.carry_after_ns(endpoint_of(1)) == after_ns
