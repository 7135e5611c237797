"""Virtual time: order, and nothing in the past."""

import pytest

from vivum.sim.engine import Scheduler


def test_events_run_in_the_order_of_their_times() -> None:
    scheduler = Scheduler()
    seen: list[tuple[int, str]] = []
    for at_ns, name in ((30, "c"), (10, "a"), (20, "b")):
        scheduler.at(at_ns, lambda name: seen.append((scheduler.now_ns, name)), name)
    scheduler.run_until(100)
    assert seen == [(10, "a"), (20, "b"), (30, "c")]


def test_events_of_one_nanosecond_run_in_the_order_of_scheduling() -> None:
    scheduler = Scheduler()
    seen: list[int] = []
    for number in range(50):
        scheduler.at(7, seen.append, number)
    scheduler.run_until(7)
    assert seen == list(range(50))


def test_an_event_may_schedule_another_for_the_same_instant() -> None:
    scheduler = Scheduler()
    seen: list[str] = []
    scheduler.at(5, lambda _: (seen.append("first"), scheduler.at(5, seen.append, "second")))
    scheduler.run_until(5)
    assert seen == ["first", "second"]


def test_time_stands_at_the_end_of_a_run_and_later_events_wait() -> None:
    scheduler = Scheduler()
    seen: list[str] = []
    scheduler.at(11, seen.append, "late")
    scheduler.run_until(10)
    assert (scheduler.now_ns, seen, scheduler.idle, scheduler.events) == (10, [], False, 0)
    scheduler.run_until(11)
    assert (scheduler.now_ns, seen, scheduler.idle, scheduler.events) == (11, ["late"], True, 1)


def test_nothing_is_scheduled_into_the_past() -> None:
    scheduler = Scheduler()
    scheduler.run_until(10)
    with pytest.raises(AssertionError, match="into the past"):
        scheduler.at(9, print)
