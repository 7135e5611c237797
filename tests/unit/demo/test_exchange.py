"""The market of the demo: what it plants, and that one seed decides it."""

from random import Random

import pytest

from vivum.demo.exchange import PATTERNS, Exchange, MarketMessage, symbols
from vivum.demo.topics import ORDERS, QUOTES, TRADES, topic_of
from vivum.pipeline.market_messages import MarketOrder, MarketQuote, MarketTrade


def day(seed: int, seconds: int = 30) -> tuple[Exchange, list[MarketMessage]]:
    exchange = Exchange(1, symbols(40), 200.0, Random(seed))
    messages: list[MarketMessage] = []
    now_s = 0.0
    while now_s < seconds or not exchange.is_settled:
        messages += exchange.step(now_s, closing=now_s >= seconds)
        now_s += 0.1
    return exchange, messages


def test_one_seed_decides_the_whole_day():
    assert day(7)[1] == day(7)[1]
    assert day(7)[1] != day(8)[1]


def test_every_pattern_and_every_decoy_is_planted_each_in_a_symbol_of_its_own():
    exchange, _ = day(1)
    assert {each.pattern for each in exchange.planted} == set(PATTERNS)
    assert {each.pattern for each in exchange.decoys} == set(PATTERNS)
    every = [each.symbol for each in exchange.planted + exchange.decoys]
    assert len(every) == len(set(every))


def test_a_closing_market_begins_nothing_and_ends_what_was_begun():
    exchange, messages = day(3, seconds=10)
    begun = {each.order_id for each in messages if isinstance(each, MarketOrder) and each.action == "enter"}
    ended = {each.order_id for each in messages if isinstance(each, MarketOrder) and each.action != "enter"}
    clients = {each.order_id for each in messages if isinstance(each, MarketOrder) and "Firm" in each.firm}
    assert ended <= begun <= clients
    # Only the orders of house and client around a front running stay open.
    assert len(begun - ended) == 2 * sum(each.pattern == "front_running" for each in exchange.planted + exchange.decoys)
    planted = len(exchange.planted)
    assert exchange.step(100.0, closing=True) == []
    assert len(exchange.planted) == planted


def test_the_rate_is_kept():
    _, messages = day(2, seconds=20)
    assert len(messages) == pytest.approx(200 * 20, rel=0.15)


def test_symbols_are_all_different_and_always_the_same():
    assert len(set(symbols(500))) == 500
    assert symbols(500) == symbols(500)


def test_each_kind_of_message_has_its_topic():
    assert topic_of(MarketQuote("ABCD", 1.0, 2.0)) == f"{QUOTES}/ABCD"
    assert topic_of(MarketTrade("ABCD", 1.0, 1, "a", "b")) == TRADES
    assert topic_of(MarketOrder(1, "ABCD", "t", "f", "client", "buy", "enter", 1.0, 1)) == ORDERS
