"""Sets of checkers: names, dispatch, and how many violations are kept."""

import pytest

from planted.history import History
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
