"""Histories of several clocks: reordered as far as causes need, and no further."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from planted.history import History
from planted.thorough import thorough
from vivum.checkers.checker import message_of
from vivum.checkers.clocks import in_causal_order
from vivum.observe.trace import MessageDelivered, MessageSent, TraceRecord

MINUTE = 60_000_000_000


def _chain() -> History:
    """1 tells 2, who tells 3, who tells 1."""
    history = History()
    for sender, receiver in (("1.1", "2.1"), ("2.1", "3.1"), ("3.1", "1.1")):
        history.send(sender, 1)
        history.deliver(receiver, sender, 1)
    return history


def test_an_order_that_is_possible_is_left_as_it_is() -> None:
    records = _chain().records
    assert list(in_causal_order(records)) == records


def test_a_chain_seen_backwards_is_turned_round() -> None:
    # By clocks that differ by a minute a node, everything seems to happen at 3 first and at 1 last.
    records = [replace(each, time_ns=each.time_ns - each.node * MINUTE) for each in _chain().records]
    by_clock = sorted(records, key=lambda record: record.time_ns)
    assert [each.node for each in by_clock] == [3, 3, 2, 2, 1, 1]
    assert list(in_causal_order(by_clock)) == records


def test_records_that_waited_come_as_soon_as_their_send_does() -> None:
    history = History()
    early = history.deliver("2.1", "1.1", 1)
    sent = history.send("1.1", 1)
    after = history.join("3.1")
    assert list(in_causal_order(history.records)) == [sent, early, after]


def test_what_was_never_sent_comes_at_the_end_and_nothing_is_dropped() -> None:
    history = History()
    invented = history.deliver("2.1", "9.1", 1)
    behind = history.send("2.1", 1)
    waiting = history.deliver("3.1", "2.1", 1)
    other = history.send("4.1", 1)
    assert list(in_causal_order(history.records)) == [other, invented, behind, waiting]


def test_lives_that_wait_for_each_other_are_released() -> None:
    history = History()
    for life, other in (("1.1", "2.1"), ("2.1", "1.1")):
        history.deliver(life, other, 1)
        history.send(life, 1)
    assert sorted(in_causal_order(history.records), key=lambda record: record.time_ns) == history.records


@st.composite
def skewed(draw: st.DrawFn) -> list[TraceRecord]:
    """A possible history of three nodes, as it looks by clocks that are off by up to its whole length."""
    history = History()
    sent: list[tuple[str, int]] = []
    for deliver in draw(st.lists(st.booleans(), max_size=20)):
        life = draw(st.sampled_from(["1.1", "2.1", "3.1"]))
        if deliver and sent:
            history.deliver(life, *draw(st.sampled_from(sent)))
        else:
            sent.append((life, len(sent)))
            history.send(life, len(sent) - 1)
    off = [0, *(draw(st.integers(-20_000, 20_000)) for _ in range(3))]
    records = [replace(each, time_ns=each.time_ns + off[each.node]) for each in history.records]
    return sorted(records, key=lambda record: record.time_ns)


@pytest.mark.slow
@thorough
@given(skewed())
def test_every_delivery_comes_behind_its_send_and_every_life_keeps_its_order(
    records: list[TraceRecord],
) -> None:
    ordered = list(in_causal_order(records))
    sent = set()
    for record in ordered:
        if isinstance(record, MessageSent):
            sent.add(message_of(record))
        elif isinstance(record, MessageDelivered):
            assert message_of(record) in sent
    for node in (1, 2, 3):
        assert [each for each in ordered if each.node == node] == [each for each in records if each.node == node]
    assert len(ordered) == len(records)
