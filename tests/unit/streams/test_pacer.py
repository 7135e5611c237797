"""Frames keep to the rate of their stream."""

from itertools import pairwise

from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.streams.pacer import Pacer
from vivum.protocols.streams.settings import StreamSettings


def paced(pacer: Pacer, start_ns: int, count: int) -> list[int]:
    times = []
    now_ns = start_ns
    for _ in range(count):
        now_ns = pacer.ready_ns(now_ns)
        pacer.on_sent()
        times.append(now_ns)
    return times


def test_frames_are_spread_evenly_at_the_rate() -> None:
    pacer = Pacer(StreamSettings(pacing_slack_ns=0))
    pacer.set_rate(1000)
    times = paced(pacer, SECOND, 10)
    assert [later - earlier for earlier, later in pairwise(times)] == [MILLISECOND] * 9


def test_a_sender_that_was_held_up_catches_up_a_little_and_no_more() -> None:
    pacer = Pacer(StreamSettings(pacing_slack_ns=5 * MILLISECOND))
    pacer.set_rate(1000)
    times = paced(pacer, 100 * SECOND, 20)
    assert times[:6] == [100 * SECOND] * 6
    assert times[6] > 100 * SECOND
    assert times[-1] == 100 * SECOND + 14 * MILLISECOND


def test_without_a_rate_frames_go_at_once() -> None:
    pacer = Pacer(StreamSettings())
    pacer.set_rate(0)
    assert paced(pacer, 7, 1000) == [7] * 1000


def test_a_sender_whose_processor_was_late_catches_up_more() -> None:
    """Ours: what came more than 5 ms late was lost to the rate, and the link idle."""
    settings = StreamSettings(pacing_slack_ns=5 * MILLISECOND, pacing_late_slack_ns=15 * MILLISECOND)
    for is_resting, frames in ((False, 16), (True, 6)):
        pacer = Pacer(settings)
        pacer.set_rate(1000)
        now_ns = paced(pacer, SECOND, 10)[-1]
        assert pacer.ready_ns(now_ns) > now_ns
        if is_resting:
            # Then it was not the rate that it waited for.
            pacer.rest()
        times = paced(pacer, now_ns + 100 * MILLISECOND, 20)
        assert times.count(now_ns + 100 * MILLISECOND) == frames


def test_frames_that_wait_for_the_rate_leave_together_and_none_is_lost_to_it() -> None:
    pacer = Pacer(StreamSettings(pacing_slack_ns=0, pacing_quantum_ns=MILLISECOND))
    pacer.set_rate(8000)
    times = paced(pacer, SECOND, 8001)
    # The first goes at once; then those of a millisecond, and the one that is due at its end.
    assert times.count(times[0]) == 1
    assert {times.count(each) for each in set(times[1:-9])} == {9}
    assert abs(times[-1] - 2 * SECOND) <= MILLISECOND
    pacer.rest()
    pacer.set_rate(500)
    assert pacer.ready_ns(3 * SECOND) == 3 * SECOND
    pacer.on_sent()
    assert pacer.ready_ns(3 * SECOND) == 3 * SECOND + 2 * MILLISECOND, "a frame that is alone need not wait longer"


def test_frames_that_may_leave_now_are_counted_at_once() -> None:
    one, together = Pacer(StreamSettings()), Pacer(StreamSettings())
    for pacer in (one, together):
        pacer.set_rate(3000)
        assert pacer.ready_ns(SECOND) == SECOND
        pacer.on_sent()
    count = together.ready_count(SECOND)
    together.on_sent(count)
    for _ in range(count):
        assert one.ready_ns(SECOND) == SECOND
        one.on_sent()
    assert one.ready_ns(SECOND) == together.ready_ns(SECOND) > SECOND
    assert together.ready_count(SECOND) == 0
