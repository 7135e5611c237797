"""Many timers behind one deadline: moved, cancelled, and taken out in a repeatable order."""

from hypothesis import given
from hypothesis import strategies as st

from planted.thorough import thorough
from vivum.core.deadlines import Deadlines


def test_the_earliest_is_told_and_moving_it_counts() -> None:
    deadlines: Deadlines[str] = Deadlines()
    assert deadlines.next_ns() is None
    deadlines.set("a", 10)
    deadlines.set("b", 5)
    assert deadlines.next_ns() == 5
    deadlines.set("b", 20)
    assert deadlines.next_ns() == 10
    assert deadlines.get("b") == 20
    assert len(deadlines) == 2


def test_set_earlier_never_moves_later() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set_earlier("a", 10)
    deadlines.set_earlier("a", 20)
    assert deadlines.get("a") == 10
    deadlines.set_earlier("a", 5)
    assert deadlines.get("a") == 5


def test_what_was_cancelled_is_not_due() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.cancel("a")
    deadlines.cancel("never set")
    assert "a" not in deadlines
    assert list(deadlines.take_due(100)) == []


def test_keys_due_together_come_by_time_then_in_the_order_of_setting() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, at_ns in (("late", 9), ("b", 5), ("a", 5), ("moved", 1), ("future", 11)):
        deadlines.set(key, at_ns)
    deadlines.set("moved", 5)
    assert list(deadlines.take_due(10)) == ["b", "a", "moved", "late"]
    assert list(deadlines.take_due(10)) == []
    assert "future" in deadlines


def test_a_key_set_anew_while_taking_comes_again_if_it_is_due() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 1)
    taken = []
    for key in deadlines.take_due(10):
        taken.append(key)
        if len(taken) < 3:
            deadlines.set(key, 5)
        else:
            deadlines.set(key, 11)
    assert taken == ["a", "a", "a"]
    assert deadlines.next_ns() == 11


def test_moving_one_deadline_for_ever_does_not_grow_the_heap() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for at_ns in range(10_000):
        deadlines.set("a", at_ns)
    assert len(deadlines._heap) <= 64 + 4
    assert list(deadlines.take_due(10_000)) == ["a"]


@thorough
@given(st.lists(st.tuples(st.sampled_from(["set", "earlier", "cancel", "take"]), st.integers(0, 4), st.integers(0, 9))))
def test_deadlines_agree_with_a_plain_dictionary(steps: list[tuple[str, int, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    plain: dict[int, tuple[int, int]] = {}
    for count, (step, key, at_ns) in enumerate(steps):
        if step == "take":
            due = sorted((when, each) for each, when in plain.items() if when[0] <= at_ns)
            assert list(deadlines.take_due(at_ns)) == [each for _, each in due]
            for _, each in due:
                del plain[each]
        elif step == "cancel":
            deadlines.cancel(key)
            plain.pop(key, None)
        elif step == "set":
            deadlines.set(key, at_ns)
            plain[key] = (at_ns, count)
        else:
            deadlines.set_earlier(key, at_ns)
            if key not in plain or at_ns < plain[key][0]:
                plain[key] = (at_ns, count)
        assert deadlines.next_ns() == min((when[0] for when in plain.values()), default=None)
        assert len(deadlines) == len(plain)
