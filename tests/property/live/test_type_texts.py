"""Every type has a text that means that type again, and no text that a peer sends can do harm."""

import hypothesis.strategies as st
from hypothesis import given

from vivum.wire.schema import (
    EnumType,
    FieldDescription,
    LimitedType,
    MapType,
    OptionalType,
    PlainType,
    SequenceType,
    TupleType,
    TypeDescription,
    TypeExpression,
    join_types,
    parse_type,
    read_schema,
    title_of,
    type_text,
    write_schema,
)

NAMES = ["b_2", "it's-odd", "Ärger"]

words = st.sampled_from(["a", "b_2", "Ärger", "field"])
plain = st.sampled_from(["str", "int", "float", "bool", "bytes", "datetime", "UUID", "Any"]).map(PlainType)
enums = st.one_of(
    st.builds(EnumType, st.just("Side"), st.just("str"), st.lists(st.text(), max_size=3).map(tuple)),
    st.builds(EnumType, st.just("Level"), st.just("int"), st.lists(st.integers(), max_size=3).map(tuple)),
)
limited = st.builds(
    LimitedType,
    plain,
    st.tuples(st.tuples(st.just("ge"), st.integers()), st.tuples(st.just("pattern"), st.text())),
)


def nested(inner: st.SearchStrategy[TypeExpression]) -> st.SearchStrategy[TypeExpression]:
    fields = st.lists(st.tuples(inner, st.booleans()), max_size=3).map(
        lambda found: [FieldDescription(name, *each) for name, each in zip(NAMES, found, strict=False)]
    )
    structs = st.one_of(
        st.builds(TypeDescription, words, fields.map(tuple), st.booleans()),
        st.builds(
            lambda name, found, tag, place: TypeDescription(name, tuple(found), True, tag=tag, tag_field=place),
            words,
            fields,
            st.one_of(st.text(), st.integers()),
            st.text(min_size=1, max_size=5),
        ),
    )
    return st.one_of(
        st.builds(SequenceType, st.sampled_from(["list", "set", "frozenset", "tuple"]), inner),
        st.builds(TupleType, st.lists(inner, max_size=3).map(tuple)),
        st.builds(MapType, plain, inner),
        inner.map(lambda each: each if isinstance(each, OptionalType) else OptionalType(each)),
        structs,
    )


types: st.SearchStrategy[TypeExpression] = st.recursive(st.one_of(plain, enums, limited), nested, max_leaves=8)


@given(types)
def test_the_text_of_a_type_means_that_type(kind: TypeExpression) -> None:
    assert parse_type(type_text(kind)) == kind
    description = TypeDescription("Some", (FieldDescription("x", kind),), array_like=True)
    assert read_schema(write_schema(description)) == description
    assert join_types(description, description) == description


@given(st.one_of(st.text(), st.text("abN[](){},:|?='.\"\\ 1-", max_size=40)))
def test_any_text_is_read_as_some_type(text: str) -> None:
    again = parse_type(type_text(parse_type(text)))
    assert again == parse_type(text)
    read_schema(text)
    title_of(text)
