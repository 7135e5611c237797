"""Values that a topic cannot carry are refused where they are sent."""

from typing import Any

import pytest

import vivum
from vivum.core.errors import UsageError
from vivum.live.messages import codec_of


class Quote(vivum.Message):
    symbol: str
    size: int
    price: float = 0.0
    venue: str | None = None


class Basket(vivum.Message):
    quotes: list[Quote]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Quote("a", "b"), "field size of Quote: Expected `int`, got `str`"),  # type: ignore[arg-type]
        (Quote(b"a", 1), "field symbol of Quote: Expected `str`, got `bytes`"),  # type: ignore[arg-type]
        (Quote("a", True), "field size of Quote: Expected `int`, got `bool`"),
        (Quote("a", 1, 1.0, 5), "field venue of Quote: Expected `str | null`, got `int`"),  # type: ignore[arg-type]
        (Quote("a", 2**70), "Quote cannot be sent"),
        (Quote("\udcff", 1), "Quote cannot be sent"),
        (Quote("a", object()), "Quote cannot be sent"),  # type: ignore[arg-type]
        (Basket([Quote("a", "b")]), "field quotes of Basket: Expected `int`, got `str`"),  # type: ignore[arg-type]
        ("text", "takes Quote, not str"),
    ],
)
def test_a_value_that_receivers_could_not_read_is_refused(value: Any, told: str) -> None:
    """R2: such values were sent, and receivers skipped them without a word."""
    codec = codec_of(Basket if isinstance(value, Basket) else Quote)
    with pytest.raises(UsageError) as caught:
        codec.encode(value)
    assert told in str(caught.value)


def test_an_integer_is_taken_for_a_float_as_receivers_do() -> None:
    codec = codec_of(Quote)
    assert codec.decode(codec.encode(Quote("a", 1, 2))) == Quote("a", 1, 2.0)
