"""Finding the service of a domain, without sockets."""

from random import Random

from effects import datagrams, events, take
from vivum.core.ids import Channel, Endpoint, Incarnation, Member, NodeId
from vivum.core.machine import Datagram, Effect, Event
from vivum.core.time import MILLISECOND, SECOND
from vivum.observe.counters import Counters
from vivum.protocols.discovery.beaconer import Beaconer, EndBeacon, ServiceOutranked, StartBeacon
from vivum.protocols.discovery.finder import (
    BEACON_CHANNEL,
    HINTS_MAX,
    Finder,
    ServiceAbsent,
    ServiceFound,
    ServiceLost,
    StartSeeking,
    TrustService,
)
from vivum.protocols.discovery.rank import ServiceInfo
from vivum.protocols.membership.client.allegiance import term_of
from vivum.protocols.membership.service.state import ConfigurationService
from vivum.wire.codec import split
from vivum.wire.control import decode_control, encode_control
from vivum.wire.directory import Beacon, Farewell, Seek
from vivum.wire.gate import Gate, domain_tag
from vivum.wire.kinds import Kind

DOMAIN = domain_tag("test")
HERE, THERE = Endpoint("10.0.0.1", 1000), Endpoint("10.0.0.2", 1000)
NOW = 10 * SECOND


def gate() -> Gate:
    return Gate(DOMAIN, Counters(), Member(NodeId(1), Incarnation(1)))


def finder(endpoint: Endpoint = HERE, **options) -> Finder:
    made = Finder(endpoint, gate(), Random(1), **({"multicast": True} | options))
    made.submit(NOW, StartSeeking())
    return made


def beaconer(endpoint: Endpoint = THERE, lives: int = 1, term: int = 1, dedicated: bool = False) -> Beaconer:
    service = ConfigurationService()
    made = Beaconer(endpoint, gate(), lambda: (service, term), lambda _: lives, multicast=True, dedicated=dedicated)
    made.submit(NOW, StartBeacon())
    return made


def info(endpoint: Endpoint = THERE, lives: int = 1, term: int = 1, started_ns: int = 5) -> ServiceInfo:
    return ServiceInfo(endpoint, False, lives, term, started_ns)


def run_to(machine: Finder, until_ns: int) -> tuple[list[Datagram], list[Event]]:
    taken: list[Effect] = []
    while True:
        taken += take(machine)
        due_ns = machine.next_deadline_ns()
        if due_ns is None or due_ns > until_ns:
            return datagrams(taken), events(taken)
        machine.on_timer(due_ns)


def frame_of(message: Seek | Beacon | Farewell):
    return split(encode_control(Kind.DISCOVERY, DOMAIN, 0, 0, 0, 0, NOW, message))[0]


def message_of(datagram: Datagram):
    return decode_control(split(datagram.data)[0])


def test_who_finds_nobody_carries_the_service_after_its_patience():
    seeker = finder()
    sought, told = run_to(seeker, NOW + 249 * MILLISECOND)
    assert len(sought) >= 3
    assert {each.destination for each in sought} == {BEACON_CHANNEL}
    assert not any(isinstance(each, ServiceAbsent) for each in told)
    _, told = run_to(seeker, NOW + 251 * MILLISECOND)
    assert told == [ServiceAbsent()]


def test_who_is_late_itself_waits_longer_before_it_takes_silence_for_absence():
    seeker = finder()
    run_to(seeker, NOW)
    seeker.on_timer(NOW + 150 * MILLISECOND)  # the question was due after 40 to 50 ms
    _, told = run_to(seeker, NOW + 900 * MILLISECOND)
    assert ServiceAbsent() not in told
    _, told = run_to(seeker, NOW + 1200 * MILLISECOND)
    assert ServiceAbsent() in told


def test_who_slept_reads_its_mail_before_it_gives_its_service_up():
    seeker = finder()
    run_to(seeker, NOW)
    seeker.on_frame(NOW, THERE, frame_of(info().to_beacon()))
    run_to(seeker, NOW)
    seeker.on_timer(NOW + 10 * SECOND)
    assert events(take(seeker)) == []
    assert seeker.service == info()
    _, told = run_to(seeker, NOW + 12 * SECOND)
    assert isinstance(told[0], ServiceLost), "awake, and nothing was heard"


def test_who_may_not_carry_a_service_seeks_for_ever_at_a_bounded_rate():
    seeker = finder(carry_after_ns=None)
    sought, told = run_to(seeker, NOW + 60 * SECOND)
    assert 100 <= len(sought) <= 130
    assert not any(isinstance(each, ServiceAbsent) for each in told)


def test_of_two_seekers_the_younger_waits_for_the_elder():
    younger = finder()
    run_to(younger, NOW)
    younger.on_frame(NOW, THERE, frame_of(Seek(*THERE, NOW - 1, True, False)))
    _, told = run_to(younger, NOW + 900 * MILLISECOND)
    assert told == []
    _, told = run_to(younger, NOW + 1100 * MILLISECOND)
    assert told == [ServiceAbsent()], "the elder one did not come"
    elder = finder()
    run_to(elder, NOW)
    elder.on_frame(NOW, THERE, frame_of(Seek(*THERE, NOW + 1, True, False)))
    assert run_to(elder, NOW + 300 * MILLISECOND)[1] == [ServiceAbsent()]


def test_seeds_are_asked_directly_and_answer_for_the_service_that_they_know():
    seeker = finder(multicast=False, seeds=[HERE, THERE])
    sought, _ = run_to(seeker, NOW)
    assert [each.destination for each in sought] == [THERE], "not itself"
    seed, place = finder(THERE), Endpoint("10.0.0.9", 9)
    run_to(seed, NOW)
    seed.on_frame(NOW, place, frame_of(info(place).to_beacon()))
    run_to(seed, NOW)
    seed.on_frame(NOW, HERE, split(sought[0].data)[0])
    (answer,), _ = run_to(seed, NOW)
    assert answer.destination == HERE
    # What the seed says is a hint: the service itself is asked, and believed.
    seeker.on_frame(NOW, THERE, split(answer.data)[0])
    (question,), told = run_to(seeker, NOW)
    assert (question.destination, told) == (place, [])
    service = beaconer(place)
    take(service)
    service.on_frame(NOW, HERE, split(question.data)[0])
    (word,) = datagrams(take(service))
    seeker.on_frame(NOW, place, split(word.data)[0])
    _, told = run_to(seeker, NOW)
    assert [each.service.endpoint for each in told if isinstance(each, ServiceFound)] == [place]


def test_a_forged_beacon_lures_nobody_away_and_makes_little_noise():
    seeker, service = finder(), beaconer()
    assert service.info is not None
    seeker.on_frame(NOW, THERE, frame_of(service.info.to_beacon()))
    run_to(seeker, NOW)
    take(service)
    for number in range(1000):
        forged = frame_of(ServiceInfo(Endpoint("10.6.6.6", 1 + number), True, 1000, 1 << 20, 0).to_beacon())
        seeker.on_frame(NOW, Endpoint("10.0.0.3", 7), forged)
        service.on_frame(NOW, Endpoint("10.0.0.3", 7), forged)
    asked, told = run_to(seeker, NOW)
    assert seeker.service == service.info
    assert told == []
    assert len(asked) == HINTS_MAX
    assert not any(isinstance(each, ServiceOutranked) for each in events(take(service)))


def test_only_a_service_itself_says_farewell_and_only_who_seeks_is_answered():
    seeker, service = finder(), beaconer()
    assert service.info is not None
    seeker.on_frame(NOW, THERE, frame_of(service.info.to_beacon()))
    run_to(seeker, NOW)
    take(service)
    seeker.on_frame(NOW, Endpoint("10.0.0.3", 7), frame_of(Farewell(*THERE)))
    assert seeker.service == service.info
    service.on_frame(NOW, Endpoint("10.0.0.3", 7), frame_of(Seek(*HERE, 0, True, True)))
    assert datagrams(take(service)) == []


def test_a_silent_service_is_lost_and_sought_again():
    seeker = finder()
    run_to(seeker, NOW)
    seeker.on_frame(NOW, THERE, frame_of(info().to_beacon()))
    _, told = run_to(seeker, NOW + 2 * SECOND)
    assert told == [ServiceFound(info())]
    seeker.on_frame(NOW + 2 * SECOND, THERE, frame_of(info(lives=2).to_beacon()))
    _, told = run_to(seeker, NOW + 4 * SECOND)
    assert told == [], "it was heard in between"
    sought, told = run_to(seeker, NOW + 6 * SECOND)
    assert isinstance(told[0], ServiceLost)
    assert ServiceAbsent() in told
    assert sought


def test_a_node_follows_the_service_of_higher_rank_and_no_other():
    seeker = finder()
    run_to(seeker, NOW)
    other = Endpoint("10.0.0.3", 1)
    seeker.on_frame(NOW, THERE, frame_of(info(lives=2).to_beacon()))
    seeker.on_frame(NOW, other, frame_of(info(other, lives=1, term=9).to_beacon()))
    assert seeker.service == info(lives=2)
    seeker.on_frame(NOW, other, frame_of(info(other, lives=3).to_beacon()))
    assert seeker.service == info(other, lives=3)


def test_who_carries_the_service_does_not_listen_to_others_until_told():
    carrier = finder()
    run_to(carrier, NOW)
    carrier.submit(NOW, TrustService(info(HERE, lives=0)))
    carrier.on_frame(NOW, THERE, frame_of(info(lives=9).to_beacon()))
    assert carrier.service == info(HERE, lives=0)
    assert carrier.next_deadline_ns() is None, "its own beacons do not come back to it"
    carrier.submit(NOW, TrustService(info(lives=9)))
    assert carrier.service == info(lives=9)


def test_a_beacon_answers_seekers_and_comes_twice_a_second():
    service = beaconer()
    service.on_timer(NOW)
    output = take(service)
    assert [each.destination for each in datagrams(output)] == [BEACON_CHANNEL]
    assert service.next_deadline_ns() == NOW + 500 * MILLISECOND
    service.on_frame(NOW, HERE, frame_of(Seek(*HERE, 1, True, False)))
    (answer,) = datagrams(take(service))
    assert answer.destination == HERE
    assert (message_of(answer).host, message_of(answer).port) == THERE


def test_a_service_that_ends_says_farewell_and_its_nodes_seek_at_once():
    service, seeker = beaconer(), finder()
    take(service)
    run_to(seeker, NOW)
    assert service.info is not None
    seeker.on_frame(NOW, THERE, frame_of(service.info.to_beacon()))
    run_to(seeker, NOW)
    service.submit(NOW, EndBeacon())
    (word,) = datagrams(take(service))
    assert word.destination == BEACON_CHANNEL
    seeker.on_frame(NOW, THERE, split(word.data)[0])
    sought, told = run_to(seeker, NOW)
    assert [type(each) for each in told] == [ServiceLost]
    assert sought
    # A farewell of another service is nobody's concern.
    seeker.on_frame(NOW, HERE, frame_of(info(HERE).to_beacon()))
    run_to(seeker, NOW)
    seeker.on_frame(NOW, THERE, split(word.data)[0])
    assert seeker.service == info(HERE)


def test_of_two_services_exactly_one_gives_way():
    cases = [
        ({"lives": 2}, {"lives": 1}),
        ({"dedicated": True, "lives": 0}, {"lives": 5}),
        ({"term": term_of(2, 1)}, {"term": term_of(1, 9)}),
        ({}, {}),
    ]
    for first, second in cases:
        a, b = beaconer(HERE, **first), beaconer(THERE, **second)
        for machine in (a, b):
            take(machine)
        assert a.info is not None
        assert b.info is not None
        a.on_frame(NOW, THERE, frame_of(b.info.to_beacon()))
        b.on_frame(NOW, HERE, frame_of(a.info.to_beacon()))
        outranked = [any(isinstance(each, ServiceOutranked) for each in events(take(machine))) for machine in (a, b)]
        assert sorted(outranked) == [False, True]
        if first != second:
            assert outranked == [False, True], "the first of each case stays"


def test_what_is_not_of_the_domain_s_discovery_is_refused():
    seeker = finder()
    run_to(seeker, NOW)
    bad = split(encode_control(Kind.DISCOVERY, DOMAIN, 0, 0, 0, 0, NOW, Seek("h", 1, 1, True, True)))[0]
    seeker.on_frame(NOW, Endpoint("x", 1), bad)
    sought, _ = run_to(seeker, NOW)
    assert all(each.destination == Channel(0) for each in sought), "it knows no service to tell of"
