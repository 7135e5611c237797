"""Every key of a store is linearizable, judged by its operations alone (`register`)."""

from vivum.checkers.checker import Checker
from vivum.checkers.kv.register import RegisterOperation, judge_register
from vivum.observe.trace import KeyOperationAnswered, KeyOperationIssued


class KeyLinearizable(Checker):
    """Keeps all operations, by key. The order of the records is that of time."""

    name = "key_linearizable"

    def __init__(self) -> None:
        super().__init__()
        self._moment = 0
        self._issued: dict[tuple[int, int, int], tuple[int, KeyOperationIssued]] = {}
        self._answered: dict[tuple[int, int, int], tuple[int, KeyOperationAnswered]] = {}

    def on_key_operation_issued(self, record: KeyOperationIssued) -> None:
        """Note when an operation began."""
        self._moment += 1
        self._issued[record.group, record.client, record.sequence] = (self._moment, record)

    def on_key_operation_answered(self, record: KeyOperationAnswered) -> None:
        """Note its answer."""
        self._moment += 1
        self._answered[record.group, record.client, record.sequence] = (self._moment, record)

    def conclude(self) -> None:
        """Judge key by key."""
        keys: dict[tuple[int, int], dict[RegisterOperation, KeyOperationIssued]] = {}
        for number, (called, issued) in self._issued.items():
            answered, answer = self._answered.get(number, (None, None))
            operation = operation_of(called, issued, answered, answer)
            keys.setdefault((issued.group, issued.key), {})[operation] = issued
        for (group, key), operations in keys.items():
            verdict = judge_register(operations)
            if verdict.what:
                witnesses = [operations[each] for each in verdict.operations]
                self.report(f"key {key:x} of group {group}: {verdict.what}", *witnesses)


def operation_of(
    called: int, issued: KeyOperationIssued, answered: int | None, answer: KeyOperationAnswered | None
) -> RegisterOperation:
    """Make an operation of its two records."""
    seen, succeeded = (0, True) if answer is None else (answer.value, answer.outcome == "done")
    return RegisterOperation(issued.operation, called, answered, issued.value, issued.expected, seen, succeeded)
