"""What a region decides of a stream from what its members say."""

import pytest

from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.commands import SlowMembers
from vivum.protocols.qsm.recovery.stability import StreamStability
from vivum.protocols.qsm.settings import QsmSettings
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
    delivered: int = NOBODY,
) -> StreamRecord:
    return StreamRecord(1, 1, stable, 0, stop, False, prefix, 7, runner_up, behind, slow, delivered=delivered)


def test_what_the_slowest_has_is_stable_and_may_be_forgotten() -> None:
    verdict = StreamStability()
    assert verdict.decide(0, said(10), SETTINGS)
    assert (verdict.stable, verdict.floor) == (10, 10)


def test_who_is_behind_holds_up_the_caches_and_nobody_else() -> None:
    verdict = StreamStability()
    verdict.decide(0, said(500, behind=20), SETTINGS)
    assert (verdict.stable, verdict.floor) == (500, 20)


def test_what_a_ring_below_said_before_the_stable_point_rose_holds_up_the_caches() -> None:
    """Ours, seed 515: confirmed although the lowest prefix was older than the stable point."""
    verdict = StreamStability()
    verdict.decide(0, said(100), SETTINGS)
    verdict.stable = 200
    verdict.decide(0, said(150, stable=200), SETTINGS)
    assert (verdict.stable, verdict.floor) == (200, 150)


@pytest.mark.parametrize("slow", SlowMembers)
def test_who_has_it_and_has_not_delivered_it_holds_up_the_confirmation_and_nothing_else(slow: SlowMembers) -> None:
    """Live seed 795."""
    verdict, without, stop = StreamStability(), StreamStability(), SETTINGS.cache_frames_max + 500
    for now_ns in range(0, SECOND, 2 * MILLISECOND):
        record = said(500 + now_ns // MILLISECOND, stop=stop, delivered=20, slow=slow)
        verdict.decide(now_ns, record, SETTINGS)
        without.decide(now_ns, said(record.prefix, stop=stop, slow=slow), SETTINGS)
        assert (verdict.stable, verdict.floor, verdict.confirmed) == (without.stable, without.floor, 20)
    assert verdict.decide(SECOND, said(1500, stop=stop, delivered=1500, slow=slow), SETTINGS)
    assert verdict.confirmed == 1500


def test_nothing_goes_back() -> None:
    verdict = StreamStability()
    verdict.decide(0, said(100), SETTINGS)
    verdict.decide(0, said(50, behind=10), SETTINGS)
    assert (verdict.stable, verdict.floor) == (100, 100)


def test_caches_are_bounded_however_far_behind_somebody_is() -> None:
    verdict = StreamStability()
    stop = SETTINGS.cache_frames_max + 300
    for now_ns in (0, 2 * SETTINGS.isolate_after_ns):
        verdict.decide(now_ns, said(stop, stop=stop, behind=5), SETTINGS)
    assert (verdict.stable, verdict.floor) == (stop, 300)


def test_before_somebody_is_given_up_the_others_wait_a_little() -> None:
    verdict, stop, patience_ns = StreamStability(), SETTINGS.cache_frames_max, SETTINGS.isolate_after_ns * 3 // 2
    verdict.decide(0, said(stop, stop=stop, behind=5), SETTINGS)
    assert (verdict.stable, verdict.floor) == (stop, 5), "caches can keep all of it"
    late = said(stop + 100, stop=stop + 100, behind=5)
    for now_ns in range(SECOND, SECOND + patience_ns, MILLISECOND):
        verdict.decide(now_ns, late, SETTINGS)
        assert (verdict.stable, verdict.floor) == (stop, 5)
    verdict.decide(SECOND + patience_ns, late, SETTINGS)
    assert (verdict.stable, verdict.floor) == (stop + 100, 100)


def test_caches_are_bounded_while_the_others_wait_whatever_the_sender_does_meanwhile() -> None:
    """With `feedback_ranges` frames that the others have leave its window, and it goes on."""
    verdict, kept_max = StreamStability(), SETTINGS.cache_frames_max + SETTINGS.window_frames
    for stop in range(SETTINGS.cache_frames_max, 2 * kept_max, 50):
        verdict.decide(stop, said(stop, stop=stop, behind=5), SETTINGS)
        assert stop - verdict.floor <= kept_max


def test_who_comes_back_while_the_others_wait_is_not_given_up() -> None:
    verdict, stop = StreamStability(), SETTINGS.cache_frames_max + 100
    verdict.decide(0, said(stop, stop=stop, behind=5), SETTINGS)
    verdict.decide(50 * MILLISECOND, said(stop, stop=stop, behind=150), SETTINGS)
    assert (verdict.stable, verdict.floor) == (stop, 150)


def test_all_that_is_spent_on_such_waits_is_a_small_part_of_the_time() -> None:
    """One that pauses again and again, each time for longer than caches reach."""
    verdict, round_ns, waited_ns, reached = StreamStability(), 2 * MILLISECOND, 0, 0
    for turn in range(10_000):
        before = verdict.stable
        stop = before + 100
        is_awake = turn % 500 < 100
        reached = stop if is_awake else reached
        verdict.decide(turn * round_ns, said(stop, stop=stop, behind=NOBODY if is_awake else reached), SETTINGS)
        waited_ns += round_ns if verdict.stable == before else 0
    assert waited_ns >= 5 * SETTINGS.isolate_after_ns
    assert waited_ns <= 10_000 * round_ns // 20 + SETTINGS.isolate_after_ns * 3 // 2


@pytest.mark.parametrize(
    ("slow", "stable"), [(SlowMembers.ISOLATE, 900), (SlowMembers.DROP, 900), (SlowMembers.WAIT, 10)]
)
def test_one_that_alone_holds_up_all_others_is_put_behind_after_a_while_unless_they_want_to_wait(
    slow: SlowMembers, stable: int
) -> None:
    verdict = StreamStability()
    record = said(10, runner_up=900, slow=slow)
    verdict.decide(0, record, SETTINGS)
    assert verdict.stable == 10
    verdict.decide(SETTINGS.isolate_after_ns - MILLISECOND, record, SETTINGS)
    assert verdict.stable == 10
    verdict.decide(SETTINGS.isolate_after_ns, record, SETTINGS)
    assert verdict.stable == stable
    assert verdict.floor == 10


def test_an_only_receiver_is_not_put_behind_for_the_sake_of_its_sender() -> None:
    verdict = StreamStability()
    for now_ns in (0, 10 * SETTINGS.isolate_after_ns):
        verdict.decide(now_ns, said(10), SETTINGS)
    assert verdict.stable == 10


def test_who_waits_waits_for_those_who_sleep_too() -> None:
    verdict = StreamStability()
    verdict.decide(0, said(500, behind=20, slow=SlowMembers.WAIT), SETTINGS)
    assert (verdict.stable, verdict.floor) == (20, 20)


def test_where_all_receivers_are_behind_or_asleep_the_sender_waits() -> None:
    """Two receivers lost the same frame and were put behind one after the other; the sender ran ahead of both."""
    verdict = StreamStability()
    verdict.decide(0, said(NOBODY, behind=20), SETTINGS)
    assert (verdict.stable, verdict.floor) == (20, 20)
    verdict.decide(0, said(500), SETTINGS)
    assert (verdict.stable, verdict.floor) == (500, 500)


def test_without_any_receiver_all_of_a_stream_is_stable() -> None:
    verdict = StreamStability()
    verdict.decide(0, said(NOBODY), SETTINGS)
    assert verdict.stable == said(NOBODY).stop


class Race:
    """A sender that is only held back by its window, a fast receiver, and another one; a round every 2 ms."""

    ROUND_NS = 2 * MILLISECOND
    FAST = 5000
    """Frames a second."""

    def __init__(self, slow: SlowMembers = SlowMembers.ISOLATE, settings: QsmSettings = SETTINGS) -> None:
        self.verdict = StreamStability()
        self.settings = settings
        self.slow = slow
        self.now_ns = 0
        self.sent = 0
        self.at = [0.0, 0.0]
        self.isolated_ns: list[int] = []

    @property
    def lag(self) -> int:
        """How far the other one is below the stable point."""
        return max(0, self.verdict.stable - int(self.at[1]))

    def run(self, duration_ns: int, speed: float) -> float:
        """Let the other receiver go at this part of the speed of the fast one; tell what that one did of its own."""
        begin, end_ns = self.at[0], self.now_ns + duration_ns
        while self.now_ns < end_ns:
            self.now_ns += self.ROUND_NS
            self.sent = self.verdict.stable + self.settings.window
            for index, part in enumerate((1.0, speed)):
                step = part * self.FAST * self.ROUND_NS / SECOND
                self.at[index] = min(self.at[index] + step, float(self.sent))
            was_behind = self.lag > 0
            self.verdict.decide(self.now_ns, self._record(), self.settings)
            if self.lag and not was_behind:
                self.isolated_ns.append(self.now_ns)
        return (self.at[0] - begin) * SECOND / duration_ns / self.FAST

    def _record(self) -> StreamRecord:
        stable, floor = self.verdict.stable, self.verdict.floor
        fast, other = int(self.at[0]), int(self.at[1])
        if other < stable:
            return StreamRecord(1, 1, stable, floor, self.sent, False, fast, 7, NOBODY, other, self.slow)
        low, by, high = min((other, 8, fast), (fast, 7, other))
        return StreamRecord(1, 1, stable, floor, self.sent, False, low, by, high, NOBODY, self.slow)


@pytest.mark.parametrize("speed", [0.6, 0.7, 0.95])
def test_one_that_is_a_little_slower_than_the_others_is_waited_for_whatever_happens(speed: float) -> None:
    race = Race()
    assert race.run(60 * SECOND, speed) == pytest.approx(speed, abs=0.05)
    # Now and then the others may show what they can do; it is never left behind.
    assert len(race.isolated_ns) <= 6
    race.run(2 * SECOND, speed)
    assert race.lag < SETTINGS.window


@pytest.mark.parametrize("speed", [0.0, 0.1, 0.35])
def test_one_that_gets_much_slower_is_soon_put_behind_and_stays_there(speed: float) -> None:
    race = Race()
    race.run(3 * SECOND, 1.0)
    assert race.run(10 * SECOND, speed) > 0.95
    assert race.isolated_ns[0] - 3 * SECOND <= 4 * SETTINGS.isolate_after_ns
    assert len(race.isolated_ns) == 1


def test_a_stopped_one_is_put_behind_as_soon_as_ever() -> None:
    race = Race()
    race.run(3 * SECOND, 0.9)
    assert not race.isolated_ns or race.lag == 0
    count = len(race.isolated_ns)
    race.run(3 * SETTINGS.isolate_after_ns // 2, 0.0)
    assert len(race.isolated_ns) == count + 1


def test_one_that_was_always_much_slower_is_found_out_by_a_trial() -> None:
    # With a small window the others never show what they can do.
    race = Race(settings=QsmSettings(window_frames=16))
    assert race.run(2 * SECOND, 0.2) == pytest.approx(0.2, abs=0.05)
    race.run(SECOND, 0.2)
    assert race.run(10 * SECOND, 0.2) > 0.95


def test_one_that_paused_for_a_moment_and_is_no_faster_than_the_others_gets_back_all_the_same() -> None:
    """Ours: at full load it stayed behind until the caches had forgotten what it lacked, and had to start again."""
    race = Race()
    race.run(SECOND, 1.0)
    race.run(300 * MILLISECOND, 0.0)
    assert race.lag > 0
    assert race.run(SECOND, 1.0) > 0.5
    assert race.lag == 0
    assert race.run(SECOND, 1.0) > 0.95


def test_while_a_rate_that_others_did_not_find_too_high_holds_all_back_the_last_is_put_behind_at_any_pace() -> None:
    verdict = StreamStability()
    for number in range(60):
        verdict.decide(number * 2 * MILLISECOND, said(10 * number, runner_up=900), SETTINGS, False)
    assert verdict.stable == 900


def test_where_all_wait_nobody_is_put_behind() -> None:
    race = Race(SlowMembers.WAIT)
    assert race.run(10 * SECOND, 0.1) == pytest.approx(0.1, abs=0.02)
    assert race.isolated_ns == []
