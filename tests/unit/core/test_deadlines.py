"""Deadlines against an oracle that looks at all of them every time."""

from hypothesis import given, settings
from hypothesis import strategies as st

from vivum.core.deadlines import Deadlines

KEYS = st.integers(0, 5)
TIMES = st.integers(0, 20)
DETERMINISTIC = settings(derandomize=True, database=None, deadline=None)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, TIMES),
        st.tuples(st.just("set_earlier"), KEYS, TIMES),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("take"), st.just(0), TIMES),
    ),
    max_size=200,
)


class Oracle:
    """A dictionary of times, with the order of setting."""

    def __init__(self) -> None:
        self.times: dict[int, tuple[int, int]] = {}
        self.order = 0

    def set(self, key: int, at_ns: int) -> None:
        self.order += 1
        self.times[key] = (at_ns, self.order)

    def set_earlier(self, key: int, at_ns: int) -> None:
        if key not in self.times or at_ns < self.times[key][0]:
            self.set(key, at_ns)

    def cancel(self, key: int) -> None:
        self.times.pop(key, None)

    def take(self, now_ns: int) -> list[int]:
        due = sorted((when, key) for key, when in self.times.items() if when[0] <= now_ns)
        for _, key in due:
            del self.times[key]
        return [key for _, key in due]

    def next_ns(self) -> int | None:
        return min((at_ns for at_ns, _ in self.times.values()), default=None)


@DETERMINISTIC
@given(ACTIONS)
def test_deadlines_do_what_a_dumb_dictionary_does(actions: list[tuple[str, int, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    oracle = Oracle()
    for action, key, at_ns in actions:
        match action:
            case "set":
                deadlines.set(key, at_ns)
                oracle.set(key, at_ns)
            case "set_earlier":
                deadlines.set_earlier(key, at_ns)
                oracle.set_earlier(key, at_ns)
            case "cancel":
                deadlines.cancel(key)
                oracle.cancel(key)
            case _:
                assert list(deadlines.take_due(at_ns)) == oracle.take(at_ns)
        assert deadlines.next_ns() == oracle.next_ns()
        assert len(deadlines) == len(oracle.times)
        for each in range(6):
            assert (each in deadlines) == (each in oracle.times)
            assert deadlines.get(each) == (oracle.times[each][0] if each in oracle.times else None)


def test_a_key_that_is_moved_for_ever_does_not_fill_the_heap() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for at_ns in range(10_000):
        deadlines.set("ack", at_ns)
    assert len(deadlines._heap) <= 64 + 4 + 1
    assert deadlines.next_ns() == 9_999


def test_a_key_that_is_set_again_while_due_ones_are_taken_comes_again() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 1)
    taken = []
    for key in deadlines.take_due(5):
        taken.append(key)
        if len(taken) < 3:
            deadlines.set("a", 4)
    assert taken == ["a", "a", "a"]
    assert deadlines.next_ns() is None


def test_a_key_cancelled_while_due_ones_are_taken_does_not_come() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 1)
    deadlines.set("b", 2)
    taken = []
    for key in deadlines.take_due(5):
        taken.append(key)
        deadlines.cancel("b")
    assert taken == ["a"]
