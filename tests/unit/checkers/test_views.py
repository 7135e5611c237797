"""View agreement and virtual synchrony: who is compared with whom, and a dumb oracle for the second."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planted.history import History
from planted.judged import check_history
from planted.thorough import thorough
from vivum.checkers.checker import message_of
from vivum.observe.trace import GroupLeft, MessageDelivered, TraceRecord, ViewInstalled


def _what(history: History, name: str) -> list[str]:
    return [each.what for each in check_history(history.records, [name])]


def test_numbers_rise_across_leaving_and_joining_again() -> None:
    history = History()
    history.view("1.1", 4, "1.1")
    history.leave("1.1")
    history.join("1.1")
    history.view("1.1", 4, "1.1")
    assert _what(history, "view_agreement") == ["1.1 installed view 4 of group 1 after view 4; numbers must rise"]


def test_a_new_life_may_install_lower_numbers_and_numbers_may_be_skipped() -> None:
    history = History()
    history.view("1.1", 7, "1.1")
    history.view("1.2", 3, "1.2")
    history.view("1.2", 9, "1.2")
    history.view("1.2", 8, "1.2", group=2)
    assert _what(history, "view_agreement") == []


def test_view_0_means_no_view_and_cannot_be_installed() -> None:
    history = History()
    history.view("1.1", 0, "1.1")
    assert len(_what(history, "view_agreement")) == 1


def test_a_member_listed_twice_is_a_violation() -> None:
    history = History()
    history.view("1.1", 1, "1.1", "2.1", "1.1")
    assert _what(history, "view_agreement") == ["1.1 installed view 1 of group 1, which lists a member twice"]


def test_lives_that_go_to_different_next_views_are_not_compared() -> None:
    history = History()
    for life in ("1.1", "2.1"):
        history.view(life, 1, "1.1", "2.1")
    history.deliver("1.1", "1.1", 1, view=1)
    history.view("1.1", 2, "1.1")
    history.view("2.1", 3, "2.1")
    assert _what(history, "virtual_synchrony") == []


def test_groups_without_views_are_in_view_0() -> None:
    history = History()
    history.deliver("1.1", "1.1", 1)
    assert _what(history, "virtual_synchrony") == []
    history.deliver("1.1", "1.1", 2, view=1)
    assert _what(history, "virtual_synchrony") == [
        "1.1 delivered message 2 of 1.1 in group 1 in view 1, but it had installed none"
    ]


def test_the_order_of_deliveries_in_a_view_does_not_matter() -> None:
    history = History()
    for life, order in (("1.1", (1, 2)), ("2.1", (2, 1))):
        history.view(life, 1, "1.1", "2.1")
        for sequence in order:
            history.deliver(life, "1.1", sequence, view=1)
    for life in ("1.1", "2.1"):
        history.view(life, 2, "1.1", "2.1")
    assert _what(history, "virtual_synchrony") == []


def test_the_life_that_has_less_may_come_first() -> None:
    history = History()
    for life in ("1.1", "2.1"):
        history.view(life, 1, "1.1", "2.1")
    first = history.view("1.1", 2, "1.1", "2.1")
    extras = [history.deliver("2.1", "1.1", sequence, view=1) for sequence in (4, 5, 9)]
    second = history.view("2.1", 2, "1.1", "2.1")
    (violation,) = check_history(history.records, ["virtual_synchrony"])
    assert violation.witnesses == (extras[0], first, second)
    assert violation.what == (
        "2.1 and 1.1 went from view 1 to 2 of group 1, but only 2.1 delivered message 4 of 1.1 in group 1; "
        "they differ in 3 in all"
    )


def test_views_of_two_senders_lives_and_groups_are_not_compared_and_view_0_may_come_at_any_time() -> None:
    history = History()
    for group in (1, 2):
        for view in (1, 2):
            history.view("3.1", view, "3.1", group=group)
    history.deliver("3.1", "1.1", 1, view=2)
    history.deliver("3.1", "1.1", 2)
    history.deliver("3.1", "1.1", 3, view=2)
    history.deliver("3.1", "2.1", 1, view=1)
    history.deliver("3.1", "1.2", 1, view=1)
    history.deliver("3.1", "1.1", 1, view=1, group=2)
    assert _what(history, "views_first") == []
    history.deliver("3.1", "1.1", 4, view=1)
    assert _what(history, "views_first") == [
        "3.1 delivered message 4 of 1.1 in group 1 of view 1 after one of view 2 of the same sender"
    ]


def _oracle(records: list[TraceRecord]) -> bool:
    """Cut each life's records into views, then compare every pair of lives that made the same step."""
    steps: dict[tuple[int, int], list[set[tuple[int, ...]]]] = defaultdict(list)
    for node in {record.node for record in records}:
        view, delivered = 0, set()
        for record in (each for each in records if each.node == node):
            if isinstance(record, MessageDelivered):
                if record.view != view:
                    return False
                delivered.add(message_of(record))
            elif isinstance(record, ViewInstalled):
                if view:
                    steps[view, record.view].append(delivered)
                view, delivered = record.view, set()
            elif isinstance(record, GroupLeft):
                view, delivered = 0, set()
    return all(one == other for sets in steps.values() for one in sets for other in sets)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Three lives that go through rising views, deliver, mostly in their present view, and leave."""
    history = History()
    view = dict.fromkeys(("1.1", "2.1", "3.1"), 0)
    for step in draw(st.lists(st.integers(0, 9), max_size=20)):
        life = draw(st.sampled_from(sorted(view)))
        if step == 0:
            history.leave(life)
            view[life] = 0
        elif step <= 4:
            view[life] += draw(st.sampled_from([1, 1, 1, 2]))
            history.view(life, view[life], *view)
        else:
            shift = draw(st.sampled_from([0] * 9 + [1]))
            history.deliver(life, "1.1", draw(st.integers(1, 2)), view=view[life] + shift)
    return history


@pytest.mark.slow
@thorough
@given(histories())
def test_virtual_synchrony_agrees_with_a_dumb_oracle(history: History) -> None:
    assert (check_history(history.records, ["virtual_synchrony"]) == []) == _oracle(history.records)
