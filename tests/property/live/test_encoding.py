"""What is sent can be read: a value becomes bytes that its type decodes, or a `UsageError`."""

from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vivum
from vivum.core.errors import UsageError
from vivum.live.messages import codec_of


class Plain(vivum.Message):
    count: int
    name: str
    price: float
    flag: bool
    data: bytes


class Maybe(vivum.Message):
    count: int | None
    name: str | None = None


class Nested(vivum.Message):
    inner: Plain
    many: list[int]
    bounded: Annotated[int, msgspec.Meta(ge=0, le=10)]


class Many(int):
    """An `int` of its own kind."""


values: st.SearchStrategy[Any] = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-5, 15),
    st.text(),
    st.sampled_from(["\udcff", b"", None, object(), Many(3), float("nan"), {1: 2}]),
    st.floats(),
    st.booleans(),
    st.binary(),
    st.lists(st.one_of(st.integers(-3, 3), st.text(max_size=1)), max_size=3),
)


def check(kind: type[Any], fields: list[Any]) -> None:
    codec = codec_of(kind)
    value = kind(*fields)
    try:
        data = codec.encode(value)
    except UsageError:
        return
    decoded = codec.decode(data)
    # A whole number in a field of floats arrives as a float: equal, and other bytes.
    same_bytes = msgspec.msgpack.encode(decoded) == msgspec.msgpack.encode(value)
    assert same_bytes or decoded == value or float in map(type, fields)


@given(st.lists(values, min_size=5, max_size=5))
def test_plain_fields(fields: list[Any]) -> None:
    check(Plain, fields)


@given(st.lists(values, min_size=2, max_size=2))
def test_fields_that_may_be_none(fields: list[Any]) -> None:
    check(Maybe, fields)


@given(st.lists(values, min_size=5, max_size=5), values, st.integers(-3, 13))
def test_fields_that_hold_more(inner: list[Any], many: Any, bounded: int) -> None:
    check(Nested, [Plain(*inner), many, bounded])


@pytest.mark.parametrize(
    "value", [Plain(1, "a", 1.5, True, b"x"), Maybe(None), Maybe(3, "a"), Nested(Plain(1, "", 0.5, False, b""), [1], 5)]
)
def test_right_values_arrive_as_they_were(value: Any) -> None:
    codec = codec_of(type(value))
    assert codec.decode(codec.encode(value)) == value
