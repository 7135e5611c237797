import pytest

from vivum.core.errors import UsageError
from vivum.core.ranges import RangeSet
from vivum.wire.layout import BEYOND, DUPLICATE, NEW, SEQUENCE_MAX, WINDOW_MAX


def test_frames_in_order_move_the_prefix(forms):
    window = forms.SequenceWindow(5, 64)
    assert [window.add(number) for number in (5, 6, 7)] == [NEW] * 3
    assert (window.prefix, window.stop, window.held, window.missing(10)) == (8, 8, 0, [])


def test_a_gap_is_told_and_then_filled(forms):
    window = forms.SequenceWindow(0, 64)
    for number in (0, 2, 3, 7):
        window.add(number)
    assert (window.prefix, window.stop, window.held) == (1, 8, 3)
    assert window.missing(10) == [1, 2, 4, 7]
    assert list(RangeSet.from_bounds(window.missing(10))) == [1, 4, 5, 6]
    window.add(1)
    assert (window.prefix, window.held, window.missing(10)) == (4, 1, [4, 7])


def test_a_frame_that_was_received_is_a_duplicate(forms):
    window = forms.SequenceWindow(3, 64)
    window.add(3)
    window.add(5)
    assert [window.add(number) for number in (0, 2, 3, 5)] == [DUPLICATE] * 4


def test_a_frame_too_far_ahead_changes_nothing(forms):
    window = forms.SequenceWindow(0, 100)
    assert window.add(100) == BEYOND
    assert (window.prefix, window.stop, window.held) == (0, 0, 0)
    assert window.add(99) == NEW
    assert window.add(0) == NEW
    assert window.add(100) == NEW


def test_an_announcement_shows_the_loss_of_the_last_frames(forms):
    window = forms.SequenceWindow(0, 64)
    window.add(0)
    window.announce(3)
    assert window.missing(10) == [1, 3]
    window.announce(2)
    assert window.stop == 3
    window.announce(1000)
    assert window.missing(10) == [1, 1000], "more may be missing than the window can hold"
    window.announce(2**100)
    assert window.stop == 2**64 - 1


def test_missing_tells_only_the_lowest_ranges(forms):
    window = forms.SequenceWindow(0, 64)
    for number in (1, 3, 5, 7):
        window.add(number)
    assert window.missing(2) == [0, 1, 2, 3]
    assert window.missing(0) == window.missing(-1) == []
    assert window.missing(2**100) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_skipping_gives_up_what_is_below_and_goes_on_over_what_is_held(forms):
    window = forms.SequenceWindow(0, 64)
    for number in (1, 4, 5, 9):
        window.add(number)
    assert window.skip_to(4) == 3
    assert (window.prefix, window.stop, window.held) == (6, 10, 1)
    assert window.skip_to(2) == 0
    assert window.skip_to(1000) == 993
    assert (window.prefix, window.stop, window.held) == (1000, 1000, 0)
    assert window.add(1000) == NEW


def test_a_number_is_in_if_it_needs_not_come_any_more(forms):
    window = forms.SequenceWindow(5, 64)
    window.add(7)
    assert [number in window for number in (0, 4, 5, 6, 7, 8, 71, 7 + 64, 7 + 128)] == [
        *(True, True, False, False, True),
        *(False, False, False, False),
    ]
    assert -1 not in window
    assert 2**64 not in window


def test_numbers_end_at_the_highest_and_never_wrap(forms):
    window = forms.SequenceWindow(SEQUENCE_MAX - 2, 64)
    assert window.add(SEQUENCE_MAX) == NEW
    assert window.add(SEQUENCE_MAX + 1) == BEYOND
    assert window.missing(5) == [SEQUENCE_MAX - 2, SEQUENCE_MAX]
    assert window.add(SEQUENCE_MAX - 1) == window.add(SEQUENCE_MAX - 2) == NEW
    assert (window.prefix, window.stop, window.held) == (SEQUENCE_MAX + 1, SEQUENCE_MAX + 1, 0)
    assert window.add(SEQUENCE_MAX + 1) == BEYOND
    assert window.add(0) == DUPLICATE
    assert window.skip_to(2**64 - 1) == 0


def test_a_large_window_turns_round_many_times(forms):
    window = forms.SequenceWindow(0, 1000)
    for base in range(0, 20_000, 500):
        for number in range(base + 499, base, -1):
            assert window.add(number) == NEW
        assert window.missing(3) == [base, base + 1]
        assert window.add(base) == NEW
        assert (window.prefix, window.held) == (base + 500, 0)


@pytest.mark.parametrize("name", ["add", "announce", "skip_to"])
def test_numbers_that_are_none_are_the_callers_mistake(forms, name):
    window = forms.SequenceWindow(0, 64)
    with pytest.raises(UsageError, match="is -1; expected 0 to"):
        getattr(window, name)(-1)
    with pytest.raises(TypeError, match="must be an int, not float"):
        getattr(window, name)(1.0)
    if name != "announce":
        with pytest.raises(UsageError, match="expected 0 to"):
            getattr(window, name)(2**64)
    assert (window.prefix, window.stop) == (0, 0)


@pytest.mark.parametrize(("first", "capacity"), [(-1, 64), (2**64, 64), (0, 0), (0, -1), (0, WINDOW_MAX + 1)])
def test_a_window_that_cannot_be_is_refused(forms, first, capacity):
    with pytest.raises(UsageError):
        forms.SequenceWindow(first, capacity)
