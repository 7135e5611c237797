"""The compiled XOR is its plain-Python twin, and what it gives is its own inverse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivum.core.errors import UsageError
from vivum.wire import _xor_twin
from vivum.wire.layout import FRAME_BYTES_MAX
from vivum.wire.xor import xor_all

PARTS = st.lists(st.binary(max_size=200), max_size=6)


@given(PARTS)
def test_both_give_the_same(parts: list[bytes]) -> None:
    assert xor_all(parts) == xor_all(tuple(parts)) == _xor_twin.xor_all(parts)


@given(PARTS, st.binary(max_size=200))
def test_all_but_one_give_that_one_back_padded(parts: list[bytes], one: bytes) -> None:
    mixed = xor_all([*parts, one])
    assert xor_all([mixed, *parts]) == one.ljust(len(mixed), b"\0")


@pytest.mark.parametrize(
    "wrong",
    [b"bytes", [bytearray(b"x")], ["x"], [None], 3, [bytes(FRAME_BYTES_MAX + 1)]],
    ids=["bytes", "bytearray", "str", "None", "int", "too long"],
)
def test_both_refuse_the_same(wrong: object) -> None:
    said = []
    for xor in (xor_all, _xor_twin.xor_all):
        with pytest.raises((TypeError, UsageError)) as caught:
            xor(wrong)  # type: ignore[arg-type]
        said.append((caught.type, str(caught.value)))
    assert said[0] == said[1]
