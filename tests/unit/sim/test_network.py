"""The network model: bandwidth, queues, delay, multicast, partitions, loss, duplication, reordering.

At 8 Mbit a byte takes a microsecond; headers are 28 bytes of UDP and IP and 38 of Ethernet for each packet.
"""

from collections.abc import Callable
from itertools import groupby, pairwise
from typing import Any

import pytest

from vivum.core.randomness import RandomSource
from vivum.core.time import MICROSECOND, SECOND
from vivum.sim.loss import BurstLoss, IndependentLoss

HEADERS = 28 + 38
DELAY_NS = 1000

MakeRig = Callable[..., Any]


def wire_ns(payload_bytes: int) -> int:
    return (payload_bytes + HEADERS) * MICROSECOND


def test_a_datagram_takes_its_bytes_and_headers_on_both_links_and_the_delay(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.send(1, 2, bytes(100))
    rig.scheduler.run_until(SECOND)
    assert rig.received() == [(2 * wire_ns(100) + DELAY_NS, 100)]


def test_a_large_datagram_pays_ethernet_headers_for_each_packet_of_1500_bytes(make_rig: MakeRig) -> None:
    network = make_rig().network
    assert network.wire_time_ns(1472) == (1500 + 38) * MICROSECOND
    assert network.wire_time_ns(1473) == (1501 + 2 * 38) * MICROSECOND
    assert network.wire_time_ns(60_000) == (60_028 + 41 * 38) * MICROSECOND


def test_datagrams_of_one_sender_queue_at_its_interface(make_rig: MakeRig) -> None:
    rig = make_rig()
    for size in (100, 200, 300):
        rig.send(1, 2, bytes(size))
    rig.scheduler.run_until(SECOND)
    times = [at_ns for at_ns, _ in rig.received(2)]
    # The second leaves when the first is out; the receiver's link is never the bottleneck for rising sizes.
    out = [wire_ns(100), wire_ns(100) + wire_ns(200), wire_ns(100) + wire_ns(200) + wire_ns(300)]
    assert times == [at_ns + DELAY_NS + wire_ns(size) for at_ns, size in zip(out, (100, 200, 300), strict=True)]


def test_the_room_of_an_interface_shrinks_with_what_is_queued_and_grows_with_time(make_rig: MakeRig) -> None:
    rig = make_rig(egress_bytes_max=1000)
    assert rig.network.egress_room_bytes(rig.port(1)) == 1000
    rig.send(1, 2, bytes(434))
    assert rig.network.egress_room_bytes(rig.port(1)) == 500
    rig.scheduler.run_until(100 * MICROSECOND)
    assert rig.network.egress_room_bytes(rig.port(1)) == 600
    rig.scheduler.run_until(SECOND)
    assert rig.network.egress_room_bytes(rig.port(1)) == 1000


def test_multicasts_of_two_senders_queue_at_the_link_of_each_receiver(make_rig: MakeRig) -> None:
    rig = make_rig(4)
    rig.send(1, None, bytes(100))
    rig.send(2, None, bytes(100))
    rig.scheduler.run_until(SECOND)
    one = wire_ns(100) + DELAY_NS + wire_ns(100)
    for receiver in (3, 4):
        assert rig.received(receiver) == [(one, 100), (one + wire_ns(100), 100)]
    # Each sender hears the other alone, at once.
    assert rig.received(1) == rig.received(2) == [(one, 100)]


def test_a_multicast_is_one_send_and_an_arrival_at_everybody_but_the_sender(make_rig: MakeRig) -> None:
    rig = make_rig(5)
    rig.send(3, None, bytes(100))
    assert rig.port(3).egress_free_ns == wire_ns(100)
    rig.scheduler.run_until(SECOND)
    assert rig.network.arrivals == 4
    assert rig.received(3) == []
    assert all(len(rig.received(node)) == 1 for node in (1, 2, 4, 5))


def test_who_does_not_listen_does_not_hear(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.network.unlisten(1, 2)
    rig.send(1, None, bytes(100))
    rig.scheduler.run_until(SECOND)
    assert rig.received(2) == []
    assert len(rig.received(3)) == 1


def test_what_the_switch_cannot_queue_is_lost(make_rig: MakeRig) -> None:
    rig = make_rig(4, ingress_bytes_max=1000)
    for _ in range(3):
        for source in (1, 2, 3):
            rig.send(source, 4, bytes(434))
    rig.scheduler.run_until(SECOND)
    # The first round of three fits: one on the link and 500 bytes with headers behind it.
    lost = rig.dropped("switch queue full")
    assert len(lost) == rig.network.losses["switch queue full"] > 0
    assert len(lost) + len(rig.received(4)) == 9
    spacing = [after - before for (before, _), (after, _) in pairwise(rig.received(4))]
    assert set(spacing) == {wire_ns(434)}


@pytest.mark.parametrize("jitter_ns", [0, 10_000, 500_000])
def test_an_arrival_is_late_by_the_delay_and_at_most_the_jitter(make_rig: MakeRig, jitter_ns: int) -> None:
    rig = make_rig(jitter_ns=jitter_ns, delay_ns=50_000)
    late = set()
    for number in range(200):
        sent_ns = number * 10 * 1_000_000
        rig.scheduler.run_until(sent_ns)
        rig.send(1, 2, bytes(10))
        rig.scheduler.run_until(sent_ns + 5_000_000)
        late.add(rig.received(2)[-1][0] - sent_ns - 2 * wire_ns(10))
    assert min(late) >= 50_000
    assert max(late) <= 50_000 + jitter_ns
    assert len(late) > 100 or not jitter_ns


def test_jitter_alone_never_reorders_and_never_overflows_an_idle_switch(make_rig: MakeRig) -> None:
    # A jitter of 10 ms at 1 Gbit is 1.25 MB of link time; the queue of 10 kB must not count it as bytes.
    rig = make_rig(jitter_ns=10_000_000, bandwidth_bps=1_000_000_000, ingress_bytes_max=10_000)
    for number in range(1, 101):
        rig.send(1, 2, bytes(number), at_ns=number * 100_000)
    rig.scheduler.run_until(SECOND)
    assert rig.network.losses == {}
    assert [size for _, size in rig.received(2)] == list(range(1, 101))


def test_a_lost_datagram_is_counted_and_traced_with_its_cause(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.port(2).loss.append(IndependentLoss(1.0))
    rig.port(2).update()
    rig.send(1, None, bytes(77))
    rig.scheduler.run_until(SECOND)
    assert rig.network.losses == {"link": 1}
    assert rig.dropped("link") == [77]
    assert rig.received(2) == []
    assert len(rig.received(3)) == 1


def test_independent_loss_has_the_rate_that_was_asked_for() -> None:
    rng = RandomSource(1)
    model = IndependentLoss(0.2)
    lost = sum(model.loses(rng) for _ in range(50_000))
    assert 0.19 < lost / 50_000 < 0.21


@pytest.mark.parametrize(("rate", "length"), [(0.1, 10.0), (0.3, 3.0), (0.05, 20.0), (0.5, 1.0)])
def test_burst_loss_has_the_rate_and_mean_length_that_were_asked_for(rate: float, length: float) -> None:
    rng = RandomSource(2)
    model = BurstLoss(rate, length)
    fates = [model.loses(rng) for _ in range(400_000)]
    bursts = [len(list(run)) for lost, run in groupby(fates) if lost]
    assert sum(fates) / len(fates) == pytest.approx(rate, rel=0.1)
    assert sum(bursts) / len(bursts) == pytest.approx(length, rel=0.1)


def test_duplicated_datagrams_arrive_twice_and_the_copy_is_the_same(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.port(2).duplicates.append(0.5)
    rig.port(2).update()
    for number in range(200):
        rig.send(1, 2, bytes(number), at_ns=number * 1_000_000)
    rig.scheduler.run_until(SECOND)
    sizes = [size for _, size in rig.received(2)]
    assert set(sizes) == set(range(200))
    assert max(sizes.count(size) for size in set(sizes)) == 2
    assert 250 < len(sizes) < 350
    assert rig.network.arrivals == len(sizes)


def test_reordered_datagrams_arrive_later_than_sent_by_at_most_the_delay_and_none_is_lost(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.port(2).reorders.append((0.3, 5_000_000))
    rig.port(2).update()
    for number in range(200):
        rig.send(1, 2, bytes(number), at_ns=number * 1_000_000)
    rig.scheduler.run_until(SECOND)
    sizes = [size for _, size in rig.received(2)]
    assert sorted(sizes) == list(range(200))
    assert sizes != sorted(sizes)
    late = [at_ns - size * 1_000_000 - 2 * wire_ns(size) - DELAY_NS for at_ns, size in rig.received(2)]
    assert min(late) == 0
    assert 1_000_000 < max(late) <= 5_000_000
