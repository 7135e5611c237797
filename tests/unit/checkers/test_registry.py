"""Sets of checkers: names, dispatch, and how many violations are kept."""

import pytest

from planted.history import History
from planted.judged import check_history
from vivum.checkers.checker import VIOLATIONS_KEPT_MAX, Checker, Violation
from vivum.checkers.registry import CHECKERS, CheckerSet, make_checkers
from vivum.core.errors import UsageError
from vivum.observe.trace import FrameSent, MessageDelivered, QueueMeasured


def test_an_unknown_name_is_refused_with_all_that_are_allowed() -> None:
    with pytest.raises(UsageError) as caught:
        make_checkers(["fifo", "fifa"])
    assert str(caught.value).startswith("there is no checker 'fifa'; checkers are no_duplicate, no_creation, ")


def test_a_name_given_twice_makes_one_checker_and_each_call_makes_new_ones() -> None:
    one, other = make_checkers(["fifo", "fifo"]), make_checkers(["fifo"])
    assert len(one) == 1
    assert one[0] is not other[0]


def test_names_are_those_of_the_modules() -> None:
    assert all(each.__module__ == f"vivum.checkers.{name}" for name, each in CHECKERS.items())


def test_a_record_reaches_only_those_who_want_it() -> None:
    checkers = CheckerSet(make_checkers(["bounded_queues", "no_duplicate"]))
    assert QueueMeasured in checkers.wanted
    assert MessageDelivered in checkers.wanted
    assert FrameSent not in checkers.wanted
    checkers(FrameSent(0, 1, 1, destination="#1", frame="data", bytes=100))
    checkers(QueueMeasured(0, 1, 1, queue="pending", depth=2, limit=1, unit="frames"))
    assert checkers.counts() == {"bounded_queues": 1, "no_duplicate": 0}


PROMISES = {"ordered": ("fifo", "no_duplicate"), "loose": ("no_duplicate",)}


def hole_and_repetition(history: History, group: int) -> None:
    history.deliver("1.1", "2.1", 1, group=group)
    history.deliver("1.1", "2.1", 1, group=group)
    history.deliver("1.1", "2.1", 3, group=group)


def test_a_group_is_judged_by_what_its_guarantee_promises_and_one_without_a_name_by_all() -> None:
    history = History()
    history.named("1.1", 1, "ordered")
    history.named("1.1", 2, "loose")
    for group in (1, 2, 3):
        hole_and_repetition(history, group)
    found = check_history(history.records, ["fifo", "no_duplicate"], promises_of=PROMISES.__getitem__)
    by_group = {each: {v.checker for v in found if v.witnesses[-1].group == each} for each in (1, 2, 3)}  # type: ignore[union-attr]
    assert by_group == {1: {"fifo", "no_duplicate"}, 2: {"no_duplicate"}, 3: {"fifo", "no_duplicate"}}


def test_records_of_no_group_reach_all_checkers_whatever_groups_promise() -> None:
    history = History()
    history.named("1.1", 1, "loose")
    history.queue("1.1", 11, 10)
    (found,) = check_history(history.records, ["bounded_queues"], promises_of=PROMISES.__getitem__)
    assert found.checker == "bounded_queues"


def test_violations_beyond_the_limit_are_counted_but_not_kept() -> None:
    checkers = CheckerSet(make_checkers(["bounded_queues"]))
    history = History()
    for depth in range(100):
        checkers(history.queue("1.1", 11 + depth, 10))
    assert checkers.violation_count == 100
    assert len(checkers.finish()) == VIOLATIONS_KEPT_MAX


def test_finishing_twice_reports_once() -> None:
    history = History()
    history.deliver("1.1", "2.1", 1)
    history.deliver("1.1", "2.1", 3)
    checkers = CheckerSet(make_checkers(["fifo"]))
    for record in history.records:
        checkers(record)
    assert len(checkers.finish()) == 1
    assert len(checkers.finish()) == 1
    assert checkers.violation_count == 1


def test_a_handler_for_no_kind_of_record_is_refused_when_it_is_written() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.on_message_deliverd handles no kind of record"):
        type("Wrong", (Checker,), {"on_message_deliverd": lambda self, record: None})


def test_a_violation_reads_as_one_sentence() -> None:
    assert str(Violation("fifo", "1.1 did it", ())) == "fifo: 1.1 did it"
