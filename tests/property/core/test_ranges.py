"""`RangeSet` against a set of integers, which cannot be wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivum.core.ranges import RangeSet

SMALL = st.integers(0, 40)
RANGE = st.tuples(SMALL, SMALL)
CHANGE = st.one_of(
    st.tuples(st.sampled_from(["add", "discard"]), SMALL, st.just(0)),
    st.tuples(st.sampled_from(["add_range", "discard_range"]), SMALL, SMALL),
)


def apply(changes):
    ranges, oracle = RangeSet(), set()
    for name, start, stop in changes:
        if name in ("add", "discard"):
            was_in = start in oracle
            answer = getattr(ranges, name)(start)
            assert answer is (not was_in if name == "add" else was_in)
            getattr(oracle, name)(start)
        else:
            getattr(ranges, name)(start, stop)
            (oracle.update if name == "add_range" else oracle.difference_update)(range(start, stop))
    return ranges, oracle


def bounds_of(numbers):
    """The flat bounds of a set of integers, by looking at every number."""
    return [
        n for n in range(min(numbers, default=0), max(numbers, default=0) + 2) if (n in numbers) != (n - 1 in numbers)
    ]


def check(ranges, oracle):
    assert list(ranges) == sorted(oracle)
    assert ranges.bounds() == bounds_of(oracle)
    assert ranges.count() == len(oracle)
    assert bool(ranges) == bool(oracle)
    assert ranges.range_count == len(bounds_of(oracle)) // 2
    assert [n in ranges for n in range(-1, 45)] == [n in oracle for n in range(-1, 45)]
    if oracle:
        assert (ranges.first(), ranges.last()) == (min(oracle), max(oracle))


@given(st.lists(CHANGE, max_size=30))
def test_any_changes_leave_what_a_set_has(changes):
    ranges, oracle = apply(changes)
    check(ranges, oracle)


@given(st.lists(CHANGE, max_size=15), st.lists(CHANGE, max_size=15))
def test_two_sets_combine_as_sets_do(left_changes, right_changes):
    left, left_oracle = apply(left_changes)
    right, right_oracle = apply(right_changes)
    check(left.intersection(right), left_oracle & right_oracle)
    assert (left == right) == (left_oracle == right_oracle)
    joined = left.copy()
    joined.update(right)
    check(joined, left_oracle | right_oracle)
    rest = left.copy()
    rest.difference_update(right)
    check(rest, left_oracle - right_oracle)
    check(left, left_oracle)
    check(right, right_oracle)


@given(st.lists(RANGE, max_size=15), st.integers(0, 10))
def test_the_lowest_ranges_are_a_beginning_of_all(pairs, ranges_max):
    ranges = RangeSet(pairs)
    lowest = ranges.lowest(ranges_max)
    assert lowest.bounds() == ranges.bounds()[: 2 * ranges_max]
    assert list(lowest) == list(ranges)[: lowest.count()]


@given(st.lists(SMALL, max_size=8))
def test_bounds_make_the_same_set_or_are_refused(bounds):
    if len(bounds) % 2 == 0 and bounds == sorted(set(bounds)):
        assert RangeSet.from_bounds(bounds).bounds() == bounds
    else:
        with pytest.raises(ValueError, match="strictly increasing"):
            RangeSet.from_bounds(bounds)
