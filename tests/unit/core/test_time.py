"""Durations as people write and read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planted.thorough import thorough
from vivum.core.errors import UsageError
from vivum.core.time import MICROSECOND, MILLISECOND, SECOND, format_duration, parse_duration_ns


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("0s", 0),
        ("7ns", 7),
        ("10us", 10 * MICROSECOND),
        ("10µs", 10 * MICROSECOND),
        ("10ms", 10 * MILLISECOND),
        ("1.5 s", 1_500 * MILLISECOND),
        (" 2 min ", 120 * SECOND),
        ("0.1s", 100 * MILLISECOND),
        ("0.0000000004s", 0),
    ],
)
def test_a_duration_is_read_in_every_unit(text: str, expected_ns: int) -> None:
    assert parse_duration_ns(text) == expected_ns


def test_whole_numbers_are_read_exactly_however_large() -> None:
    assert parse_duration_ns("9007199254740993ns") == 9_007_199_254_740_993


@pytest.mark.parametrize("text", ["", "10", "ms", "-1s", "1,5s", "1e3s", "10 sec", "1s 5ms", ".5s", "1.s", "1h"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration_ns(text)
    assert str(caught.value) == (
        f"{text!r} is not a duration; write a number and a unit (ns, us, ms, s, min), such as '10ms'"
    )


@pytest.mark.parametrize(
    ("duration_ns", "expected"),
    [
        (0, "0ns"),
        (999, "999ns"),
        (1_000, "1µs"),
        (1_500, "1.5µs"),
        (12 * MILLISECOND, "12ms"),
        (1_234_567, "1.235ms"),
        (10 * SECOND, "10s"),
        (100 * SECOND, "100s"),
        (-1_500, "-1.5µs"),
    ],
)
def test_a_duration_is_written_in_the_largest_unit_that_fits(duration_ns: int, expected: str) -> None:
    assert format_duration(duration_ns) == expected


@thorough
@given(st.integers(0, 10**15))
def test_what_is_written_is_read_back_to_three_digits_after_the_point(duration_ns: int) -> None:
    unit_ns = next(size for size in (SECOND, MILLISECOND, MICROSECOND, 1) if duration_ns >= size or size == 1)
    assert abs(parse_duration_ns(format_duration(duration_ns)) - duration_ns) <= unit_ns // 1_000
