"""Where the messages of the market go: one topic of quotes for each symbol, and the tape of the whole exchange."""

from vivum.guarantees import KEYED, RELIABLE
from vivum.pipeline.market_messages import ALERTS_TOPIC, MarketOrder, MarketQuote, MarketTrade

EVERYTHING = "/swx/**"
QUOTES = "/swx/quotes"
TRADES = "/swx/trades"
ORDERS = "/swx/orders"
ALERTS = ALERTS_TOPIC

FEED_GUARANTEE = RELIABLE
ALERTS_GUARANTEE = KEYED
"""The sink publishes so."""


def quote_topic(symbol: str) -> str:
    """Name the topic of a symbol's quotes."""
    return f"{QUOTES}/{symbol}"


def topic_of(message: MarketQuote | MarketOrder | MarketTrade) -> str:
    """Return where a message goes."""
    if type(message) is MarketQuote:
        return quote_topic(message.symbol)
    return TRADES if type(message) is MarketTrade else ORDERS
