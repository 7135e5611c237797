"""Linearizability of one key: is there an order of its operations that explains every answer?

Each operation must take effect at one moment between its call and its answer; one that was never answered at any
moment after its call, or not at all. After Wing and Gong 1993 with the memory of Lowe 2017 (and Porcupine): a
depth-first search over the operations that may come next, which never tries the same set of operations with the same
value twice. Keys are judged one by one: a history is linearizable if those of all keys are (Herlihy and Wing 1990).

Values must be told apart: every write has its own. Knows nothing of the store; revisions are not looked at.
"""

from collections.abc import Iterable
from typing import NamedTuple

ABSENT = 0
"""The value of a key that is not there."""

STEPS_MAX = 500_000
"""Steps of the search, a few seconds. Past it a history is not decided, which is reported as a violation."""

GET, PUT, DELETE, SWAP = "get", "put", "delete", "swap"


class RegisterOperation(NamedTuple):
    """One operation on a key, with the times of its call and of its answer (None: it was never answered).

    A swap is a compare-and-set: it `succeeded` if the key had the value `expected`. `seen` is what a get found, or a
    swap that failed.
    """

    kind: str
    called: int
    answered: int | None
    value: int = ABSENT
    expected: int = ABSENT
    seen: int = ABSENT
    succeeded: bool = True


class RegisterVerdict(NamedTuple):
    """What is wrong, and the operations that show it; or nothing."""

    what: str
    operations: tuple[RegisterOperation, ...] = ()


LINEARIZABLE = RegisterVerdict("")


def judge_register(history: Iterable[RegisterOperation], steps_max: int = STEPS_MAX) -> RegisterVerdict:
    """Judge the history of one key. Times must differ, or be those of operations that overlap."""
    every = sorted(history, key=lambda each: each.called)
    fault = _value_from_nowhere(every)
    return fault if fault is not None else _search(_without_idle(every), steps_max)


def _value_from_nowhere(history: list[RegisterOperation]) -> RegisterVerdict | None:
    """Find an answer with a value that nobody had begun to write: no search is needed for that, and it says more."""
    written = {each.value: each for each in history if each.kind in (PUT, SWAP)}
    for each in history:
        if each.answered is None or not _looks(each):
            continue
        seen = each.expected if each.kind == SWAP and each.succeeded else each.seen
        if seen == ABSENT:
            continue
        writer = written.get(seen)
        if writer is None:
            return RegisterVerdict(f"{_words(each)}, which nobody wrote", (each,))
        if writer.called > each.answered:
            return RegisterVerdict(f"{_words(each)}, which was written later", (writer, each))
        if writer.kind == SWAP and writer.answered is not None and not writer.succeeded:
            return RegisterVerdict(f"{_words(each)}, of a compare-and-set that was told to have failed", (writer, each))
    return None


def _looks(operation: RegisterOperation) -> bool:
    return operation.kind in (GET, SWAP)


def _without_idle(history: list[RegisterOperation]) -> list[RegisterOperation]:
    """Leave out what explains nothing: unanswered reads, and unanswered writes of values that nobody saw.

    If an order explains the rest with such a write in it, it does so without: whoever looked between it and the next
    write would have seen its value, and a failed compare-and-set tells what it found.
    """
    seen = {each.seen for each in history if each.answered is not None and _looks(each)}
    seen |= {each.expected for each in history if each.kind == SWAP and (each.succeeded or each.answered is None)}
    return [
        each
        for each in history
        if each.answered is not None or each.kind == DELETE or (each.kind != GET and each.value in seen)
    ]


class _Node:
    """A call or an answer in the list of what is not in order yet, by time."""

    __slots__ = ("following", "is_call", "match", "number", "operation", "previous")

    def __init__(self, operation: RegisterOperation, number: int, *, is_call: bool) -> None:
        self.operation = operation
        self.number = number
        self.is_call = is_call
        self.match: _Node | None = None
        self.previous: _Node | None = None
        self.following: _Node | None = None

    def unlink(self) -> None:
        assert self.previous is not None
        self.previous.following = self.following
        if self.following is not None:
            self.following.previous = self.previous

    def link(self) -> None:
        assert self.previous is not None
        self.previous.following = self
        if self.following is not None:
            self.following.previous = self


def _line_up(history: list[RegisterOperation]) -> tuple[_Node, int]:
    """Make the list; return its head, and how many operations were answered."""
    events: list[tuple[int, int, _Node]] = []
    answered = 0
    for number, operation in enumerate(history):
        call = _Node(operation, number, is_call=True)
        events.append((operation.called, 0, call))
        if operation.answered is not None:
            # At equal times calls come first: those operations overlap.
            answer = call.match = _Node(operation, number, is_call=False)
            events.append((operation.answered, 1, answer))
            answered += 1
    events.sort(key=lambda each: each[:2])
    head = last = _Node(RegisterOperation("", 0, 0), -1, is_call=False)
    for _, _, node in events:
        node.previous, last.following = last, node
        last = node
    return head, answered


def _search(history: list[RegisterOperation], steps_max: int) -> RegisterVerdict:
    head, waiting = _line_up(history)
    value, done, is_owed = ABSENT, 0, False
    tried: set[tuple[int, int, bool]] = set()
    stack: list[tuple[_Node, int, bool]] = []
    deletes = [at for at, each in enumerate(history) if each.kind == DELETE and each.answered is None]
    node = head.following
    deepest: tuple[int, _Node | None] = (-1, None)
    for _ in range(steps_max):
        if not waiting:
            return LINEARIZABLE
        # Some are not answered, so an answer must stand somewhere.
        assert node is not None
        if node.is_call:
            operation = node.operation
            after = _after(operation, value)
            if is_owed and not _sees(operation, value):
                after = None
            if after is not None and operation.kind == DELETE and operation.answered is None:
                # Others that were called before must not be left over.
                first = next(each for each in deletes if not done >> each & 1)
                after = after if first == node.number else None
            if after is not None:
                state = (done | 1 << node.number, after, operation.answered is None)
                if state not in tried:
                    tried.add(state)
                    stack.append((node, value, is_owed))
                    done, value, is_owed = state
                    node.unlink()
                    if node.match is not None:
                        node.match.unlink()
                        waiting -= 1
                    node = head.following
                    continue
            node = node.following
            continue
        # Here ends an operation that fits nowhere in front.
        if len(stack) > deepest[0]:
            deepest = (len(stack), node)
        if not stack:
            return _not_linearizable(deepest[1], history)
        last, value, is_owed = stack.pop()
        done &= ~(1 << last.number)
        if last.match is not None:
            last.match.link()
            waiting += 1
        last.link()
        node = last.following
    return RegisterVerdict(f"not decided within {steps_max:,} steps: too many operations of one key at the same time")


def _after(operation: RegisterOperation, value: int) -> int | None:
    """Return the value behind an operation; None if it cannot come next, or was not answered and changes nothing."""
    kind = operation.kind
    if kind == PUT:
        return operation.value
    if kind == DELETE:
        return None if operation.answered is None and value == ABSENT else ABSENT
    if not _sees(operation, value):
        return None
    return operation.value if kind == SWAP and operation.succeeded else value


def _sees(operation: RegisterOperation, value: int) -> bool:
    """Return whether an operation fits where the key has a value, and tells of it."""
    if operation.kind == GET:
        return operation.seen == value
    if operation.kind != SWAP:
        return False
    if operation.succeeded:
        return operation.expected == value
    return operation.seen == value != operation.expected


def _not_linearizable(stuck: _Node | None, history: list[RegisterOperation]) -> RegisterVerdict:
    assert stuck is not None
    operation = stuck.operation
    seen = operation.expected if operation.kind == SWAP and operation.succeeded else operation.seen
    witnesses = [each for each in history if each.kind in (PUT, SWAP) and each.value == seen and each is not operation]
    return RegisterVerdict(f"{_words(operation)}; no order of all operations explains it", (*witnesses[:1], operation))


def _words(operation: RegisterOperation) -> str:
    match operation.kind:
        case "get":
            return f"a get found {_value(operation.seen)}"
        case "swap":
            if operation.succeeded:
                return f"a compare-and-set found {_value(operation.expected)} and succeeded"
            return f"a compare-and-set found {_value(operation.seen)} and failed"
        case _:
            return f"a {operation.kind} was answered"


def _value(value: int) -> str:
    return "no key" if value == ABSENT else f"value {value:x}"
