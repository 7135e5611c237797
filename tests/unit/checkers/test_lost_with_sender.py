"""Lost with its sender: who is gone may leave holes, who is there may not."""

import pytest

from planted.history import History, started
from planted.judged import check_history


def found(history: History) -> list[str]:
    return [each.what for each in check_history(history.records, ["lost_with_sender"])]


def _together() -> History:
    history = started("1.1", "2.1")
    for life in ("1.1", "2.1"):
        history.view(life, 1, "1.1", "2.1")
    history.send("2.1", 1, view=1)
    return history


def test_a_loss_while_the_sender_is_a_member_is_found() -> None:
    history = _together()
    history.lost("1.1", "2.1", 1, 2)
    assert found(history) == ["1.1 was told that messages 1 to 1 of 2.1 in group 1 are lost, and their sender is there"]


@pytest.mark.parametrize("how", ["ends", "starts again", "leaves", "is in no view any more"])
def test_a_sender_that_is_gone_may_leave_a_hole(how: str) -> None:
    history = _together()
    match how:
        case "ends":
            history.stop("2.1", "crash")
        case "starts again":
            history.start("2.2")
        case "leaves":
            history.leave("2.1")
        case _:
            history.view("1.1", 2, "1.1")
    history.lost("1.1", "2.1", 1, 2)
    assert found(history) == []


def test_the_view_of_another_receiver_is_no_excuse() -> None:
    history = started("1.1", "2.1", "3.1")
    for life in ("1.1", "2.1", "3.1"):
        history.view(life, 1, "1.1", "2.1", "3.1")
    history.send("2.1", 1, view=1)
    history.view("3.1", 2, "1.1", "3.1")
    history.lost("1.1", "2.1", 1, 2)
    assert len(found(history)) == 1
