from vivum.core.ranges import RangeSet
from vivum.protocols.membership.group_epochs import GroupEpochs


def test_nothing_went_yet():
    epochs = GroupEpochs()
    assert (epochs.at(0), epochs.at(2**30), len(epochs)) == (0, 0, 1)


def test_a_region_of_many_neighbours_costs_one_stretch():
    epochs = GroupEpochs()
    epochs.set_range(100, 100 + 8192, 7)
    assert [epochs.at(group) for group in (99, 100, 8291, 8292)] == [0, 7, 7, 0]
    assert len(epochs) == 3


def test_a_later_epoch_cuts_an_earlier_one():
    epochs = GroupEpochs()
    epochs.set_range(0, 10, 1)
    epochs.set_range(4, 6, 2)
    assert [epochs.at(group) for group in (3, 4, 5, 6, 9, 10)] == [1, 2, 2, 1, 1, 0]
    assert epochs.above(RangeSet([(2, 5), (8, 20)]), 0) == [(1, (2, 4, 8, 10)), (2, (4, 5))]
    assert epochs.above(RangeSet([(2, 5)]), 1) == [(2, (4, 5))]


def test_equal_neighbours_are_one():
    epochs = GroupEpochs()
    epochs.set_range(0, 4, 3)
    epochs.set_range(4, 8, 3)
    epochs.set_range(2, 6, 3)
    assert len(epochs) == 2


def test_forgetting_what_is_outside():
    epochs = GroupEpochs()
    epochs.set_range(0, 100, 5)
    epochs.keep_only(RangeSet([(10, 20)]))
    assert [epochs.at(group) for group in (9, 10, 19, 20)] == [0, 5, 5, 0]
