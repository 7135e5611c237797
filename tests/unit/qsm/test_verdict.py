"""What a region decides of a stream from what its members say."""

import pytest

from vivum.core.time import MILLISECOND
from vivum.protocols.commands import SlowMembers
from vivum.protocols.qsm.settings import QsmSettings
from vivum.protocols.qsm.verdict import StreamVerdict
from vivum.wire.tokens import NOBODY, StreamRecord

SETTINGS = QsmSettings()


def said(
    prefix: int,
    *,
    stop: int = 1000,
    behind: int = NOBODY,
    runner_up: int = NOBODY,
    stable: int = 0,
    slow: SlowMembers = SlowMembers.ISOLATE,
) -> StreamRecord:
    return StreamRecord(1, 1, stable, 0, stop, False, prefix, 7, runner_up, behind, slow)


def test_what_the_slowest_has_is_stable_and_may_be_forgotten() -> None:
    verdict = StreamVerdict()
    assert verdict.decide(0, said(10), SETTINGS)
    assert (verdict.stable, verdict.floor) == (10, 10)


def test_who_is_behind_holds_up_the_caches_and_nobody_else() -> None:
    verdict = StreamVerdict()
    verdict.decide(0, said(500, behind=20), SETTINGS)
    assert (verdict.stable, verdict.floor) == (500, 20)


def test_what_a_ring_below_said_before_the_stable_point_rose_holds_up_the_caches() -> None:
    """Ours, seed 515: confirmed although the lowest prefix was older than the stable point."""
    verdict = StreamVerdict()
    verdict.decide(0, said(100), SETTINGS)
    verdict.stable = 200
    verdict.decide(0, said(150, stable=200), SETTINGS)
    assert (verdict.stable, verdict.floor) == (200, 150)


def test_nothing_goes_back() -> None:
    verdict = StreamVerdict()
    verdict.decide(0, said(100), SETTINGS)
    verdict.decide(0, said(50, behind=10), SETTINGS)
    assert (verdict.stable, verdict.floor) == (100, 100)


def test_caches_are_bounded_however_far_behind_somebody_is() -> None:
    verdict = StreamVerdict()
    stop = SETTINGS.cache_frames_max + 300
    verdict.decide(0, said(stop, stop=stop, behind=5), SETTINGS)
    assert (verdict.stable, verdict.floor) == (stop, 300)


@pytest.mark.parametrize(
    ("slow", "stable"), [(SlowMembers.ISOLATE, 900), (SlowMembers.DROP, 900), (SlowMembers.WAIT, 10)]
)
def test_one_that_alone_holds_up_all_others_is_put_behind_after_a_while_unless_they_want_to_wait(
    slow: SlowMembers, stable: int
) -> None:
    verdict = StreamVerdict()
    record = said(10, runner_up=900, slow=slow)
    verdict.decide(0, record, SETTINGS)
    assert verdict.stable == 10
    verdict.decide(SETTINGS.isolate_after_ns - MILLISECOND, record, SETTINGS)
    assert verdict.stable == 10
    verdict.decide(SETTINGS.isolate_after_ns, record, SETTINGS)
    assert verdict.stable == stable
    assert verdict.floor == 10


def test_an_only_receiver_is_not_put_behind_for_the_sake_of_its_sender() -> None:
    verdict = StreamVerdict()
    for now_ns in (0, 10 * SETTINGS.isolate_after_ns):
        verdict.decide(now_ns, said(10), SETTINGS)
    assert verdict.stable == 10


def test_who_waits_waits_for_those_who_sleep_too() -> None:
    verdict = StreamVerdict()
    verdict.decide(0, said(500, behind=20, slow=SlowMembers.WAIT), SETTINGS)
    assert (verdict.stable, verdict.floor) == (20, 20)


def test_where_all_receivers_are_behind_or_asleep_the_sender_waits() -> None:
    """Two receivers lost the same frame and were put behind one after the other; the sender ran ahead of both."""
    verdict = StreamVerdict()
    verdict.decide(0, said(NOBODY, behind=20), SETTINGS)
    assert (verdict.stable, verdict.floor) == (20, 20)
    verdict.decide(0, said(500), SETTINGS)
    assert (verdict.stable, verdict.floor) == (500, 500)


def test_without_any_receiver_all_of_a_stream_is_stable() -> None:
    verdict = StreamVerdict()
    verdict.decide(0, said(NOBODY), SETTINGS)
    assert verdict.stable == said(NOBODY).stop
