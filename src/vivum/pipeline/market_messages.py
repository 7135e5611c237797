"""The messages of an exchange, as the gold jobs understand them: quotes, trades, orders, and the alerts that come back.

Types of topics, to be sent live. A feed may have types of its own with these names and fields, and with more fields.
"""

from vivum.live.messages import Message

ALERTS_TOPIC = "/surveillance/alerts"
"""Where surveillance publishes, with the guarantee `KEYED`."""


class MarketQuote(Message):
    """Best bid and offer of a symbol."""

    symbol: str
    bid: float
    ask: float
    size: int = 0


class MarketTrade(Message):
    """A trade: who bought from whom. `buyer` and `seller` are the owners behind the orders."""

    symbol: str
    price: float
    size: int
    buyer: str
    seller: str


class MarketOrder(Message):
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


class SurveillanceAlert(Message):
    """What surveillance found: which pattern, whose, and when it began and ended (nanoseconds since 1970)."""

    pattern: str
    symbol: str
    who: str
    first_ns: int
    last_ns: int
    evidence: str
