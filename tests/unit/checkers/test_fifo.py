"""Gap-free FIFO: streams that begin anywhere, reported losses, and a dumb oracle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planted.history import History
from planted.judged import check_history
from planted.thorough import thorough
from vivum.checkers.fifo import Fifo
from vivum.checkers.sender_order import SenderOrder
from vivum.observe.trace import GroupJoined, GroupLeft, MessageDelivered, MessagesLost, TraceRecord


def _what(history: History, name: str = "fifo") -> list[str]:
    return [each.what for each in check_history(history.records, [name])]


def test_a_stream_may_begin_anywhere_but_goes_on_without_a_hole() -> None:
    history = History()
    for sequence in (7, 8, 10):
        history.deliver("2.1", "1.1", sequence)
    assert _what(history) == [
        "2.1 skipped 1 messages of 1.1 in group 1, the first of them 9, and had not reported them as lost"
    ]


def test_a_loss_reported_before_the_first_delivery_does_not_begin_the_stream() -> None:
    history = History()
    history.lost("2.1", "1.1", 0, 5)
    history.deliver("2.1", "1.1", 7)
    history.deliver("2.1", "1.1", 8)
    assert _what(history) == []


def test_a_late_message_is_one_violation_and_not_a_hole_as_well() -> None:
    history = History()
    for sequence in (1, 3, 2, 4):
        history.deliver("2.1", "1.1", sequence)
    assert _what(history) == ["2.1 delivered message 2 of 1.1 in group 1 after 3 of the same sender"]


def test_a_loss_reported_in_pieces_excuses_a_hole_only_when_complete() -> None:
    history = History()
    history.deliver("2.1", "1.1", 1)
    history.deliver("2.1", "1.1", 9)
    history.lost("2.1", "1.1", 2, 5)
    assert len(_what(history)) == 1
    history.lost("2.1", "1.1", 5, 9)
    assert _what(history) == []


def test_a_loss_reported_by_another_life_group_or_of_another_sender_excuses_nothing() -> None:
    history = History()
    history.deliver("2.1", "1.1", 1)
    history.lost("2.2", "1.1", 2, 3)
    history.lost("2.1", "1.2", 2, 3)
    history.lost("2.1", "1.1", 2, 3, group=2)
    history.deliver("2.1", "1.1", 3)
    assert len(_what(history)) == 1


def test_holes_of_a_stay_are_final_when_it_ends() -> None:
    history = History()
    history.deliver("2.1", "1.1", 1)
    history.deliver("2.1", "1.1", 3)
    history.leave("2.1")
    history.join("2.1")
    history.lost("2.1", "1.1", 2, 3)
    assert len(_what(history)) == 1


def test_sender_order_allows_holes_and_nothing_else() -> None:
    history = History()
    for sequence in (1, 5, 6, 20):
        history.deliver("2.1", "1.1", sequence)
    assert _what(history, SenderOrder.name) == []
    history.deliver("2.1", "1.1", 19)
    assert len(_what(history, SenderOrder.name)) == 1


# What can happen to one stream at one receiver, as letters: delivery, loss, leave, join.
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.integers(0, 6), st.just(0)),
        st.tuples(st.just("lost"), st.integers(0, 6), st.integers(1, 3)),
        st.tuples(st.sampled_from(["leave", "join"]), st.just(0), st.just(0)),
    ),
    max_size=12,
)


def _oracle(records: list[TraceRecord]) -> bool:
    """Judge one receiver's records of one stream, stay by stay, straight from the definition."""
    stays: list[list[TraceRecord]] = [[]]
    member = True
    for record in records:
        if isinstance(record, GroupJoined):
            stays.append([])
            member = True
        elif isinstance(record, GroupLeft):
            stays.append([])
            member = False
        elif isinstance(record, MessageDelivered) and not member:
            return False
        else:
            stays[-1].append(record)
    for stay in stays:
        delivered = [each.sequence for each in stay if isinstance(each, MessageDelivered)]
        if delivered != sorted(set(delivered)):
            return False
        told: set[int] = set()
        for record in stay:
            if isinstance(record, MessagesLost):
                told.update(range(record.sequence, record.stop))
            elif isinstance(record, MessageDelivered) and record.sequence in told:
                return False
        if delivered and set(range(delivered[0], delivered[-1])) - set(delivered) - told:
            return False
    return True


@pytest.mark.slow
@thorough
@given(_steps)
def test_fifo_agrees_with_a_dumb_oracle(steps: list[tuple[str, int, int]]) -> None:
    history = History()
    for step, number, length in steps:
        if step == "deliver":
            history.deliver("2.1", "1.1", number)
        elif step == "lost":
            history.lost("2.1", "1.1", number, number + length)
        elif step == "leave":
            history.leave("2.1")
        else:
            history.join("2.1")
    checker = Fifo()
    for record in history.records:
        checker.on_record(record)
    checker.finish()
    assert (checker.violation_count == 0) == _oracle(history.records)
