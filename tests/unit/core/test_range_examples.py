"""Range sets by example. The property test against plain sets is in tests/property."""

import pytest

from vivum.core.ranges import RangeSet


def test_neighbours_become_one_range() -> None:
    numbers = RangeSet()
    assert [numbers.add(n) for n in (5, 7, 6)] == [True, True, True]
    assert list(numbers.ranges()) == [(5, 8)]
    assert repr(numbers) == "RangeSet(5..7)"


def test_adding_what_is_there_tells_so() -> None:
    numbers = RangeSet([(5, 8)])
    assert not any(numbers.add(n) for n in (5, 6, 7))
    assert numbers.add(4)
    assert numbers.bounds() == [4, 8]


def test_a_range_swallows_those_that_it_covers_and_touches() -> None:
    numbers = RangeSet([(1, 3), (5, 6), (8, 10), (20, 21)])
    numbers.add_range(3, 8)
    assert numbers.bounds() == [1, 10, 20, 21]


def test_taking_out_of_the_middle_leaves_two() -> None:
    numbers = RangeSet([(0, 10)])
    assert numbers.discard(5)
    assert not numbers.discard(5)
    assert numbers.bounds() == [0, 5, 6, 10]
    numbers.discard_range(3, 8)
    assert numbers.bounds() == [0, 3, 8, 10]


def test_empty_ranges_change_nothing() -> None:
    numbers = RangeSet([(5, 5), (9, 3)])
    numbers.add_range(4, 4)
    numbers.discard_range(4, 4)
    assert not numbers
    assert numbers == RangeSet()


def test_equal_sets_are_equal_however_they_were_made() -> None:
    one = RangeSet([(0, 3), (3, 6)])
    other = RangeSet([(0, 10)])
    other.discard_range(6, 10)
    assert one == other
    assert one != {0, 1, 2, 3, 4, 5}


def test_update_difference_and_intersection() -> None:
    odd, low = RangeSet([(1, 2), (3, 4), (5, 6)]), RangeSet([(0, 4)])
    assert list(odd.intersection(low)) == [1, 3]
    both = odd.copy()
    both.update(low)
    assert list(both) == [0, 1, 2, 3, 5]
    both.difference_update(odd)
    assert list(both) == [0, 2]
    assert list(odd) == [1, 3, 5]


def test_first_last_length_and_count() -> None:
    numbers = RangeSet([(3, 5), (10, 14)])
    assert (numbers.first(), numbers.last(), numbers.count(), numbers.range_count) == (3, 13, 6, 2)
    assert 4 in numbers
    assert 5 not in numbers


def test_the_lowest_ranges_are_a_copy() -> None:
    numbers = RangeSet([(0, 1), (2, 3), (4, 5)])
    lowest = numbers.lowest(2)
    assert lowest.bounds() == [0, 1, 2, 3]
    lowest.clear()
    assert numbers.range_count == 3


@pytest.mark.parametrize("bounds", [[1], [1, 1], [2, 1], [1, 3, 3, 5], [1, 2, 0, 9]])
def test_bounds_that_are_none_are_refused(bounds: list[int]) -> None:
    with pytest.raises(ValueError, match="strictly increasing"):
        RangeSet.from_bounds(bounds)


def test_bounds_travel_and_come_back() -> None:
    numbers = RangeSet([(3, 5), (10, 14)])
    assert RangeSet.from_bounds(numbers.bounds()) == numbers
