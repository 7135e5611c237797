"""`SequenceWindow` in both forms against a set of integers, which cannot be wrong."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivum.wire import _codec_twin, codec
from vivum.wire.layout import BEYOND, DUPLICATE, NEW, SEQUENCE_MAX

FORMS = [_codec_twin, codec] if codec.COMPILED else [_codec_twin]


class Oracle:
    """A window by the words of the stub, with every number written out."""

    def __init__(self, first, capacity):
        self.first, self.capacity, self.stop = first, capacity, first
        self.done = set()  # received or skipped, at or above first

    @property
    def prefix(self):
        number = self.first
        while number in self.done:
            number += 1
        return number

    def add(self, sequence):
        if sequence < self.first or sequence in self.done:
            return DUPLICATE
        if sequence >= self.prefix + self.capacity or sequence > SEQUENCE_MAX:
            return BEYOND
        self.done.add(sequence)
        self.stop = max(self.stop, sequence + 1)
        return NEW

    def add_run(self, first, stop):
        above = {number for number in self.done if number >= self.prefix}
        is_behind_all = first < stop and first >= max({self.prefix, *(number + 1 for number in above)})
        if not is_behind_all or stop - self.prefix > self.capacity or stop > SEQUENCE_MAX:
            return False
        self.done.update(range(first, stop))
        self.stop = max(self.stop, stop)
        return True

    def announce(self, stop):
        self.stop = max(self.stop, stop)

    def skip_to(self, sequence):
        skipped = [number for number in range(self.first, sequence) if number not in self.done]
        self.done.update(skipped)
        self.stop = max(self.stop, self.prefix)
        return len(skipped)

    def missing(self, ranges_max):
        missing = [number for number in range(self.first, self.stop) if number not in self.done]
        bounds = []
        for number in missing:
            if bounds and bounds[-1] == number:
                bounds[-1] += 1
            else:
                bounds += [number, number + 1]
        return bounds[: 2 * ranges_max]

    @property
    def held(self):
        return sum(number > self.prefix for number in self.done)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "add", "add_run", "add_run", "run", "missing", "announce", "skip_to"]),
        st.one_of(st.integers(0, 12), st.integers(0, 260)),
    ),
    max_size=60,
)
FIRSTS = st.one_of(st.sampled_from([0, 1, 63, 64, 2**32 - 5, SEQUENCE_MAX - 300]), st.integers(0, 2**63))
CAPACITIES = st.one_of(st.sampled_from([1, 2, 63, 64, 65, 127, 128, 129, 200]), st.integers(1, 300))


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=250)
@given(first=FIRSTS, capacity=CAPACITIES, steps=STEPS)
def test_a_window_does_what_a_set_would(form, first, capacity, steps):
    window, oracle = form.SequenceWindow(first, capacity), Oracle(first, capacity)
    for name, offset in steps:
        number = first + offset
        if name == "add_run":
            # As many as the offset has, from behind the highest of all on or a little later or earlier.
            start = oracle.stop + offset % 7 - 3
            if start >= 0 and start + offset < 1 << 64:
                assert window.add_run(start, start + offset) == oracle.add_run(start, start + offset)
        elif name == "run":
            # Many at once, so that the ring turns.
            for each in range(number, min(number + 70, SEQUENCE_MAX)):
                assert window.add(each) == oracle.add(each)
        elif name == "missing":
            assert window.missing(offset) == oracle.missing(offset)
        else:
            assert getattr(window, name)(number) == getattr(oracle, name)(number)
        assert (window.prefix, window.stop, window.held) == (oracle.prefix, oracle.stop, oracle.held)
        assert (number in window) == (number in oracle.done or number < first)
    assert window.missing(1000) == oracle.missing(1000)
    everywhere = range(max(first - 2, 0), first + 600)
    assert [n in window for n in everywhere] == [n < first or n in oracle.done for n in everywhere]
