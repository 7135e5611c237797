"""Types as data: what a program's type becomes, its text and back, which types fit, and what a reader makes of it."""

import dataclasses
import datetime
import decimal
import enum
import json
import uuid
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from vivum.core.errors import UsageError
from vivum.wire.schema import (
    EnumType,
    FieldDescription,
    PlainType,
    SequenceType,
    TypeDescription,
    TypesDiffer,
    UnknownType,
    describe_type,
    join_types,
    parse_type,
    read_schema,
    struct_of,
    title_of,
    type_text,
    write_schema,
)


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


Wide = enum.Enum("Wide", {f"M{number}": f"member {number}" for number in range(100)})  # type: ignore[misc]


class Party(msgspec.Struct, array_like=True):
    name: str
    rank: int = 0


class Place(msgspec.Struct, rename="kebab"):
    street_name: str
    number: int | None = None


class Point(NamedTuple):
    x: float
    y: float


@dataclasses.dataclass
class Money:
    amount: decimal.Decimal
    currency: str = "CHF"


class Note(TypedDict):
    text: str


class Circle(msgspec.Struct, array_like=True, tag="circle", tag_field="kind"):
    radius: float


class Square(msgspec.Struct, array_like=True, tag="square", tag_field="kind"):
    side: float


class Tree(msgspec.Struct, array_like=True):
    value: int
    below: list["Tree"] = []


class Own:
    """A class that msgspec does not know."""


class Everything(msgspec.Struct, array_like=True):
    text: str
    number: int
    share: float
    flag: bool
    data: bytes
    party: Party
    place: Place
    point: Point
    money: Money
    note: Note
    shape: Circle | Square
    tree: Tree
    side: Side
    level: Level
    wide: Wide
    literal: Literal["a", "it's", None]
    at: datetime.datetime
    day: datetime.date
    hour: datetime.time
    lasting: datetime.timedelta
    key: uuid.UUID
    price: decimal.Decimal
    pair: tuple[int, str]
    many: tuple[int, ...]
    tags: set[str]
    parties: dict[str, list[Party | None]]
    limited: Annotated[int, msgspec.Meta(ge=0, le=10, description="from 0")]
    matching: Annotated[str, msgspec.Meta(pattern="^[a-z']+$")]
    either: int | str | None
    whatever: Any = None


TEXTS = {
    "party": "Party(name:str,rank?:int)",
    "place": "Place{'street-name':str,number?:int | None}",
    "point": "Point(x:float,y:float)",
    "money": "Money{amount:Decimal,currency?:str}",
    "note": "Note{text:str}",
    "shape": "Circle(kind='circle',radius:float) | Square(kind='square',side:float)",
    "tree": "Tree(value:int,below?:list[Tree])",
    "side": "Side['buy', 'sell']",
    "level": "Level[1, 2]",
    "wide": "Wide[str]",
    "at": "datetime",
    "key": "UUID",
    "pair": "tuple[int, str]",
    "many": "tuple[int, ...]",
    "parties": "dict[str, list[Party(name:str,rank?:int) | None]]",
    "limited": "Annotated[int, msgspec.Meta(ge=0, le=10)]",
    "either": "int | str | None",
    "whatever": "Any",
}


def test_every_type_that_a_message_can_have_is_told_and_read_again():
    description = describe_type(Everything)
    texts = {each.name: type_text(each.type) for each in description.fields}
    assert {name: texts[name] for name in TEXTS} == TEXTS
    assert not any(isinstance(each.type, UnknownType) for each in description.fields)
    assert read_schema(write_schema(description)) == description


def test_what_nobody_knows_is_told_by_its_name():
    class Odd(msgspec.Struct):
        thing: Own

    assert describe_type(Odd).fields == (FieldDescription("thing", UnknownType("Own")),)


def test_what_is_no_struct_is_refused():
    with pytest.raises(UsageError, match="give a msgspec struct"):
        describe_type(int)
    with pytest.raises(UsageError, match="codec 'xml' is unknown"):
        describe_type(Party, "xml")


def test_how_values_are_encoded_is_told_where_it_is_not_as_in_topics():
    assert json.loads(write_schema(describe_type(Party))) == ["Party", [["name", "str", False], ["rank", "int", True]]]
    place = describe_type(Place, "json")
    assert json.loads(write_schema(place))[2] == {"array_like": False, "codec": "json"}
    assert read_schema(write_schema(place)) == place
    assert read_schema(write_schema(describe_type(Circle))) == describe_type(Circle)


PARTY = TypeDescription("Party", (FieldDescription("name", PlainType("str")),), array_like=True)


@pytest.mark.parametrize(
    ("old", "now"),
    [
        ("Optional[int]", "int | None"),
        ("Union[str, int]", "int | str"),
        ("None | str", "str | None"),
        ("List[int]", "list[int]"),
        ("dict[str, datetime.datetime]", "dict[str, datetime]"),
        ("Party(name:str)", "Party(name:str)"),
        ("Literal['a', 'b']", "Literal['a', 'b']"),
        ("Annotated[int, msgspec.Meta(ge=0, description='at least 0')]", "Annotated[int, msgspec.Meta(ge=0)]"),
    ],
)
def test_texts_of_older_versions_are_understood(old: str, now: str):
    assert type_text(parse_type(old)) == now
    assert not isinstance(parse_type(old), UnknownType)


def test_what_older_versions_told_by_its_name_fits_what_has_that_name():
    old = read_schema('["Order",[["side","Side",false],["parties","list[shop.types.Party]",false]]]')
    assert old is not None

    class Order(msgspec.Struct, array_like=True):
        side: Side
        parties: list[Party]

    assert join_types(old, describe_type(Order)) == join_types(describe_type(Order), old) == describe_type(Order)


@pytest.mark.parametrize(
    "text",
    ["", "int |", "list[int", "Party(name)", "a.<locals>.B", "list[" * 40 + "int" + "]" * 40, "'", "x['\\x']", "\0"],
)
def test_what_is_no_type_is_unknown_and_keeps_its_text(text: str):
    assert parse_type(text) == UnknownType(text)


@pytest.mark.parametrize("text", ['"bytes"', "", "{", "3", '["A"]', '["A",[["x","int"]]]', "[" * 4000, '["A",[],3]'])
def test_a_schema_that_describes_no_type_is_none(text: str):
    assert read_schema(text) is None
    assert title_of(text) == ("bytes" if text == '"bytes"' else "unknown")


def of(kind: str) -> TypeDescription:
    return TypeDescription("Some", (FieldDescription("x", parse_type(kind)),), array_like=True)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("Side['a']", "Side['a', 'b']", "Side['a', 'b']"),
        ("list[P(a:int)]", "list[P(a:int,b?:str)]", "list[P(a:int,b?:str)]"),
        ("dict[str, P{b?:int,a:int}]", "dict[str, P{a:int}]", "dict[str, P{a:int,b?:int}]"),
        ("P(a:int) | None", "Q(a?:int) | None", "P(a?:int) | None"),
    ],
)
def test_types_grow_inside_too(one: str, other: str, both: str):
    for first, second in ((one, other), (other, one)):
        found = join_types(of(first), of(second)).fields[0].type
        assert type_text(found).replace("Q(", "P(") == both


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int", "str"),
        ("int", "int | None"),
        ("list[int]", "set[int]"),
        ("Side['a', 'b']", "Side['a', 'c']"),
        ("Side['a']", "str"),
        ("P(a:int)", "P{a:int}"),
        ("P(a:int)", "P(a:int,b:int)"),
        ("P(a:int)", "P(b:int)"),
        ("P(k='p',a:int)", "P(a:int)"),
        ("tuple[int, int]", "tuple[int, int, int]"),
        ("tuple[int, ...]", "tuple[int]"),
        ("Annotated[int, msgspec.Meta(ge=0)]", "int"),
        ("a.Own", "b.Own"),
        ("dict[str, int]", "dict[int, int]"),
        ("int | str", "int | float"),
    ],
)
def test_types_whose_values_the_other_could_not_read_differ(one: str, other: str):
    for first, second in ((one, other), (other, one)):
        with pytest.raises(TypesDiffer):
            join_types(of(first), of(second))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("str", "Side['a']"),
        ("Side['a']", "Side['b']"),
        ("list[int]", "set[int]"),
        ("str", "UUID"),
        ("Annotated[int, msgspec.Meta(ge=0)]", "int"),
    ],
)
def test_a_log_compares_how_values_travel(one: str, other: str):
    assert join_types(of(one), of(other), as_stored=True) == of(other)


def test_fields_of_arrays_have_their_places():
    class Turned(msgspec.Struct, array_like=True):
        rank: int = 0
        name: str = ""

    with pytest.raises(TypesDiffer, match="field 1 is name: str; in Turned it is rank: int"):
        join_types(describe_type(Party), describe_type(Turned))


def everything() -> Everything:
    return Everything(
        "a", 1, 0.5, True, b"b", Party("UBS"), Place("Main"), Point(1.0, 2.0), Money(decimal.Decimal("1.5")),
        Note(text="n"), Square(2.0), Tree(1, [Tree(2)]), Side.BUY, Level.HIGH, Wide("member 3"), None,
        datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC), datetime.date(2026, 11, 16), datetime.time(14, 30),
        datetime.timedelta(seconds=3), uuid.UUID(int=1), decimal.Decimal("2.5"), (1, "b"), (1, 2), {"t"},
        {"p": [Party("CS", 2), None]}, 3, "abc", "x",
    )  # fmt: skip


@pytest.mark.parametrize("codec", ["msgpack", "json"])
def test_a_reader_without_the_classes_decodes_every_field(codec: str):
    description = read_schema(write_schema(describe_type(Everything)))
    assert description is not None
    decode: Any = {"msgpack": msgspec.msgpack.decode, "json": msgspec.json.decode}[codec]
    encode: Any = {"msgpack": msgspec.msgpack.encode, "json": msgspec.json.encode}[codec]
    read = decode(encode(everything()), type=struct_of(description))
    assert (read.party.name, read.party.rank, read.point.y, read.money.currency) == ("UBS", 0, 2.0, "CHF")
    assert read.place.field_1 == "Main"
    assert (read.side, read.level, read.wide, read.literal) == ("buy", 2, "member 3", None)
    assert (read.at, read.day) == (everything().at, everything().day)
    assert (read.hour, read.lasting, read.price) == ("14:30:00", "PT3S", "2.5")
    assert (read.pair._1, read.pair._2, read.many, read.tags) == (1, "b", [1, 2], ["t"])
    assert [each and each.rank for each in read.parties["p"]] == [2, None]
    assert (read.shape, read.tree.below, read.either) == (["square", 2.0], [[2, []]], "x")


def test_parts_can_be_built_by_hand():
    by_hand = TypeDescription(
        "Basket",
        (
            FieldDescription("sides", SequenceType("list", EnumType("Side", "str", ("buy", "sell")))),
            FieldDescription("party", PARTY, required=False),
        ),
        array_like=True,
    )
    assert read_schema(write_schema(by_hand)) == by_hand
