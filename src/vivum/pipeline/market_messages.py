"""The messages of an exchange, as the gold jobs understand them: quotes, trades, orders, and the alerts that come back.

A feed may have types of its own, as long as they have these names and fields; more fields do not matter.
"""

import msgspec


class MarketQuote(msgspec.Struct, frozen=True):
    """Best bid and offer of a symbol."""

    symbol: str
    bid: float
    ask: float
    size: int = 0


class MarketTrade(msgspec.Struct, frozen=True):
    """A trade: who bought from whom. `buyer` and `seller` are the owners behind the orders."""

    symbol: str
    price: float
    size: int
    buyer: str
    seller: str


class MarketOrder(msgspec.Struct, frozen=True):
    """An order that was entered, cancelled or filled (`action`), by a trader of a firm, for a client or the house."""

    order_id: int
    symbol: str
    trader: str
    firm: str
    capacity: str
    side: str
    action: str
    price: float
    size: int


class SurveillanceAlert(msgspec.Struct, frozen=True):
    """What surveillance found: the pattern, who, in which symbol, between which times, and the evidence in words."""

    pattern: str
    symbol: str
    who: str
    first_ns: int
    last_ns: int
    evidence: str
