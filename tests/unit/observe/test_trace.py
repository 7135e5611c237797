"""Trace records: one list, one meaning for each field name; and the digest of all."""

import re
from typing import get_args

import msgspec
import pytest

from vivum.observe import trace
from vivum.observe.trace import (
    GroupJoined,
    GroupLeft,
    HashTrace,
    NodeStarted,
    Record,
    TraceRecord,
)

TYPES: tuple[type[Record], ...] = get_args(TraceRecord)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def test_every_record_is_in_the_one_list() -> None:
    defined = {each for each in vars(trace).values() if isinstance(each, type) and issubclass(each, Record)}
    assert defined - {Record} == set(TYPES)


def test_a_kind_is_the_name_of_its_class_in_snake_case() -> None:
    kinds = [each.__struct_config__.tag for each in TYPES]
    assert kinds == [_snake_case(each.__name__) for each in TYPES]
    assert len(set(kinds)) == len(kinds)


def test_a_field_name_has_one_type_in_all_records() -> None:
    types: dict[str, object] = {}
    for record_type in TYPES:
        for field in msgspec.structs.fields(record_type):
            assert types.setdefault(field.name, field.type) == field.type, f"{record_type.__name__}.{field.name}"


def test_fields_are_of_types_that_files_can_hold() -> None:
    used = {field.type for record_type in TYPES for field in msgspec.structs.fields(record_type)}
    assert used == {int, str, tuple[str, ...]}


@pytest.mark.parametrize("record_type", TYPES)
def test_every_record_begins_with_when_and_where_and_says_what_it_is(record_type: type[Record]) -> None:
    assert record_type.__struct_fields__[:3] == ("time_ns", "node", "incarnation")
    assert record_type.__doc__
    assert all(field.required for field in msgspec.structs.fields(record_type))


def test_records_are_frozen_and_compared_by_value_and_type() -> None:
    record = GroupJoined(5, 1, 1, group=7)
    assert record == GroupJoined(5, 1, 1, group=7)
    assert record != GroupLeft(5, 1, 1, group=7)
    with pytest.raises(AttributeError):
        record.group = 8  # type: ignore[misc]


def _hash(*records: TraceRecord) -> str:
    sink = HashTrace()
    for record in records:
        sink(record)
    assert sink.count == len(records)
    return sink.hexdigest()


def test_equal_histories_have_equal_hashes() -> None:
    assert _hash(NodeStarted(5, 1, 1)) == _hash(NodeStarted(5, 1, 1))
    assert _hash() == _hash()


@pytest.mark.parametrize(
    "other",
    [
        [],
        [GroupJoined(5, 1, 1, group=7)],
        [GroupLeft(6, 1, 1, group=7), GroupJoined(5, 1, 1, group=7)],
        [GroupJoined(5, 1, 1, group=7), GroupLeft(6, 1, 1, group=8)],
        [GroupJoined(5, 1, 1, group=7), GroupLeft(7, 1, 1, group=7)],
        [GroupJoined(5, 1, 1, group=7), GroupJoined(6, 1, 1, group=7)],
        [GroupJoined(5, 1, 1, group=7), GroupLeft(6, 1, 1, group=7), GroupLeft(6, 1, 1, group=7)],
    ],
    ids=["nothing", "less", "other order", "other field", "other time", "other kind", "more"],
)
def test_any_difference_changes_the_hash(other: list[TraceRecord]) -> None:
    assert _hash(*other) != _hash(GroupJoined(5, 1, 1, group=7), GroupLeft(6, 1, 1, group=7))


def test_a_hash_can_be_looked_at_on_the_way() -> None:
    sink = HashTrace()
    sink(NodeStarted(5, 1, 1))
    first = sink.hexdigest()
    assert sink.hexdigest() == first
    sink(NodeStarted(6, 1, 1))
    assert sink.hexdigest() != first
