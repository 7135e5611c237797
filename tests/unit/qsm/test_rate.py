"""Rates: what is stated, shared and kept to."""

from itertools import pairwise

from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.qsm.rate import Pacer, lowest, share
from vivum.protocols.qsm.settings import QsmSettings


def test_the_lower_of_two_rates_counts_and_none_counts_for_nothing() -> None:
    assert lowest(100, 200) == 100
    assert lowest(0, 200) == 200
    assert lowest(100, 0) == 100
    assert lowest(0, 0) == 0


def test_a_share_of_a_rate_is_never_no_limit() -> None:
    assert share(100, 4) == 25
    assert share(1, 3) == 1
    assert share(0, 3) == 0


def paced(pacer: Pacer, start_ns: int, count: int) -> list[int]:
    times = []
    now_ns = start_ns
    for _ in range(count):
        now_ns = pacer.ready_ns(now_ns)
        pacer.on_sent()
        times.append(now_ns)
    return times


def test_frames_are_spread_evenly_at_the_rate() -> None:
    pacer = Pacer(QsmSettings(pacing_slack_ns=0))
    pacer.set_rate(1000)
    times = paced(pacer, SECOND, 10)
    assert [later - earlier for earlier, later in pairwise(times)] == [MILLISECOND] * 9


def test_a_sender_that_was_held_up_catches_up_a_little_and_no_more() -> None:
    pacer = Pacer(QsmSettings(pacing_slack_ns=5 * MILLISECOND))
    pacer.set_rate(1000)
    times = paced(pacer, 100 * SECOND, 20)
    assert times[:6] == [100 * SECOND] * 6
    assert times[6] > 100 * SECOND
    assert times[-1] == 100 * SECOND + 14 * MILLISECOND


def test_without_a_rate_frames_go_at_once() -> None:
    pacer = Pacer(QsmSettings())
    pacer.set_rate(0)
    assert paced(pacer, 7, 1000) == [7] * 1000
