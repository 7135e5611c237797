"""What service and client refuse."""

from random import Random
from zlib import crc32

import pytest

from membership_net.net import DOMAIN, SERVICE, Net
from membership_net.scenes import NOTHING, is_message, net_of, refused, to_client, to_service
from vivum.core.ids import Endpoint
from vivum.core.time import MILLISECOND, SECOND
from vivum.wire.codec import seal_control
from vivum.wire.kinds import Kind
from vivum.wire.membership import (
    Alive,
    Configuration,
    ConfigurationAck,
    FailureReport,
    Join,
    Leave,
    Probe,
    Removal,
    Subscribe,
    Welcome,
)


def test_a_message_of_a_former_life_is_answered_with_a_removal_and_does_nothing():
    net, (a,) = net_of(1)
    before = refused(net.service_gate)
    to_service(net, "h1", (1, 9), Subscribe(1, (0, 4), ()))
    to_service(net, "h1", (77, 1), Leave())
    assert refused(net.service_gate) == before + 2
    assert refused(net.gates[Endpoint("h1", 1)]) == 2, "removals of lives that are not this one"
    assert a.member == (1, 1)


def test_nobody_speaks_for_another_node():
    net, (a, _) = net_of(2)
    to_service(net, "h2", a.member, Leave())
    to_service(net, "h2", (0, 0), Join("thief", 1, "h1", 1))
    assert net.service.life_of(a.member) is not None
    assert refused(net.service_gate) == 2


@pytest.mark.parametrize(
    "message",
    [
        ConfigurationAck(99),
        Subscribe(7, (0, 4), ()),
        FailureReport(1, 1, 5),
        FailureReport(9, 1, 5),
    ],
)
def test_the_service_refuses_what_cannot_be(message):
    net, (a,) = net_of(1)
    to_service(net, "h1", a.member, message)
    assert refused(net.service_gate) == 1
    net.run_for(10 * SECOND)
    assert net.service.life_of(a.member) is not None


@pytest.mark.parametrize(
    "message",
    [
        Welcome("another process", 1, 2),
        Welcome("the process", 1, 2),
        Removal("another process", 5, 5),
        Removal("the process", 1, 2),
        Probe(1, 2),
        Configuration(1, 2, 0, 0, 5, 0, 1, crc32(NOTHING), NOTHING),
        Configuration(1, 1, 9, 0, 5, 0, 1, 0, b""),
        Configuration(1, 1, 0, 4, 5, 0, 1, 0, b""),
        Configuration(1, 1, 0, 0, 5, 0, 1, 0, b"junk"),
        Configuration(1, 1, 0, 0, 5, 0, 1, 0xDA39BA47, b"junk"),
        Configuration(1, 1, 0, 0, 5, 0, 1000, 0, b""),
    ],
)
def test_the_client_refuses_what_cannot_be(message):
    net = Net()
    client = net.add("h1", wanted=1, name="the process")
    net.run_for(10 * MILLISECOND)
    changes = list(net.changes[client])
    to_client(net, "h1", message)
    assert refused(net.gates[Endpoint("h1", 1)]) == 1
    assert (client.member, client.epoch, net.changes[client]) == ((1, 1), 0, changes)


def test_the_client_listens_to_its_service_alone():
    net, (a, _) = net_of(2)
    to_client(net, "h1", Removal("", 1, 1), source=Endpoint("h2", 1))
    assert a.member == (1, 1)
    assert refused(net.gates[Endpoint("h1", 1)]) == 1


def test_garbage_is_counted_and_never_raises():
    net, (a,) = net_of(1)
    rng = Random(5)
    for kind, source, destination in (
        (Kind.MEMBERSHIP, Endpoint("h1", 1), SERVICE),
        (Kind.CONFIGURATION, SERVICE, Endpoint("h1", 1)),
    ):
        for _ in range(300):
            body = bytes(rng.choice([0x94, 0x99, 5, 8, 13, 1, 0, 0xC4, 0xA1, rng.randrange(256)]) for _ in range(9))
            net.send(source, destination, seal_control(kind, DOMAIN, 1, 1, 0, 0, 0, 0, body))
    net.run_for(SECOND)
    counters = [net.service_gate.counters, net.gates[Endpoint("h1", 1)].counters]
    assert all(each.frames_refused_decode > 250 for each in counters)
    net.subscribe(a, (0, 4))
    net.settle()
    net.assert_agreement()


def test_a_probe_is_answered_by_the_life_that_it_names():
    net, _ = net_of(1)
    sent = []
    net.drop = lambda source, destination, data: source.host == "h1" and sent.append(data) is None
    to_client(net, "h1", Probe(1, 1))
    assert [is_message(data, Alive) for data in sent] == [True]
