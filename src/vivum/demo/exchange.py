"""A market that never was: quotes, orders and trades of an exchange, with forbidden patterns planted among them.

One `Exchange` makes the messages of some symbols, step by step; one seed decides all of it. What is planted is written
down (`planted`), so that what the surveillance finds can be compared with what is really there. Decoys look like the
patterns but break no rule: a surveillance that reports them is wrong.

Knows neither topics nor time: `step` is told how far the market has come.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from vivum.pipeline.market_messages import MarketOrder, MarketQuote, MarketTrade

MarketMessage = MarketQuote | MarketOrder | MarketTrade

PATTERNS = ("wash_trade", "quote_stuffing", "layering", "front_running")

PLANT_EVERY_S = 2.0
"""Time between two plantings of one exchange: each pattern and each decoy in turn."""

FIRMS, TRADERS_PER_FIRM = 20, 4
STUFFED = 60
"""Orders of one flood: three times what the surveillance allows in a second, sent at once."""

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Planting:
    """A forbidden pattern that is in the feed: which, in which symbol, by whom."""

    pattern: str
    symbol: str
    who: str


def symbols(count: int) -> list[str]:
    """Make up names of symbols, all different, the same in every run."""
    rng = Random(count)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(_LETTERS, k=4))] = None
    return list(found)


class Exchange:
    """The market of some symbols. `number` tells several exchanges apart: traders and orders have it in their names."""

    def __init__(self, number: int, names: list[str], rate: float, rng: Random) -> None:
        """Open. `rate` is how many messages a second there are in all, not counting what is planted."""
        self.planted: list[Planting] = []
        self.decoys: list[Planting] = []
        self._number = number
        self._rng = rng
        self._names = names
        self._rate = rate
        self._prices = {name: rng.uniform(20.0, 400.0) for name in names}
        self._orders = number * 1_000_000_000
        self._owed = 0.0
        self._now_s = 0.0
        self._next_plant_s = 0.5
        self._plants = 0
        self._culprits = 0
        self._later: list[tuple[float, list[MarketMessage]]] = []
        # A symbol holds one planting at a time, so that two of them never make a third.
        self._free = list(names)
        rng.shuffle(self._free)
        self._acts: list[Callable[[str], None]] = [
            self._wash, self._stuff, self._layer, self._run_ahead, self._round_trip,
            self._decoy_wash, self._decoy_maker, self._decoy_layers, self._decoy_ahead,
        ]  # fmt: skip

    def step(self, now_s: float, *, closing: bool = False) -> list[MarketMessage]:
        """Go on to a time, in seconds since the opening; return what happened since the last step, in order.

        When the market is closing nothing new begins, and what was begun goes on until `is_settled`.
        """
        made: list[MarketMessage] = []
        self._owed += 0.0 if closing else (now_s - self._now_s) * self._rate
        self._now_s = now_s
        while self._owed >= 1.0:
            happened = self._happen()
            made += happened
            self._owed -= len(happened)
        if not closing and now_s >= self._next_plant_s and self._free:
            self._next_plant_s += PLANT_EVERY_S
            self._acts[self._plants % len(self._acts)](self._free.pop())
            self._plants += 1
        due = [messages for at_s, messages in self._later if at_s <= now_s]
        self._later = [each for each in self._later if each[0] > now_s]
        for messages in due:
            made += messages
        return made

    @property
    def is_settled(self) -> bool:
        """Whether nothing that was begun is still to come."""
        return not self._later

    # What honest people do.

    def _happen(self) -> list[MarketMessage]:
        rng = self._rng
        name = rng.choice(self._names)
        price = self._move(name)
        draw = rng.random()
        if draw < 0.8:
            half = price * rng.uniform(0.0002, 0.001)
            return [MarketQuote(name, round(price - half, 2), round(price + half, 2), rng.randrange(100, 2000, 100))]
        size = rng.randrange(100, 3000)
        buyer, seller = rng.sample(range(FIRMS * TRADERS_PER_FIRM), 2)
        number, price = self._order_number(), round(price, 2)
        bid = self._order(number, name, self._trader(buyer), "client", "buy", "enter", price, size)
        if draw < 0.86:
            self._after(rng.uniform(1.0, 4.0), [self._with(bid, "cancel")])
            return [bid]
        return [
            bid,
            self._with(bid, "fill"),
            MarketTrade(name, price, size, self._trader(buyer), self._trader(seller)),
        ]

    def _move(self, name: str) -> float:
        price = self._prices[name] = max(1.0, self._prices[name] * (1.0 + self._rng.gauss(0.0, 0.0005)))
        return price

    # What is forbidden.

    def _plant(self, pattern: str, name: str, who: str) -> None:
        self.planted.append(Planting(pattern, name, who))

    def _wash(self, name: str) -> None:
        who = self._culprit("washer")
        self._plant("wash_trade", name, who)
        self._after(0.0, [MarketTrade(name, self._price(name), 777, who, who)])

    def _round_trip(self, name: str) -> None:
        left, right = self._culprit("left"), self._culprit("right")
        self._plant("wash_trade", name, f"{left} and {right}")
        price = self._price(name)
        self._after(0.0, [MarketTrade(name, price, 4321, left, right)])
        self._after(1.0, [MarketTrade(name, price, 4321, right, left)])

    def _stuff(self, name: str) -> None:
        who, price = self._culprit("stuffer"), self._price(name)
        self._plant("quote_stuffing", name, who)
        flood: list[MarketMessage] = []
        for _ in range(STUFFED):
            order = self._order(self._order_number(), name, who, "client", "buy", "enter", price, 100)
            flood += [order, self._with(order, "cancel")]
        self._after(0.0, flood)

    def _layer(self, name: str) -> None:
        who = self._culprit("layerer")
        self._plant("layering", name, who)
        layers = self._layers(name, who, 5)
        wanted = self._order(self._order_number(), name, who, "client", "buy", "enter", self._price(name), 200)
        self._after(0.5, [wanted, self._with(wanted, "fill")])
        self._after(1.0, [self._with(each, "cancel") for each in layers])

    def _run_ahead(self, name: str) -> None:
        who = self._culprit("runner")
        self._plant("front_running", name, who)
        self._ahead(name, who, house_at_s=0.0, client_at_s=0.8)

    # What only looks like it.

    def _decoy(self, pattern: str, name: str, who: str) -> None:
        self.decoys.append(Planting(pattern, name, who))

    def _decoy_wash(self, name: str) -> None:
        """They trade back and forth, but never the same size."""
        left, right = self._culprit("partner"), self._culprit("partner")
        self._decoy("wash_trade", name, f"{left} and {right}")
        price = self._price(name)
        self._after(0.0, [MarketTrade(name, price, 4000, left, right)])
        self._after(1.0, [MarketTrade(name, price, 1000, right, left)])

    def _decoy_maker(self, name: str) -> None:
        """As many orders as a flood has, but half of them are filled."""
        who, price = self._culprit("maker"), self._price(name)
        self._decoy("quote_stuffing", name, who)
        made: list[MarketMessage] = []
        for place in range(STUFFED):
            order = self._order(self._order_number(), name, who, "client", "buy", "enter", price, 100)
            made += [order, self._with(order, "fill" if place % 2 else "cancel")]
        self._after(0.0, made)

    def _decoy_layers(self, name: str) -> None:
        """Several prices on one side, taken away again, and never a trade on the other."""
        who = self._culprit("quoter")
        self._decoy("layering", name, who)
        layers = self._layers(name, who, 5)
        self._after(1.0, [self._with(each, "cancel") for each in layers])

    def _decoy_ahead(self, name: str) -> None:
        """The client goes first, and the house follows."""
        who = self._culprit("follower")
        self._decoy("front_running", name, who)
        self._ahead(name, who, house_at_s=0.8, client_at_s=0.0)

    # Parts.

    def _layers(self, name: str, who: str, count: int) -> list[MarketOrder]:
        price = self._price(name)
        layers = [
            self._order(self._order_number(), name, who, "client", "sell", "enter", round(price + 0.1 * place, 2), 900)
            for place in range(1, count + 1)
        ]
        self._after(0.0, list(layers))
        return layers

    def _ahead(self, name: str, who: str, *, house_at_s: float, client_at_s: float) -> None:
        price, firm = self._price(name), f"Firm {who}"
        house = MarketOrder(self._order_number(), name, who, firm, "house", "buy", "enter", price, 100)
        client = MarketOrder(self._order_number(), name, f"client-{who}", firm, "client", "buy", "enter", price, 90_000)
        self._after(house_at_s, [house])
        self._after(client_at_s, [client])

    def _after(self, delay_s: float, messages: list[MarketMessage]) -> None:
        self._later.append((self._now_s + delay_s, messages))

    def _price(self, name: str) -> float:
        return round(self._prices[name], 2)

    def _trader(self, index: int) -> str:
        return f"t{self._number}-{index}"

    def _culprit(self, what: str) -> str:
        self._culprits += 1
        return f"{what}-{self._number}-{self._culprits}"

    def _order_number(self) -> int:
        self._orders += 1
        return self._orders

    def _order(
        self, number: int, name: str, trader: str, capacity: str, side: str, action: str, price: float, size: int
    ) -> MarketOrder:
        firm = f"Firm {trader.rpartition('-')[0]}"
        return MarketOrder(number, name, trader, firm, capacity, side, action, price, size)

    @staticmethod
    def _with(order: MarketOrder, action: str) -> MarketOrder:
        return MarketOrder(
            order.order_id, order.symbol, order.trader, order.firm, order.capacity, order.side, action, order.price,
            order.size,
        )  # fmt: skip
