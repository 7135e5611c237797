"""A node that is late itself is patient with others."""

import pytest

from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.membership.client.health import SCORE_MAX, LocalHealth

TICK = 100 * MILLISECOND


def make_health():
    return LocalHealth(TICK, SECOND)


def look(health, times, silent=0, others=4):
    due = times[0]
    for now in times:
        health.on_look(now, due, silent, others)
        due = now + TICK


def test_a_node_that_runs_on_time_has_the_patience_that_was_set():
    health = make_health()
    look(health, [number * TICK for number in range(100)])
    assert health.patience_ns(2 * SECOND) == 2 * SECOND
    assert health.awake_ns(5 * SECOND, 2 * SECOND) == 3 * SECOND


def test_a_nap_makes_it_patient_and_calm_takes_that_back():
    health = make_health()
    look(health, [0, TICK, 3 * TICK])
    assert health.patience_ns(SECOND) == 2 * SECOND
    look(health, [3 * TICK + number * TICK for number in range(1, 12)])
    assert health.patience_ns(SECOND) == SECOND


@pytest.mark.parametrize("nap_s", [1, 3, 60])
def test_a_long_nap_is_worse_and_patience_is_bounded(nap_s):
    health = make_health()
    look(health, [0, TICK, TICK + nap_s * SECOND])
    assert 1 < health.score <= SCORE_MAX
    assert health.patience_ns(SECOND) <= (1 + SCORE_MAX) * SECOND


def test_time_slept_is_not_silence_of_others():
    health = make_health()
    look(health, [0, TICK, 3 * SECOND + 2 * TICK])
    now = 3 * SECOND + 2 * TICK
    assert health.awake_ns(now, 0) == 2 * TICK
    assert health.awake_ns(now, 2 * SECOND) == 0, "asleep all that time"
    assert health.awake_ns(now + SECOND, 2 * SECOND) == SECOND


def test_if_most_others_are_silent_the_trouble_may_be_here():
    health = make_health()
    times = [number * TICK for number in range(40)]
    look(health, times, silent=3, others=4)
    assert health.score > 0
    calm = make_health()
    look(calm, times, silent=2, others=4)
    assert calm.score == 0
    pair = make_health()
    look(pair, times, silent=1, others=1)
    assert pair.score == 0, "of one other, nothing can be said"


def test_patience_lost_by_the_silence_of_most_is_bounded_too():
    health = make_health()
    look(health, [number * TICK for number in range(1000)], silent=4, others=4)
    assert health.score == SCORE_MAX
