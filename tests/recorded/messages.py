"""Types of messages that Spark's workers import, for the tests of the sink."""

import msgspec

from vivum.live.messages import Message


class Leg(msgspec.Struct):
    venue: str
    price: float | None = None


class Place(Message):
    row: int
    column: int


class Deal(Message):
    symbol: str
    price: float
    legs: list[Leg]
    tags: dict[str, int]
    place: Place | None = None
    size: int = 1
    notes: list[str] = msgspec.field(default_factory=list)
