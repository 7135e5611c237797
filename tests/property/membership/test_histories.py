"""Random histories over a bad link: in the end everybody agrees, and every request was applied once."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from membership_net.net import MILLISECOND, SECOND, SERVICE, Net
from vivum.core.ids import Endpoint
from vivum.core.ranges import RangeSet
from vivum.protocols.membership.client.changes import ConfigurationChanged, Removed, Welcomed
from vivum.protocols.membership.settings import ServiceSettings

HOSTS = [f"h{index}" for index in range(6)]
STEPS = {
    "subscribe": 30,
    "unsubscribe": 18,
    "wait": 40,
    "restart": 6,
    "kill": 1,
    "leave": 1,
    "cut": 3,
    "heal": 3,
    "accuse": 3,
}


def history(rng, length):
    """Steps at random. Drawn from a seed and not by hypothesis, whose lists are too short to get into trouble."""
    for step in rng.choices(list(STEPS), list(STEPS.values()), k=length):
        if step == "wait":
            yield step, "", rng.choice([1, 10, 25, 25, 60, 300])
        elif step in ("subscribe", "unsubscribe"):
            starts = [rng.randrange(24) for _ in range(rng.randint(1, 3))]
            yield step, rng.choice(HOSTS), [(start, start + rng.choice([1, 1, 2, 5, 12])) for start in starts]
        else:
            yield step, rng.choice(HOSTS), rng.choice(HOSTS)


def run(net, steps, *, begin=True):
    """Do what the steps say; tell what each host should have in the end, None if its process is no more."""
    wanted = {}
    for host in HOSTS:
        if begin:
            net.add(host)
        client = net.clients.get(Endpoint(host, 1))
        wanted[host] = None if client is None else client.wanted_groups.copy()
    for step, host, detail in steps:
        client = net.clients.get(Endpoint(host, 1))
        if step == "wait":
            net.run_for(detail * MILLISECOND)
        elif step == "restart":
            net.add(host)
            wanted[host] = RangeSet()
        elif client is None or wanted[host] is None:
            continue
        elif step == "subscribe":
            net.subscribe(client, *detail)
            wanted[host].update(RangeSet(detail))
        elif step == "unsubscribe":
            net.unsubscribe(client, *detail)
            wanted[host].difference_update(RangeSet(detail))
        elif step == "kill":
            net.kill(host)
            wanted[host] = None
        elif step == "leave":
            client.leave(net.now_ns)
            wanted[host] = None
        elif step == "cut":
            net.cut.add(Endpoint(host, 1))
        elif step == "heal":
            net.cut.clear()
        elif step == "accuse":
            accused = net.clients.get(Endpoint(detail, 1))
            if accused is not None and accused.member is not None:
                client.report_failure(net.now_ns, accused.member, SECOND)
    return wanted


def check_changes(changes):
    """What a client told its owner is a story: lives one after another, epochs and views that only grow."""
    member, epoch, known, members = None, 0, {}, []
    for change in changes:
        match change:
            case Welcomed():
                assert member is None
                assert change.member not in members
                member, epoch, known = change.member, 0, {}
                members.append(member)
            case Removed():
                assert change.member == member
                member = None
            case ConfigurationChanged():
                assert member is not None
                assert change.epoch > epoch
                epoch = change.epoch
                for region, before in change.before.items():
                    assert known.pop(region, None) == before
                for region, after in change.after.items():
                    if after is not None:
                        assert change.before[region] is None or change.before[region].view < after.view <= epoch
                        known[region] = after


@pytest.mark.parametrize("regions_max", [1024, 3])
@given(
    seed=st.integers(0, 2**32),
    length=st.integers(20, 250),
    loss=st.sampled_from([0.0, 0.1, 0.3, 0.5]),
    duplication=st.sampled_from([0.0, 0.2]),
    delay_ms=st.sampled_from([1, 5, 50, 400]),
    frame_bytes=st.sampled_from([60_000, 150]),
    tombstones=st.sampled_from([4096, 1]),
    standbys=st.sampled_from([0, 2]),
)
@settings(max_examples=60)
def test_all_agree_after_any_history_over_a_bad_link(
    regions_max, seed, length, loss, duplication, delay_ms, frame_bytes, tombstones, standbys
):
    net = Net(
        seed,
        ServiceSettings(
            frame_bytes_max=frame_bytes,
            tombstones_max=tombstones,
            regions_max=regions_max,
            waste_max=0.4,
            standbys=standbys,
        ),
    )
    net.watched = range(40)
    net.loss, net.duplication, net.delay_ns_max = loss, duplication, delay_ms * MILLISECOND
    wanted = run(net, history(Random(seed), length))
    net.run_for(SECOND)
    net.settle()
    net.follow_service()
    net.assert_agreement()
    for host in HOSTS:
        client = net.clients.get(Endpoint(host, 1))
        if client is not None:
            check_changes(net.changes[client])
            net.assert_saw_every_view(client)
            assert (client.member is None) == (wanted[host] is None)
            if client.member is not None:
                assert client.groups == wanted[host], "every request was applied once, in order"
    # The dead and the departed are out, whoever they were.
    assert {life.endpoint.host for life in net.service.lives.values()} == {
        host for host in HOSTS if wanted[host] is not None
    }


@given(
    seed=st.integers(0, 2**32),
    lengths=st.tuples(st.integers(0, 120), st.integers(0, 120)),
    loss=st.sampled_from([0.0, 0.1, 0.2]),
    duplication=st.sampled_from([0.0, 0.2]),
    delay_ms=st.sampled_from([1, 5, 50]),
    frame_bytes=st.sampled_from([60_000, 150]),
    log_entries=st.sampled_from([4096, 3]),
    dies=st.booleans(),
)
@settings(max_examples=20)
def test_all_agree_after_any_history_in_which_the_service_dies_or_is_cut_off(
    seed, lengths, loss, duplication, delay_ms, frame_bytes, log_entries, dies
):
    rng = Random(seed)
    net = Net(seed, ServiceSettings(frame_bytes_max=frame_bytes, log_entries_max=log_entries))
    net.seeds = [Endpoint(host, 1) for host in HOSTS]
    net.watched = range(40)
    net.duplication, net.delay_ns_max = duplication, delay_ms * MILLISECOND
    quiet = [each for each in history(rng, lengths[0]) if each[0] in ("subscribe", "unsubscribe", "wait", "accuse")]
    run(net, quiet)
    # A standby must have had time to get its first copy; what happens before, nobody can go on from.
    net.run_for(2 * SECOND)
    net.loss = loss
    run(net, [each for each in history(rng, 20) if each[0] in ("subscribe", "unsubscribe", "wait")], begin=False)
    if dies:
        net.kill_service()
    else:
        net.cut.add(SERVICE)
    run(net, [each for each in history(rng, 20) if each[0] in ("subscribe", "unsubscribe", "wait")], begin=False)
    net.run_for(15 * SECOND)
    net.cut.clear()
    # Nobody dies now: whoever serves and its standbys may be gone within the time that a take-over needs.
    calm = [each for each in history(rng, lengths[1]) if each[0] not in ("restart", "kill", "leave")]
    wanted = run(net, calm, begin=False)
    net.run_for(SECOND)
    net.settle()
    assert len(net.serving()) == 1
    net.follow_service()
    net.assert_agreement()
    for host in HOSTS:
        client = net.clients.get(Endpoint(host, 1))
        if client is not None:
            check_changes(net.changes[client])
            assert (client.member is None) == (wanted[host] is None)
            if client.member is not None:
                assert client.groups == wanted[host]
