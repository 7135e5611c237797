"""Total order: cycles of any length, small witnesses, and a dumb oracle."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planted.history import History
from planted.judged import check_history
from planted.thorough import thorough
from vivum.checkers.cycles import Hop, find_cycles
from vivum.checkers.total_order import TotalOrder
from vivum.observe.trace import MessageDelivered


def _deliver(orders: list[list[int]]) -> History:
    history = History()
    for node, order in enumerate(orders, start=1):
        for sequence in order:
            history.deliver(f"{node}.1", "99.1", sequence)
    return history


def test_receivers_that_miss_messages_fit_one_order() -> None:
    assert find_cycles([[0, 1, 2, 3], [0, 2], [1, 3], [3], []], 4) == []


def test_what_lies_between_two_disagreements_does_not_lengthen_the_witness() -> None:
    cycles = find_cycles([[0, 1, 2, 3, 4, 5], [5, 6, 7, 0]], 8)
    assert cycles == [[Hop(0, 0, 5), Hop(1, 0, 3)]]


def test_the_pair_is_found_inside_a_larger_tangle() -> None:
    # Around three receivers there is a cycle of three; the fourth disagrees with the first on one pair.
    (cycle,) = find_cycles([[0, 1], [1, 2], [2, 0], [1, 0]], 3)
    assert len(cycle) == 2


def test_each_tangle_is_reported_once() -> None:
    cycles = find_cycles([[0, 1, 5, 2, 3], [1, 0, 5, 3, 2]], 6)
    assert [[hop.order for hop in cycle] for cycle in cycles] == [[0, 1], [0, 1]]


def test_two_groups_are_not_compared() -> None:
    history = History()
    for life, groups in (("1.1", (1, 2)), ("2.1", (2, 1))):
        for group in groups:
            history.deliver(life, "9.1", 1, group=group)
    assert check_history(history.records, ["total_order"]) == []


def test_two_stays_of_one_life_are_not_compared() -> None:
    history = _deliver([[1, 2]])
    history.leave("1.1")
    history.join("1.1")
    history.deliver("1.1", "99.1", 2)
    assert check_history(history.records, ["total_order"]) == []


def test_a_witness_is_the_very_record_with_its_time_and_view() -> None:
    history = History()
    records = [history.deliver("1.1", "9.1", sequence, view=view) for sequence, view in ((1, 1), (2, 1), (3, 2))]
    other = [history.deliver("2.1", "9.1", sequence, view=3) for sequence in (3, 1)]
    (violation,) = check_history(history.records, ["total_order"])
    assert violation.witnesses == (records[0], records[2], *other)


def test_a_large_tangle_is_judged_in_bounded_work() -> None:
    forward, backward = list(range(3_000)), list(range(2_999, -1, -1))
    (cycle,) = find_cycles([forward, backward], 3_000)
    assert len(cycle) == 2


_orders = st.lists(
    st.permutations(list(range(5))).flatmap(lambda p: st.integers(0, 5).map(lambda n: p[:n])), max_size=4
)


@pytest.mark.slow
@thorough
@given(_orders)
def test_total_order_agrees_with_a_dumb_oracle(orders: list[list[int]]) -> None:
    # There is an order when one of all permutations agrees with every receiver.
    fits = any(
        all([thing for thing in candidate if thing in order] == order for order in orders)
        for candidate in permutations(range(5))
    )
    checker = TotalOrder()
    for record in _deliver(orders).records:
        checker.on_record(record)
    assert (checker.finish() == []) == fits


@pytest.mark.slow
@thorough
@given(_orders)
def test_a_witness_is_a_cycle_with_the_fewest_hops(orders: list[list[int]]) -> None:
    before = {(a, b) for order in orders for place, a in enumerate(order) for b in order[place + 1 :]}
    for violation in check_history(_deliver(orders).records, ["total_order"]):
        deliveries = [each for each in violation.witnesses if isinstance(each, MessageDelivered)]
        hops = list(zip(deliveries[::2], deliveries[1::2], strict=True))
        for place, (earlier, later) in enumerate(hops):
            assert earlier.node == later.node
            assert earlier.time_ns < later.time_ns
            assert later.sequence == hops[(place + 1) % len(hops)][0].sequence
        on_cycle = _component(hops[0][0].sequence, before)
        assert len(hops) == min(_round_trip(start, before) for start in on_cycle)


def _reach(start: int, before: set[tuple[int, int]]) -> dict[int, int]:
    """Give the number of hops from a thing to each other, and back to itself if it can be reached again."""
    hops: dict[int, int] = {}
    level, count = {start}, 0
    while level:
        count += 1
        level = {b for a, b in before if a in level and b not in hops}
        hops.update(dict.fromkeys(level, count))
    return hops


def _component(start: int, before: set[tuple[int, int]]) -> list[int]:
    return [other for other in _reach(start, before) if start in _reach(other, before)]


def _round_trip(start: int, before: set[tuple[int, int]]) -> int:
    return _reach(start, before)[start]
