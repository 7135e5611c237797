"""Completeness: to whom a message is owed, and what pays the debt."""

from planted.history import History
from planted.judged import check_history


def _what(history: History) -> list[str]:
    return [each.what for each in check_history(history.records, ["all_delivered"])]


def _owing() -> History:
    history = History()
    history.join("1.1")
    history.join("2.1")
    history.everywhere(["1.1"], "1.1", 1, 2, 3)
    history.deliver("2.1", "1.1", 1)
    return history


def test_a_debt_names_receiver_sender_and_count() -> None:
    assert _what(_owing()) == ["2.1 never delivered 2 messages of 1.1 in group 1, the first 2, and nobody was told"]


def test_telling_the_receiver_pays() -> None:
    history = _owing()
    history.lost("2.1", "1.1", 2, 4)
    assert _what(history) == []


def test_telling_the_sender_pays() -> None:
    history = _owing()
    history.failed("1.1", 2, 4)
    assert _what(history) == []


def test_telling_of_half_pays_half() -> None:
    history = _owing()
    history.failed("1.1", 2, 3)
    assert _what(history) == ["2.1 never delivered 1 messages of 1.1 in group 1, the first 3, and nobody was told"]


def test_nothing_is_owed_to_those_who_leave_or_die() -> None:
    for end in (History.leave, History.stop):
        history = _owing()
        end(history, "2.1")
        assert _what(history) == []


def test_a_new_life_ends_the_old_one_whose_end_was_not_recorded() -> None:
    history = History()
    history.start("2.1")
    history.join("1.1")
    history.join("2.1")
    history.everywhere(["1.1"], "1.1", 1)
    assert len(_what(history)) == 1
    history.start("2.2")
    assert _what(history) == []


def test_nothing_sent_before_the_join_is_owed() -> None:
    history = History()
    history.join("1.1")
    history.everywhere(["1.1"], "1.1", 1, 2)
    history.join("3.1")
    assert _what(history) == []
    history.everywhere(["1.1"], "1.1", 3)
    assert len(_what(history)) == 1


def test_what_was_delivered_in_an_earlier_stay_does_not_pay_for_this_one() -> None:
    history = History()
    history.join("2.1")
    history.everywhere(["2.1"], "1.1", 1)
    history.leave("2.1")
    history.join("2.1")
    assert _what(history) == []
    history.send("1.1", 2)
    assert len(_what(history)) == 1


def test_the_sender_owes_itself_if_it_is_in_the_group() -> None:
    history = History()
    history.send("1.1", 1)
    assert _what(history) == []
    history.join("1.1")
    history.send("1.1", 2)
    assert len(_what(history)) == 1


def test_messages_of_a_dead_sender_are_not_owed_unless_it_said_they_were_stable() -> None:
    history = _owing()
    history.stable("1.1", 1, 3)
    history.stop("1.1")
    assert _what(history) == ["2.1 never delivered 1 messages of 1.1 in group 1, the first 2, and nobody was told"]


def test_only_members_of_the_view_of_sending_are_owed_where_that_view_is_known() -> None:
    history = History()
    history.join("1.1")
    history.join("2.1")
    history.view("1.1", 1, "1.1")
    history.everywhere(["1.1"], "1.1", 1, view=1)
    assert _what(history) == []
    history.view("1.1", 2, "1.1", "2.1")
    history.everywhere(["1.1"], "1.1", 2, view=2)
    assert len(_what(history)) == 1


def test_a_message_of_a_view_before_a_second_stay_is_not_owed_to_it() -> None:
    history = History()
    for life in ("1.1", "2.1"):
        history.join(life)
        history.view(life, 1, "1.1", "2.1")
    history.leave("2.1")
    history.join("2.1")
    history.view("2.1", 3, "1.1", "2.1")
    # The sender does not know yet that the other one left and came back.
    history.everywhere(["1.1"], "1.1", 1, view=1)
    assert _what(history) == []
    history.view("1.1", 3, "1.1", "2.1")
    history.everywhere(["1.1"], "1.1", 2, view=3)
    assert _what(history) == ["2.1 never delivered 1 messages of 1.1 in group 1, the first 2, and nobody was told"]


def _in_a_view() -> History:
    """1 and 2 are in view 1; message 1 reaches only its sender."""
    history = History()
    for life in ("1.1", "2.1"):
        history.join(life)
    for life in ("1.1", "2.1"):
        history.view(life, 1, "1.1", "2.1")
    history.everywhere(["1.1"], "1.1", 1, view=1)
    return history


def test_a_failure_that_names_nobody_does_not_pay_for_a_member_of_the_view() -> None:
    """B11: a sender could report everything as failed, to nobody in particular."""
    history = _in_a_view()
    history.failed("1.1", 1, 2)
    assert len(_what(history)) == 1
    history.failed("1.1", 1, 2, receiver=2)
    assert _what(history) == []


def test_a_failure_that_names_nobody_pays_for_what_was_sent_before_the_sender_left() -> None:
    history = _in_a_view()
    history.leave("1.1")
    history.join("1.1")
    history.view("1.1", 2, "1.1", "2.1")
    history.everywhere(["1.1"], "1.1", 2, view=2)
    history.failed("1.1", 1, 3)
    assert _what(history) == ["2.1 never delivered 1 messages of 1.1 in group 1, the first 2, and nobody was told"]


def test_what_was_confirmed_is_owed_to_a_member_that_is_dropped_later_but_not_to_one_that_crashes() -> None:
    """B11: a receiver could start over each time, and never be handed anything."""
    for cause, count in (("crash", 0), ("closed", 0), ("dropped by the configuration service", 1)):
        history = _in_a_view()
        history.stable("1.1", 1, 2)
        history.stop("2.1", cause)
        assert len(_what(history)) == count


def test_what_was_confirmed_after_a_newer_view_without_the_member_is_not_owed_to_it() -> None:
    history = _in_a_view()
    history.view("1.1", 2, "1.1")
    history.stable("1.1", 1, 2)
    history.stop("2.1", "dropped by the configuration service")
    assert _what(history) == []
