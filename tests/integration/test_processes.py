"""Nodes in processes of their own: joining, leaving, dying, sleeping."""

import signal

import pytest

from live_processes.director import Cast

TOPIC = "/swx/NESN"


@pytest.mark.slow
def test_processes_that_start_at_once_find_one_service_and_all_get_everything(cast: Cast) -> None:
    actors = cast.start(6)
    assert sum(each.ask("report")["carries"] for each in actors) == 1
    for each in actors:
        each.tell("enter", topics=[TOPIC])
    for each in actors:
        each.answer()
    for each in actors:
        each.ask("members", topic=TOPIC, count=6)
    for number, each in enumerate(actors):
        each.tell("send", topic=TOPIC, tag=f"from{number}", count=2000)
    for each in actors:
        assert each.answer() == 2000
    for each in actors:
        for number in range(6):
            assert each.ask("expect", topic=TOPIC, tag=f"from{number}", count=2000) == 2000
    for each in actors:
        assert each.ask("flush", topic=TOPIC) == "stable"
        report = each.ask("report")
        assert (report["out_of_order"], report["missed"]) == ([], [])
    for each in actors:
        assert each.close() == 0


@pytest.mark.slow
def test_twelve_processes_get_everything(cast: Cast) -> None:
    actors = cast.start(12)
    for each in actors:
        each.tell("enter", topics=[TOPIC])
    for each in actors:
        each.answer()
    actors[0].ask("members", topic=TOPIC, count=12)
    actors[0].ask("send", topic=TOPIC, tag="a", count=20_000, size=1000)
    for each in actors:
        assert each.ask("expect", topic=TOPIC, tag="a", count=20_000) == 20_000
        assert each.ask("report")["out_of_order"] == []
    assert actors[0].ask("flush", topic=TOPIC) == "stable"


@pytest.mark.slow
def test_a_member_that_is_killed_leaves_the_view_and_the_others_go_on(cast: Cast) -> None:
    (first,) = cast.start()
    second, third = cast.start(2)
    for each in (first, second, third):
        each.ask("enter", topics=[TOPIC])
    first.ask("members", topic=TOPIC, count=3)
    first.ask("send", topic=TOPIC, tag="a", count=500)
    third.kill()
    first.ask("send", topic=TOPIC, tag="a", count=500, first=500)
    assert second.ask("expect", topic=TOPIC, tag="a", count=1000) == 1000
    first.ask("members", topic=TOPIC, count=2)
    second.ask("members", topic=TOPIC, count=2)
    first.ask("send", topic=TOPIC, tag="a", count=500, first=1000)
    assert second.ask("expect", topic=TOPIC, tag="a", count=1500) == 1500
    assert first.ask("flush", topic=TOPIC) == "stable"
    assert second.ask("report")["out_of_order"] == []


@pytest.mark.slow
def test_a_sender_that_is_killed_does_not_stop_the_others(cast: Cast) -> None:
    (carrier,) = cast.start()
    sender, other = cast.start(2)
    for each in (carrier, sender, other):
        each.ask("enter", topics=[TOPIC])
    sender.ask("members", topic=TOPIC, count=3)
    sender.ask("send", topic=TOPIC, tag="dead", count=5000)
    sender.kill()
    carrier.ask("members", topic=TOPIC, count=2)
    carrier.ask("send", topic=TOPIC, tag="alive", count=1000)
    for each in (carrier, other):
        assert each.ask("expect", topic=TOPIC, tag="alive", count=1000) == 1000
        assert each.ask("report")["out_of_order"] == []
    assert carrier.ask("flush", topic=TOPIC) == "stable"


@pytest.mark.slow
def test_a_process_that_carries_the_service_dies_and_the_others_find_together_again(cast: Cast) -> None:
    (carrier,) = cast.start()
    first, second = cast.start(2)
    assert carrier.ask("report")["carries"]
    for each in (carrier, first, second):
        each.ask("enter", topics=[TOPIC])
    first.ask("members", topic=TOPIC, count=3)
    first.ask("send", topic=TOPIC, tag="a", count=100)
    assert second.ask("expect", topic=TOPIC, tag="a", count=100) == 100
    assert first.ask("flush", topic=TOPIC) == "stable"
    carrier.kill()
    for each in (first, second):
        assert len(each.ask("members", topic=TOPIC, count=2)) == 2
    assert sum(each.ask("report")["carries"] for each in (first, second)) == 1
    first.ask("send", topic=TOPIC, tag="b", count=1000)
    for each in (first, second):
        assert each.ask("expect", topic=TOPIC, tag="b", count=1000) == 1000
    assert first.ask("flush", topic=TOPIC) == "stable"


@pytest.mark.slow
def test_a_member_that_sleeps_for_a_moment_catches_up(cast: Cast) -> None:
    (first,) = cast.start()
    second, third = cast.start(2)
    for each in (first, second, third):
        each.ask("enter", topics=[TOPIC])
    first.ask("members", topic=TOPIC, count=3)
    third.signal(signal.SIGSTOP)
    first.ask("send", topic=TOPIC, tag="a", count=3000)
    # The other one gets everything while the third sleeps.
    assert second.ask("expect", topic=TOPIC, tag="a", count=3000) == 3000
    third.signal(signal.SIGCONT)
    assert third.ask("expect", topic=TOPIC, tag="a", count=3000) == 3000
    report = third.ask("report")
    assert (report["out_of_order"], report["missed"]) == ([], [])
    assert first.ask("flush", topic=TOPIC) == "stable"


@pytest.mark.slow
@pytest.mark.parametrize("sleeper_carries_the_service", [False, True])
def test_a_member_that_sleeps_for_too_long_is_told_and_comes_back(
    cast: Cast, sleeper_carries_the_service: bool
) -> None:
    (carrier,) = cast.start()
    first, second, third = [*cast.start(2), carrier] if sleeper_carries_the_service else [carrier, *cast.start(2)]
    members = [each.ask("enter", topics=[TOPIC]) for each in (first, second, third)]
    first.ask("members", topic=TOPIC, count=3)
    third.signal(signal.SIGSTOP)
    first.ask("send", topic=TOPIC, tag="a", count=1000)
    first.ask("members", topic=TOPIC, count=2)
    third.signal(signal.SIGCONT)
    first.ask("members", topic=TOPIC, count=3)
    third.ask("members", topic=TOPIC, count=3)
    first.ask("send", topic=TOPIC, tag="b", count=1000)
    assert third.ask("expect", topic=TOPIC, tag="b", count=1000) == 1000
    report = third.ask("report")
    assert report["member"] != members[2]
    assert any("joins again" in each for each in report["missed"])


def test_a_process_that_leaves_is_out_of_the_view_at_once(cast: Cast) -> None:
    (first,) = cast.start()
    (second,) = cast.start()
    for each in (first, second):
        each.ask("enter", topics=[TOPIC])
    first.ask("members", topic=TOPIC, count=2)
    second.ask("send", topic=TOPIC, tag="a", count=100)
    second.ask("flush", topic=TOPIC)
    second.ask("leave", topic=TOPIC)
    first.ask("members", topic=TOPIC, count=1)
    assert first.ask("expect", topic=TOPIC, tag="a", count=100) == 100
    assert second.close() == 0


@pytest.mark.slow
def test_a_domain_that_slept_and_a_newcomer_with_a_service_of_its_own_become_one(cast: Cast) -> None:
    """Both services give lives to nodes 1, 2, 3: were these alike, one would be taken for another."""
    sleepers = cast.start(3)
    for each in sleepers:
        each.ask("enter", topics=[TOPIC])
    (old, *_) = [each.ask("members", topic=TOPIC, count=3) for each in sleepers]
    for each in sleepers:
        each.signal(signal.SIGSTOP)
    (newcomer,) = cast.start(1)
    alone = newcomer.ask("report")
    assert alone["carries"], "nobody answered it"
    assert alone["member"] not in old
    newcomer.ask("enter", topics=[TOPIC])
    for each in sleepers:
        each.signal(signal.SIGCONT)
    everybody = [*sleepers, newcomer]
    views: set[tuple[str, ...]] = set()
    while len(views) != 1:
        views = {tuple(each.ask("members", topic=TOPIC, count=4)) for each in everybody}
    for number, each in enumerate(everybody):
        each.ask("send", topic=TOPIC, tag=str(number), count=10)
    for number in range(4):
        for each in everybody:
            each.ask("expect", topic=TOPIC, tag=str(number), count=10)
    assert sum(each.ask("report")["carries"] for each in everybody) == 1
