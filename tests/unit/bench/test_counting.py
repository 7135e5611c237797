"""What benchmarks count: loss, repetition and reordering must not hide, whole batches must cost nothing."""

import pytest

from vivum.bench.counting import (
    CYCLE_MESSAGES_MIN,
    FULL_EVERY,
    NUMBER,
    SLOT_S,
    Source,
    Tally,
    Timeline,
    payload_cycle,
    resident_kb,
    settled_s,
)

SIZE = 1000


def batches(count: int, length: int) -> list[list[bytes]]:
    source = Source(SIZE)
    return [source.batch(length) for _ in range(count)]


def fed(sent: list[list[bytes]], **options: bool) -> Tally:
    tally = Tally(SIZE, **options)
    for batch in sent:
        tally.take(batch)
    return tally


def faults(tally: Tally, sent: int) -> tuple[int, int, int]:
    return tally.lost(sent), tally.duplicated, tally.out_of_order


def test_payloads_have_their_size_and_their_number():
    cycle = payload_cycle(SIZE)
    length = len(cycle) // 2
    assert length >= CYCLE_MESSAGES_MIN
    assert {len(each) for each in cycle} == {SIZE}
    assert [NUMBER.unpack_from(each)[0] for each in cycle] == [*range(length), *range(length)]


def test_all_that_was_sent_is_as_expected_round_the_cycle_too():
    sent = batches(200, 60)
    assert faults(fed(sent), 200 * 60) == (0, 0, 0)


def test_a_lost_batch_is_seen():
    sent = batches(20, 60)
    del sent[7]
    assert faults(fed(sent), 20 * 60) == (60, 0, 0)


def test_a_message_lost_inside_a_batch_is_seen():
    sent = batches(20, 60)
    del sent[7][30]
    assert faults(fed(sent), 20 * 60) == (1, 0, 0)


def test_what_is_lost_at_the_end_is_seen():
    assert faults(fed(batches(20, 60)[:-2]), 20 * 60) == (120, 0, 0)


def test_a_repeated_batch_is_seen():
    sent = batches(20, 60)
    sent.insert(8, sent[7])
    assert faults(fed(sent), 20 * 60) == (0, 60, 0)


def test_two_batches_in_the_wrong_order_are_seen():
    sent = batches(20, 60)
    sent[7], sent[8] = sent[8], sent[7]
    assert faults(fed(sent), 20 * 60) == (0, 0, 60)


def test_disorder_inside_a_batch_is_seen_when_it_is_compared_whole():
    sent = batches(FULL_EVERY, 60)
    last = sent[-1]
    last[10], last[11] = last[11], last[10]
    lost, duplicated, out_of_order = faults(fed(sent), FULL_EVERY * 60)
    assert (lost, duplicated, out_of_order) == (0, 0, 1)


def test_a_changed_byte_is_seen_when_the_batch_is_compared_whole():
    sent = batches(FULL_EVERY, 60)
    sent[-1][10] = sent[-1][10][:-1] + b"!"
    with pytest.raises(ValueError, match="nobody sent"):
        fed(sent)


def test_every_group_has_its_own_order():
    source, tally = Source(SIZE, groups=3), Tally(SIZE, groups=3)
    for turn in range(30):
        tally.take(source.batch(7 + turn, turn % 3), turn % 3)
    assert faults(tally, source.sent) == (0, 0, 0)


def test_where_nothing_is_repeated_every_step_is_a_loss():
    sent = batches(40, 60)
    cycle = len(payload_cycle(SIZE)) // 2
    gone = cycle * 3 // 4 // 60
    del sent[5 : 5 + gone]
    tally = fed(sent, only_forward=True)
    assert (tally.lost(40 * 60), tally.missing, tally.duplicated) == (gone * 60, gone * 60, 0)


def test_resident_memory_is_told_for_this_process_and_not_for_one_that_is_gone():
    assert resident_kb() > 1000
    assert resident_kb(2**22 + 1) == 0


def test_after_a_loss_that_was_told_of_the_next_message_counts_as_the_next() -> None:
    source, tally = Source(SIZE), Tally(SIZE)
    tally.take(source.batch(10))
    # More than half of a cycle: it would look like a step back.
    far = len(payload_cycle(SIZE)) // 2 - 20
    while source.sent < far:
        source.batch(min(5, far - source.sent))
    late = source.batch(5)
    tally.skip(late)
    tally.take(late)
    assert (tally.received, tally.duplicated, tally.out_of_order, tally.missing) == (15, 0, 0, 0)


def test_slots_are_from_the_beginning_on_and_one_begins_with_the_window() -> None:
    timeline = Timeline(began=9.95, start=10.0, stop=10.1)
    for now in (9.94, 9.95, 9.999, 10.0, 10.05, 10.0999, 10.1):
        timeline.take(now, 10)
    assert timeline.slots_before == 3
    assert timeline.slots == [20, 0, 10, 10, 0, 10, 0, 10]
    assert timeline.by_group == [30]


def test_messages_inside_the_window_count_by_group() -> None:
    timeline = Timeline(began=0.0, start=1.0, stop=2.0, groups=2)
    for now, group in ((0.5, 0), (1.5, 0), (1.5, 1), (1.6, 1), (2.5, 1)):
        timeline.take(now, 100, group)
    assert timeline.by_group == [100, 200]


@pytest.mark.parametrize(
    ("arrivals", "longest_s"),
    [
        ([0.5, 1.75], 0.75),  # what came before the window ends no pause in it
        ([1.25, 1.5, 3.5], 0.5),  # only the part in the window counts
        ([1.25, 1.5], 0.5),  # nothing more came
        ([], 1.0),
    ],
)
def test_pauses_count_as_far_as_they_lie_in_the_window(arrivals: list[float], longest_s: float) -> None:
    timeline = Timeline(began=0.0, start=1.0, stop=2.0)
    for now in arrivals:
        timeline.take(now, 1)
    timeline.end_pause(9.0)
    assert timeline.longest_pause_s == longest_s


def slots_of(before: list[int], window: list[int], first_sent_s: float) -> float | None:
    return settled_s([*before, *window], len(before), first_sent_s)


def test_a_rate_that_is_steady_from_the_first_slot_is_settled_at_once() -> None:
    assert slots_of([0, *[100] * 49], [100] * 100, -49 * SLOT_S) == pytest.approx(0.0)


def test_a_rate_settles_where_it_first_has_80_percent_of_that_of_the_second_half_of_the_window() -> None:
    before = [0, 0, *[10] * 30, *[60] * 18]
    window = [60] * 10 + [80] * 40 + [100] * 50
    # First sent with the third slot: 48 slots before the window, and 10 in it, are below.
    assert slots_of(before, window, -48 * SLOT_S) == pytest.approx(58 * SLOT_S)


def test_a_first_burst_is_no_rate() -> None:
    assert slots_of([350, *[0] * 49], [100] * 100, -50 * SLOT_S) == pytest.approx(49 * SLOT_S, abs=2 * SLOT_S)


def test_who_gets_nothing_in_the_second_half_of_the_window_has_no_steady_rate() -> None:
    assert slots_of([100] * 50, [100] * 50 + [0] * 50, -1.0) is None
    assert slots_of([], [0, 0], -1.0) is None
