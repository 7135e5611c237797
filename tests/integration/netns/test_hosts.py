"""Hosts made of network namespaces: links, loss, partition; root only, skipped with a reason otherwise."""

import subprocess
import sys

import pytest

from vivum.bench.cell import Cell, Outcome, measure
from vivum.bench.crew import Crew, Worker
from vivum.bench.namespaces import NetnsNetwork, capacity_per_s, sweep, why_impossible
from vivum.bench.throughput import our_system

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why := why_impossible()), reason=why or "possible")]

PER_S = 500.0


def names() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


def cell_on(network: NetnsNetwork, seconds: float, per_s: float = PER_S) -> Cell:
    places = [(host.prefix, host.address) for host in network.hosts]
    return Cell(1000, len(places) - 2, seconds, options={"per_s": per_s, "batch": 5}, places=places)


def faults(outcome: Outcome) -> list[int]:
    """Count what must not be. A node that got no processor for seconds may be dropped, but not in silence."""
    return [outcome.lost_in_silence, outcome.total("duplicated"), outcome.total("out_of_order")]


def heard(network: NetnsNetwork, source: int, target: int) -> bool:
    """Send one datagram from host to host; tell whether it came."""
    listen = (
        "import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 9999)); s.settimeout(0.7);"
        "print('ready', flush=True)\ntry: s.recv(100)\nexcept TimeoutError: sys.exit(1)"
    )
    address = network.hosts[target].address
    speak = f"import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'hello', ('{address}', 9999))"
    with subprocess.Popen(
        [*network.hosts[target].prefix, sys.executable, "-c", listen], stdout=subprocess.PIPE
    ) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline() == b"ready\n"
        subprocess.run([*network.hosts[source].prefix, sys.executable, "-c", speak], check=True)
        return listener.wait(10) == 0


def test_hosts_hear_each_other_unless_they_are_parted_and_nothing_is_left_behind():
    before = names()
    with NetnsNetwork(3) as network:
        assert heard(network, 0, 2)
        network.partition(network.hosts[:2], network.hosts[2:])
        assert not heard(network, 0, 2)
        assert heard(network, 0, 1)
        network.heal()
        assert heard(network, 0, 2)
        assert network.hosts[0].name in names()
    assert names() == before


def test_what_a_killed_run_left_behind_is_swept():
    left = "import os; from vivum.bench.namespaces import NetnsNetwork; NetnsNetwork(2).__enter__(); os._exit(0)"
    process = subprocess.Popen([sys.executable, "-c", left])
    assert process.wait(30) == 0
    assert f"vivum-{process.pid}-" in names()
    sweep()
    assert f"vivum-{process.pid}-" not in names()


def test_multicast_is_heard_although_half_of_all_packets_are_lost():
    # A single probe that was lost once made a node of twenty settle for unicast, where it found nobody.
    with NetnsNetwork(1) as network:
        (host,) = network.hosts
        host.lose(50)
        ask = f"all(hears_multicast(7, '{host.address}') for _ in range(20))"
        probe = f"from vivum.runtime.interfaces import hears_multicast; print({ask})"
        heard = subprocess.run([*host.prefix, sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert heard.stdout == "True\n"


def test_with_loss_at_every_receiver_nothing_is_lost_in_the_end():
    with NetnsNetwork(4, rate_mbit=100) as network:
        for host in network.hosts[2:]:
            host.lose(5)
        outcome = measure(our_system(), cell_on(network, 3.0))
    assert faults(outcome) == [0, 0, 0]
    assert sum(each["counters"]["repairs_received"] for each in outcome.received) > 0


def test_a_receiver_that_was_cut_off_for_a_while_gets_everything_after_the_heal():
    with NetnsNetwork(5) as network:
        cut_off = network.hosts[4:]
        state = "before"

        def during(_crew: Crew, _receivers: list[Worker], since_s: float) -> None:
            nonlocal state
            if state == "before" and since_s > 0.5:
                network.partition(network.hosts[:4], cut_off)
                state = "parted"
            elif state == "parted" and since_s > 1.5:
                network.heal()
                state = "healed"

        outcome = measure(our_system(), cell_on(network, 4.0), during)
    assert state == "healed"
    assert faults(outcome) == [0, 0, 0]
    *others, lonely = outcome.received
    # What the others got while it was cut off came to it as repairs.
    assert min(each["delivered_per_s"] for each in others) > 0.8 * outcome.sent["sent_per_s"]
    assert lonely["counters"]["repairs_received"] > 0


def test_a_link_of_100_mbit_carries_no_more_than_it_can_and_nothing_is_lost_in_silence():
    with NetnsNetwork(3, rate_mbit=100) as network:
        outcome = measure(our_system(), cell_on(network, 2.0, per_s=0.0))
    assert faults(outcome) == [0, 0, 0]
    # All since the first send, not the window alone: what waited behind a gap before it is delivered in it.
    elapsed_s = outcome.start + outcome.seconds - outcome.sent["first_sent"]
    for each in outcome.received:
        # Packing saves some headers, never more than all of them.
        assert 0.5 < sum(each["by_slot"]) / elapsed_s / capacity_per_s(100, 1000) < 1.05
