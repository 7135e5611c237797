"""No duplicate: what counts as the same delivery, and how far back a witness is remembered."""

from planted.history import History
from vivum.checkers import checker
from vivum.checkers.no_duplicate import NoDuplicate


def _check(history: History) -> NoDuplicate:
    found = NoDuplicate()
    for record in history.records:
        found.on_record(record)
    found.finish()
    return found


def test_the_same_number_in_another_group_life_or_receiver_is_another_delivery() -> None:
    history = History()
    history.deliver("2.1", "1.1", 5)
    history.deliver("2.1", "1.1", 5, group=2)
    history.deliver("2.1", "1.2", 5)
    history.deliver("3.1", "1.1", 5)
    history.deliver("2.2", "1.1", 5)
    assert not _check(history).violations


def test_each_further_delivery_is_one_more_violation_shown_beside_the_one_before() -> None:
    history = History()
    deliveries = [history.deliver("2.1", "1.1", 5) for _ in range(3)]
    assert [each.witnesses for each in _check(history).violations] == [
        (deliveries[0], deliveries[1]),
        (deliveries[1], deliveries[2]),
    ]


def test_a_duplicate_is_found_however_old_even_when_the_first_is_no_longer_remembered(monkeypatch) -> None:
    monkeypatch.setattr(checker, "WITNESSES_RECENT_MAX", 4)
    history = History()
    for sequence in range(10):
        history.deliver("2.1", "1.1", sequence)
    again = history.deliver("2.1", "1.1", 0)
    (violation,) = _check(history).violations
    assert violation.witnesses == (again,)
    assert violation.what == "2.1 delivered message 0 of 1.1 in group 1 twice"


def test_a_new_stay_is_told_by_joining_alone() -> None:
    history = History()
    history.join("2.1")
    history.deliver("2.1", "1.1", 1)
    history.join("2.1")
    history.deliver("2.1", "1.1", 1)
    assert not _check(history).violations
