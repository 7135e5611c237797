"""The linearizability of a key, by planted histories and by trying all orders."""

import time
from itertools import permutations
from random import Random

import pytest

from vivum.checkers.kv.register import (
    ABSENT,
    DELETE,
    GET,
    LINEARIZABLE,
    PUT,
    SWAP,
    RegisterOperation,
    judge_register,
)


def put(value: int, called: int, answered: int | None) -> RegisterOperation:
    return RegisterOperation(PUT, called, answered, value)


def get(seen: int, called: int, answered: int | None) -> RegisterOperation:
    return RegisterOperation(GET, called, answered, seen=seen)


def swap(
    expected: int, value: int, called: int, answered: int | None, *, found: int | None = None
) -> RegisterOperation:
    failed = found is not None
    return RegisterOperation(SWAP, called, answered, value, expected, found or ABSENT, not failed)


def delete(called: int, answered: int | None) -> RegisterOperation:
    return RegisterOperation(DELETE, called, answered)


GOOD = {
    "one after the other": [put(1, 0, 1), get(1, 2, 3), delete(4, 5), get(ABSENT, 6, 7)],
    "a read beside a write sees what was before": [put(1, 0, 1), put(2, 2, 9), get(1, 3, 4), get(2, 5, 6)],
    "an unanswered write takes effect late": [put(1, 0, 1), put(2, 2, None), get(1, 3, 4), get(1, 5, 6), get(2, 7, 8)],
    "an unanswered write never takes effect": [put(1, 0, 1), put(2, 2, None), get(1, 3, 4)],
    "an unanswered swap that had to work": [put(1, 0, 1), swap(1, 2, 2, None), get(2, 3, 4)],
    "an unanswered swap that had to fail": [put(1, 0, 1), swap(7, 2, 2, None), get(1, 3, 4)],
    "an unanswered delete": [put(1, 0, 1), delete(2, None), get(1, 3, 4), get(ABSENT, 5, 6)],
    "of two swaps one fails": [put(1, 0, 1), swap(1, 2, 2, 6), swap(1, 3, 3, 7, found=2), get(2, 8, 9)],
    "a swap that creates": [swap(ABSENT, 1, 0, 1), swap(ABSENT, 2, 2, 3, found=1)],
    "equal times overlap": [put(1, 0, 5), get(ABSENT, 5, 5)],
}
BAD = {
    "a stale read": [put(1, 0, 1), put(2, 2, 3), get(1, 4, 5)],
    "a stale read behind a fresh one": [put(1, 0, 1), put(2, 2, 9), get(2, 3, 4), get(1, 5, 6)],
    "a lost update": [put(1, 0, 1), swap(1, 2, 2, 3), swap(1, 3, 4, 5), get(3, 6, 7)],
    "a write that was answered and is gone": [put(1, 0, 1), get(ABSENT, 2, 3)],
    "a compare-and-set that ran twice": [
        put(1, 0, 1),
        swap(1, 2, 2, 3),
        put(3, 4, 5),
        swap(3, 1, 6, 7),
        get(1, 8, 9),
        get(2, 10, 11),
    ],
    "a value from nowhere": [put(1, 0, 1), get(9, 2, 3)],
    "a value from the future": [get(1, 0, 1), put(1, 2, 3)],
    "a value of a compare-and-set that failed": [put(1, 0, 1), swap(5, 2, 2, 3, found=1), get(2, 4, 5)],
    "a compare-and-set that failed though it found what it expected": [put(1, 0, 1), swap(1, 2, 2, 3, found=1)],
    "an unanswered write that takes effect twice": [
        put(1, 0, 1),
        put(2, 2, None),
        get(2, 3, 4),
        put(3, 5, 6),
        get(2, 7, 8),
    ],
    "an unanswered write before its call": [put(1, 0, 1), get(2, 2, 3), put(2, 4, None)],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_history_that_some_order_explains_is_linearizable(name: str) -> None:
    assert judge_register(GOOD[name]) == LINEARIZABLE


@pytest.mark.parametrize("name", BAD)
def test_a_planted_violation_is_caught_and_told(name: str) -> None:
    verdict = judge_register(BAD[name])
    assert verdict.what
    assert verdict.operations


def by_all_orders(history: list[RegisterOperation]) -> bool:
    """Try every order of every choice of unanswered operations."""
    answered = [each for each in history if each.answered is not None]
    pending = [each for each in history if each.answered is None]
    for chosen in range(1 << len(pending)):
        taken = answered + [each for at, each in enumerate(pending) if chosen >> at & 1]
        if any(_explains(order) for order in permutations(taken)):
            return True
    return False


def _explains(order: tuple[RegisterOperation, ...]) -> bool:
    value = ABSENT
    for at, each in enumerate(order):
        if any(later.answered is not None and later.answered < each.called for later in order[at + 1 :]):
            return False
        if each.kind == PUT:
            value = each.value
        elif each.kind == DELETE:
            value = ABSENT
        elif each.kind == GET:
            if each.answered is not None and each.seen != value:
                return False
        elif each.answered is None:
            value = each.value if each.expected == value else value
        elif each.succeeded:
            if each.expected != value:
                return False
            value = each.value
        elif each.seen != value or each.expected == value:
            return False
    return True


def random_history(rng: Random, size: int) -> list[RegisterOperation]:
    times = rng.sample(range(100), 2 * size)
    found = []
    for at in range(size):
        called, answered = sorted(times[2 * at : 2 * at + 2])
        end = None if rng.random() < 0.3 else answered
        value, other = at + 1, rng.randint(0, size)
        match rng.choice([GET, GET, PUT, PUT, SWAP, DELETE]):
            case "get":
                found.append(get(other, called, end))
            case "put":
                found.append(put(value, called, end))
            case "delete":
                found.append(delete(called, end))
            case _:
                failed = end is not None and rng.random() < 0.5
                found.append(swap(other, value, called, end, found=rng.randint(0, size) if failed else None))
    return found


def test_small_histories_are_judged_as_by_trying_all_orders() -> None:
    rng, good = Random(1), 0
    for _ in range(1500):
        history = random_history(rng, rng.randint(1, 5))
        expected = by_all_orders(history)
        assert (judge_register(history) == LINEARIZABLE) == expected, history
        good += expected
    assert 300 < good < 1200


def real_history(rng: Random, count: int, clients: int, lost: float) -> list[RegisterOperation]:
    """Run operations on a register, each at a moment between its call and its answer; some answers get lost."""
    free = [0] * clients
    moments: list[tuple[int, int, int, int, int]] = []
    for number in range(1, count + 1):
        client = rng.randrange(clients)
        called = free[client] + rng.randint(1, 20)
        answered = called + rng.randint(2, 40)
        free[client] = answered
        moments.append((rng.randint(called, answered), number, called, answered, rng.randrange(4)))
    value, found = ABSENT, []
    for _, number, called, answered, kind in sorted(moments):
        end = None if rng.random() < lost else answered
        if kind == 0:
            found.append(get(value, called, end))
        elif kind == 1:
            found.append(put(number, called, end))
            value = number
        elif kind == 2 or value == ABSENT:
            expected = value if rng.random() < 0.5 else number + 1_000_000
            found.append(swap(expected, number, called, end, found=None if expected == value else value))
            value = number if expected == value else value
        else:
            found.append(delete(called, end))
            value = ABSENT
    return found


def test_thousands_of_operations_of_one_key_are_judged_quickly() -> None:
    history = real_history(Random(2), 5000, 8, 0.02)
    began = time.process_time()
    assert judge_register(history) == LINEARIZABLE
    assert time.process_time() - began < 5


@pytest.mark.parametrize("seed", range(5))
def test_one_stale_read_among_thousands_is_found(seed: int) -> None:
    history = real_history(Random(seed), 1000, 4, 0.01)
    last = max(each.answered for each in history if each.answered is not None)
    first = next(each for each in history if each.kind == PUT and each.answered is not None)
    after = [put(1_000_000, last + 1, last + 2), get(first.value, last + 3, last + 4)]
    assert judge_register([*history, *after]).what


def test_a_history_that_cannot_be_decided_says_so() -> None:
    assert "not decided" in judge_register(GOOD["one after the other"], steps_max=2).what
