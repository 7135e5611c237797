"""Lives and messages lost: which faults explain them, at whom, and for how long."""

import pytest

from planted.history import History
from planted.judged import check_history
from vivum.checkers.harm import AFTERMATH_NS
from vivum.core.time import SECOND

LIVES = ["1.1", "2.1", "3.1", "4.1", "5.1"]


def _what(history: History) -> list[str]:
    return [each.what for each in check_history(history.records, ["lives_explained", "failures_explained"])]


def _together() -> History:
    history = History()
    for life in LIVES:
        history.start(life)
        history.join(life)
        history.view(life, 1, *LIVES)
    return history


@pytest.mark.parametrize("kind", ["crash", "pause", "slow", "partition", "one_way", "loss", "burst"])
def test_a_fault_at_the_node_explains_one_life(kind: str) -> None:
    history = _together()
    history.fault(kind, 2)
    history.stop("2.1", "dropped")
    assert _what(history) == []
    history.start("2.2")
    history.stop("2.2", "dropped")
    assert _what(history) == ["2.2 lost its life; that is 2 of this node's, and 1 fault explains one"]


@pytest.mark.parametrize("kind", ["duplicate", "reorder", "join", "leave", "restart", "service_crash"])
def test_what_harms_nobody_explains_nothing(kind: str) -> None:
    history = _together()
    history.fault(kind)
    history.send("1.1", 1)
    history.failed("1.1", 1, 2)
    history.stop("2.1", "dropped")
    assert len(_what(history)) == 2


def test_a_fault_at_every_node_explains_a_life_of_each() -> None:
    history = _together()
    history.fault("loss")
    for life in LIVES:
        history.stop(life, "dropped")
    assert _what(history) == []


def test_faults_at_half_of_the_peers_explain_the_life_of_another() -> None:
    history = _together()
    history.fault("crash", 2)
    history.stop("1.1", "dropped")
    assert len(_what(history)) == 1
    history = _together()
    history.fault("crash", 2, 3)
    history.stop("1.1", "dropped")
    assert _what(history) == []


def test_a_life_that_shared_no_view_ends_only_if_more_than_half_of_all_others_are_hit() -> None:
    for nodes, count in (((2, 3), 1), ((2, 3, 4), 0)):
        history = History()
        for life in LIVES:
            history.view(life, 1, life, group=int(life[0]))
        history.fault("partition", *nodes)
        history.stop("1.1", "dropped")
        assert len(_what(history)) == count


@pytest.mark.parametrize("heals", [False, True])
def test_a_fault_explains_nothing_when_its_aftermath_is_over(heals: bool) -> None:
    for more, count in ((0, 0), (1, 1)):
        history = _together()
        history.fault("pause", 2, seconds=60 if heals else 1)
        history.wait(1)
        if heals:
            history.heal()
        history.wait(AFTERMATH_NS // SECOND - 1 + more)
        history.stop("2.1", "dropped")
        assert len(_what(history)) == count


def test_a_crash_and_a_close_need_no_explanation() -> None:
    history = _together()
    history.stop("1.1", "crash")
    history.stop("2.1", "closed")
    assert _what(history) == []


def test_a_failure_is_explained_by_a_fault_at_the_sender_the_receiver_or_a_member() -> None:
    for node, count in ((1, 0), (2, 0), (5, 0), (6, 1)):
        history = _together()
        history.fault("loss", node)
        history.send("1.1", 1, view=1)
        history.lost("2.1", "1.1", 1, 2)
        assert len(_what(history)) == count


def test_of_a_range_every_message_needs_an_explanation() -> None:
    history = _together()
    history.send("1.1", 1, view=1)
    history.wait(5)
    history.fault("loss", 2, seconds=1)
    history.send("1.1", 2, view=1)
    history.wait(30)
    history.send("1.1", 3, view=1)
    history.failed("1.1", 2, 3)
    assert _what(history) == []
    history.failed("1.1", 1, 4)
    history.failed("1.1", 3, 4)
    assert _what(history) == [
        f"1.1 was told that message {n} of 1.1 in group 1 was not delivered, and no fault explains it" for n in (1, 3)
    ]
