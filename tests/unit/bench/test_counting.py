"""What benchmarks count: loss, repetition and reordering must not hide, whole batches must cost nothing."""

import pytest

from vivum.bench.counting import CYCLE_MESSAGES_MIN, FULL_EVERY, NUMBER, Source, Tally, payload_cycle, resident_kb

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
