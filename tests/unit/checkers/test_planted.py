"""Every planted violation is caught by the checkers that it is meant for, and by no other."""

from collections.abc import Callable

import pytest

from planted.judged import check_history
from planted.planted import CORRECT, VIOLATIONS, Planted
from vivum.checkers.registry import CHECKERS


@pytest.mark.parametrize("make", VIOLATIONS, ids=lambda make: make.__name__)
def test_a_planted_violation_is_caught_with_its_witnesses(make: Callable[[], Planted]) -> None:
    planted = make()
    violations = check_history(planted.records, [planted.checker or ""])
    assert violations[0].witnesses == planted.witnesses


@pytest.mark.parametrize("make", VIOLATIONS + CORRECT, ids=lambda make: make.__name__)
def test_exactly_the_expected_checkers_find_something(make: Callable[[], Planted]) -> None:
    planted = make()
    # Most guarantees may report a loss while the sender lives.
    own = {"lost_with_sender"} - {planted.checker}
    violations = check_history(planted.records, CHECKERS.keys() - own)
    assert {each.checker for each in violations} == planted.caught_by


@pytest.mark.parametrize("make", VIOLATIONS + CORRECT, ids=lambda make: make.__name__)
def test_the_same_is_found_when_the_clocks_of_the_nodes_differ(make: Callable[[], Planted]) -> None:
    planted = make()
    # Node n's clock is n ms slow, so its records come late among those of the others.
    records = sorted(planted.records, key=lambda record: record.time_ns + record.node * 1_000_000)
    # Whether a receiver joined before a send cannot be told across clocks, and faults come from the simulator alone.
    names = CHECKERS.keys() - {"all_delivered", "failures_explained", "lives_explained", "lost_with_sender"}
    violations = check_history(records, names, several_clocks=True)
    assert {each.checker for each in violations} == planted.caught_by & names


def test_every_checker_has_a_planted_violation_of_its_own() -> None:
    meant_for = {make().checker for make in VIOLATIONS}
    assert meant_for == CHECKERS.keys()
