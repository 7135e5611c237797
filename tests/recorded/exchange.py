"""A recorded day at a small exchange, with one of each forbidden pattern in it."""

from pathlib import Path

import msgspec

from vivum.pipeline.market_messages import MarketOrder, MarketQuote, MarketTrade
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_log import SegmentLog

SECOND_NS = 1_000_000_000
NINE = 1_763_197_200 * SECOND_NS


class Exchange:
    """Writes messages one by one, as a sequencer orders them."""

    def __init__(self, directory: Path) -> None:
        self.log = SegmentLog(directory)
        for topic, kind in (("/swx/quotes", MarketQuote), ("/swx/trades", MarketTrade), ("/swx/orders", MarketOrder)):
            self.log.declare(topic, kind)
        self.position = 0
        self.orders = 0

    def send(self, at_s: float, message: MarketQuote | MarketTrade | MarketOrder, *, copies: int = 1) -> None:
        kind = type(message).__name__.removeprefix("Market").lower()
        self.position += 1
        at_ns = NINE + int(at_s * SECOND_NS)
        payload = msgspec.msgpack.encode(message)
        run = RecordedRun(f"/swx/{kind}s", 1, 1, self.position, 1, at_ns, at_ns, [payload], self.position)
        for _ in range(copies):
            self.log.append([run])

    def order(self, at_s: float, trader: str, side: str, price: float, size: int, **more: object) -> int:
        self.orders += 1
        self.act(at_s, self.orders, "enter", trader, side, price, size, **more)
        return self.orders

    def act(
        self, at_s: float, number: int, action: str, trader: str, side: str, price: float, size: int,
        firm: str = "Firm", capacity: str = "client", symbol: str = "NESN",
    ) -> None:  # fmt: skip
        self.send(at_s, MarketOrder(number, symbol, trader, firm, capacity, side, action, price, size))


def write_exchange(directory: Path) -> None:
    exchange = Exchange(directory)
    for place, price in enumerate([100.0, 103.0, 99.0, 101.0]):
        exchange.send(0.1 * place, MarketQuote("NESN", price - 0.5, price + 0.5))
        exchange.send(0.1 * place + 0.05, MarketTrade("NESN", price, 10, f"buyer{place}", f"seller{place}"))
    # Recorded by two recorders: counts once.
    exchange.send(61.0, MarketTrade("NESN", 102.0, 5, "a", "b"), copies=2)
    # Wash trades: with itself, and there and back.
    exchange.send(70.0, MarketTrade("ROG", 300.0, 7, "washer", "washer"))
    exchange.send(71.0, MarketTrade("ROG", 300.0, 9, "left", "right"))
    exchange.send(80.0, MarketTrade("ROG", 300.0, 9, "right", "left"))
    for place in range(30):
        number = exchange.order(90 + place / 100, "stuffer", "buy", 90.0, 1)
        exchange.act(90.005 + place / 100, number, "cancel", "stuffer", "buy", 90.0, 1)
    layers = [exchange.order(100 + place / 10, "layerer", "sell", 110.0 + place, 1) for place in range(4)]
    wanted = exchange.order(101.0, "layerer", "buy", 100.0, 1)
    exchange.act(101.5, wanted, "fill", "layerer", "buy", 100.0, 1)
    for place, number in enumerate(layers):
        exchange.act(102 + place / 10, number, "cancel", "layerer", "sell", 110.0 + place, 1)
    exchange.order(110.0, "runner", "buy", 100.0, 2, firm="House & Co", capacity="house")
    exchange.order(111.0, "client", "buy", 100.0, 500, firm="House & Co")
    exchange.order(130.0, "honest", "buy", 100.0, 2, firm="Other", capacity="house")
    exchange.order(131.0, "client", "sell", 100.0, 500, firm="Other")
    # A payload that is no trade.
    exchange.log.append([RecordedRun("/swx/trades", 2, 1, 1, 1, NINE, NINE, [b"\xc1garbage"])])
    exchange.log.close()
