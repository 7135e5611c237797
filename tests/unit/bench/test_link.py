"""Rates of links as people write them, and how senders share a link."""

import pytest

from vivum.bench.link import rate_mbit, shares
from vivum.core.errors import UsageError


def test_rates_are_written_with_their_unit() -> None:
    assert [rate_mbit(text) for text in ("100mbit", "250Mbit", "1gbit")] == [100, 250, 1000]


@pytest.mark.parametrize("text", ["100", "mbit", "1.5gbit", "0mbit", "11gbit", "-1mbit", "1 gbit"])
def test_other_words_are_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="write 100mbit, 250mbit or 1gbit"):
        rate_mbit(text)


def test_shares_are_of_the_link_and_compared_largest_to_smallest() -> None:
    assert shares([300.0, 200.0], 1000.0) == {"shares": [0.3, 0.2], "shares_ratio": 1.5}
    assert shares([300.0, 0.0], 1000.0)["shares_ratio"] is None
