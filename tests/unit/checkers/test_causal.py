"""Causal order: what a past is made of, what a joiner is excused, and a dumb oracle."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planted.history import History
from planted.judged import check_history
from planted.thorough import thorough
from vivum.checkers.checker import message_of
from vivum.observe.trace import GroupJoined, MessageDelivered, MessageSent, TraceRecord


def _witnesses(history: History) -> list[tuple[TraceRecord, ...]]:
    return [each.witnesses for each in check_history(history.records, ["causal"])]


def test_own_sends_in_other_groups_are_in_the_past() -> None:
    history = History()
    history.send("1.1", 1, group=1)
    history.send("1.1", 1, group=2)
    later = history.deliver("2.1", "1.1", 1, group=2)
    earlier = history.deliver("2.1", "1.1", 1, group=1)
    assert _witnesses(history) == [(later, earlier)]


def test_messages_sent_without_knowledge_of_each_other_may_come_in_any_order() -> None:
    history = History()
    history.send("1.1", 1)
    history.send("2.1", 1)
    history.deliver("3.1", "2.1", 1)
    history.deliver("3.1", "1.1", 1)
    history.deliver("4.1", "1.1", 1)
    history.deliver("4.1", "2.1", 1)
    assert _witnesses(history) == []


def test_a_sender_may_deliver_its_own_messages_after_sending_more() -> None:
    history = History()
    for sequence in (1, 2, 3):
        history.send("1.1", sequence)
    for sequence in (1, 2, 3):
        history.deliver("1.1", "1.1", sequence)
    assert _witnesses(history) == []


def test_an_answer_delivered_before_ones_own_question_is_a_violation() -> None:
    history = History()
    history.send("1.1", 1)
    history.deliver("2.1", "1.1", 1)
    history.send("2.1", 1)
    answer = history.deliver("1.1", "2.1", 1)
    question = history.deliver("1.1", "1.1", 1)
    assert _witnesses(history) == [(answer, question)]


def test_what_a_dead_life_knew_is_not_known_to_the_next_one() -> None:
    history = History()
    history.send("1.1", 1)
    history.deliver("2.1", "1.1", 1)
    history.stop("2.1")
    history.start("2.2")
    history.send("2.2", 1)
    history.deliver("3.1", "2.2", 1)
    history.deliver("3.1", "1.1", 1)
    assert _witnesses(history) == []


def test_a_joiner_may_be_given_what_was_in_its_past_before_it_joined() -> None:
    history = History()
    history.join("3.1", 2)
    history.send("1.1", 1, group=1)
    history.send("1.1", 1, group=2)
    history.deliver("3.1", "1.1", 1, group=2)
    history.join("3.1", 1)
    history.deliver("3.1", "1.1", 1, group=1)
    assert _witnesses(history) == []
    # But what enters its past after it joined is barred.
    history.send("1.1", 2, group=1)
    history.send("1.1", 2, group=2)
    later = history.deliver("3.1", "1.1", 2, group=2)
    earlier = history.deliver("3.1", "1.1", 2, group=1)
    assert _witnesses(history) == [(later, earlier)]


def test_each_stay_is_excused_by_what_was_known_when_it_began() -> None:
    history = History()
    for round_ in (1, 2):
        history.send("1.1", round_, group=1)
        history.send("1.1", round_, group=2)
        history.deliver("3.1", "1.1", round_, group=2)
        history.join("3.1", 1)
        history.deliver("3.1", "1.1", round_, group=1)
    assert _witnesses(history) == []


def test_deliveries_of_what_was_never_sent_are_left_to_no_creation() -> None:
    history = History()
    history.deliver("2.1", "1.1", 2)
    history.deliver("2.1", "1.1", 1)
    assert _witnesses(history) == []


def _oracle(records: list[TraceRecord]) -> set[int]:
    """Give the places of late deliveries, from pasts as plain sets of messages."""
    known: dict[tuple[int, int], set[tuple[int, ...]]] = defaultdict(set)
    past: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    barred: dict[tuple[int, int], set[tuple[int, ...]]] = defaultdict(set)
    excused: dict[tuple[int, int, int], set[tuple[int, ...]]] = defaultdict(set)
    late = set()
    for place, record in enumerate(records):
        life = (record.node, record.incarnation)
        if isinstance(record, GroupJoined):
            excused[*life, record.group] = set(barred[life])
        elif isinstance(record, MessageSent):
            past[message_of(record)] = set(known[life])
            known[life].add(message_of(record))
        elif isinstance(record, MessageDelivered):
            message = message_of(record)
            if message in barred[life] - excused[*life, record.group]:
                late.add(place)
            barred[life] |= past[message]
            known[life] |= past[message] | {message}
    return late


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Random sends, deliveries of anything sent, in any order, and joins, of three nodes in two groups."""
    history = History()
    sent: list[tuple[str, int, int]] = []
    lives = st.sampled_from(["1.1", "2.1", "3.1"])
    for step in draw(st.lists(st.integers(0, 9), max_size=25)):
        life = draw(lives)
        if step == 0:
            history.join(life, draw(st.integers(1, 2)))
        elif step <= 3 or not sent:
            group = draw(st.integers(1, 2))
            sequence = 1 + sum(each[:2] == (life, group) for each in sent)
            sent.append((life, group, sequence))
            history.send(life, sequence, group=group)
        else:
            sender, group, sequence = draw(st.sampled_from(sent))
            history.deliver(life, sender, sequence, group=group)
    return history


@pytest.mark.slow
@thorough
@given(histories())
def test_causal_agrees_with_a_dumb_oracle(history: History) -> None:
    late = [history.records[place] for place in sorted(_oracle(history.records))]
    found = check_history(history.records, ["causal"])
    assert [each.witnesses[1] for each in found] == late[:20]
    for violation in found:
        dependent, delivered = violation.witnesses
        assert dependent.time_ns < delivered.time_ns
        assert (dependent.node, dependent.incarnation) == (delivered.node, delivered.incarnation)
