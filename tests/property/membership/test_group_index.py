"""The index from groups to sets against a dictionary of Python sets."""

from hypothesis import given
from hypothesis import strategies as st

from vivum.core.ranges import RangeSet
from vivum.protocols.membership.group_index import GroupIndex, numbers_in

GROUPS = 24
BOUNDS = st.sets(st.integers(0, GROUPS - 1), max_size=12).map(
    lambda groups: tuple(RangeSet((group, group + 1) for group in groups).bounds())
)


@given(st.lists(st.tuples(st.integers(0, 70), BOUNDS), max_size=20), BOUNDS)
def test_an_index_equals_a_dictionary_of_sets(calls, asked):
    index, oracle = GroupIndex(), {}
    for number, bounds in calls:
        index.flip(number, bounds)
        oracle[number] = oracle.get(number, frozenset()) ^ set(RangeSet.from_bounds(bounds))
    holders = [{number for number, groups in oracle.items() if group in groups} for group in range(GROUPS + 1)]
    assert [set(numbers_in(index.at(group))) for group in range(GROUPS + 1)] == holders
    wanted = set(RangeSet.from_bounds(asked))
    assert set(numbers_in(index.sharing(asked))) == {number for number in oracle if oracle[number] & wanted}
    walked = {group: mask for start, stop, mask in index.stretches(asked) for group in range(start, stop)}
    assert walked == {group: index.at(group) for group in wanted}
    digits = index.count_shared(asked)
    counts = {number: sum((digit >> number & 1) << place for place, digit in enumerate(digits)) for number in oracle}
    assert counts == {number: len(groups & wanted) for number, groups in oracle.items()}
    assert set(index.groups()) == set().union(*oracle.values())


@given(st.sets(st.integers(0, 300)))
def test_numbers_of_a_mask_come_lowest_first(numbers):
    assert list(numbers_in(sum(1 << number for number in numbers))) == sorted(numbers)


def test_bounds_that_part_nothing_go_in_time():
    index = GroupIndex()
    index.flip(0, (0, 1_000_000))
    for group in range(0, 20_000, 2):
        for _ in range(2):
            index.flip(1, (group, group + 1))
        assert len(index) <= 100
    for group in range(0, 20_000, 2):
        index.flip(1, (group, group + 1))
    assert 20_000 <= len(index) <= 40_100
    assert (index.at(10), index.at(11), index.at(999_999), index.at(1_000_000)) == (3, 1, 1, 0)
