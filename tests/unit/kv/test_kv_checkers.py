"""The checkers of a key-value store catch planted violations, and let correct histories pass."""

from collections.abc import Callable

import pytest

from vivum.checkers.kv.registry import KV_CHECKERS
from vivum.checkers.registry import CheckerSet
from vivum.core.time import SECOND
from vivum.observe.trace import (
    KeyChangeSeen,
    KeyOperationAnswered,
    KeyOperationIssued,
    LeaseAsked,
    LeaseKept,
    LeaseOver,
    LockReleased,
    LockTaken,
    TraceRecord,
    WatchBegan,
)

KEY, OTHER = 80, 90


class Story:
    """Records of clients of one store, in their order; a second passes between two."""

    def __init__(self) -> None:
        self.records: list[TraceRecord] = []
        self._sequence = 0

    def add(self, kind: type, node: int, *fields: object) -> None:
        self.records.append(kind(len(self.records) * SECOND, node, 1, 1, *fields))

    def begin(self, node: int, operation: str, written: int = 0, expected: int = 0) -> int:
        self._sequence += 1
        self.add(KeyOperationIssued, node, node, self._sequence, operation, KEY, written, expected)
        return self._sequence

    def end(self, node: int, sequence: int, value: int = 0, revision: int = 0, outcome: str = "done") -> None:
        self.add(KeyOperationAnswered, node, node, sequence, outcome, value, revision)

    def run(self, node: int, operation: str, written: int = 0, expected: int = 0, **answer: int | str) -> None:
        self.end(node, self.begin(node, operation, written, expected), **answer)  # type: ignore[arg-type]

    def see(self, node: int, revision: int, value: int, key: int = KEY) -> None:
        self.add(KeyChangeSeen, node, node, revision, key, value)


def all_is_well(story: Story) -> None:
    story.add(WatchBegan, 3, 3, 0)
    story.run(1, "put", 11, revision=1)
    lost = story.begin(2, "swap", 12, 11)
    story.see(3, 1, 11)
    story.run(1, "get", value=12)
    story.see(3, 2, 12)
    assert lost
    story.run(1, "swap", 13, 11, outcome="failed", value=12)
    story.add(LockTaken, 1, KEY, 5)
    story.add(LockReleased, 1, KEY, 5)
    story.add(LockTaken, 2, KEY, 7)
    story.add(LockReleased, 2, KEY, 7)
    story.add(LockTaken, 2, KEY, 7)
    story.add(LeaseAsked, 1, 9)
    story.add(LeaseKept, 1, 9, 2 * SECOND)
    story.run(1, "get", value=12)
    story.add(LeaseOver, 1, 9)


def stale_read(story: Story) -> None:
    story.run(1, "put", 11, revision=1)
    story.run(1, "put", 12, revision=2)
    story.run(2, "get", value=11)


def lost_update(story: Story) -> None:
    story.run(1, "put", 11, revision=1)
    story.run(1, "swap", 12, 11, revision=2)
    story.run(2, "swap", 13, 11, revision=3)


def compare_and_set_that_ran_twice(story: Story) -> None:
    story.run(1, "put", 11, revision=1)
    story.run(1, "swap", 12, 11, revision=2)
    story.run(2, "put", 13, revision=3)
    story.run(2, "get", value=13)
    story.run(2, "get", value=12)


def value_from_nowhere(story: Story) -> None:
    story.run(1, "put", 11, revision=1)
    story.run(1, "get", value=99)


def watch_with_a_hole(story: Story) -> None:
    story.add(WatchBegan, 3, 3, 0)
    story.see(3, 1, 11)
    story.see(3, 3, 13)


def watch_that_goes_back(story: Story) -> None:
    story.add(WatchBegan, 3, 3, 0)
    story.see(3, 1, 11)
    story.see(3, 1, 11)


def watchers_that_disagree(story: Story) -> None:
    story.see(3, 1, 11)
    story.see(4, 1, 12)


def watch_of_another_change_than_was_written(story: Story) -> None:
    story.run(1, "put", 11, revision=1)
    story.see(3, 1, 12, OTHER)


def two_writes_with_one_revision(story: Story) -> None:
    story.run(1, "put", 11, revision=1)
    story.run(2, "put", 12, revision=1)


def two_holders(story: Story) -> None:
    story.add(LockTaken, 1, KEY, 5)
    story.add(LockTaken, 2, KEY, 7)


def tokens_that_fall(story: Story) -> None:
    story.add(LockTaken, 1, KEY, 7)
    story.add(LockReleased, 1, KEY, 7)
    story.add(LockTaken, 2, KEY, 5)


def one_token_for_two(story: Story) -> None:
    story.add(LockTaken, 1, KEY, 7)
    story.add(LockReleased, 1, KEY, 7)
    story.add(LockTaken, 2, KEY, 7)


def lease_that_ends_early(story: Story) -> None:
    story.add(LeaseAsked, 1, 9)
    story.add(LeaseKept, 1, 9, 10 * SECOND)
    story.add(LeaseOver, 1, 9)


PLANTED: dict[Callable[[Story], None], str] = {
    stale_read: "key_linearizable",
    lost_update: "key_linearizable",
    compare_and_set_that_ran_twice: "key_linearizable",
    value_from_nowhere: "key_linearizable",
    watch_with_a_hole: "watch_order",
    watch_that_goes_back: "watch_order",
    watchers_that_disagree: "watch_order",
    watch_of_another_change_than_was_written: "watch_order",
    two_writes_with_one_revision: "watch_order",
    two_holders: "lock_exclusion",
    tokens_that_fall: "lock_exclusion",
    one_token_for_two: "lock_exclusion",
    lease_that_ends_early: "lease_time",
}


def judge(tell: Callable[[Story], None]) -> list[str]:
    story, checkers = Story(), CheckerSet([each() for each in KV_CHECKERS.values()])
    tell(story)
    for record in story.records:
        checkers(record)
    return [each.checker for each in checkers.finish()]


def test_a_correct_history_passes() -> None:
    assert judge(all_is_well) == []


@pytest.mark.parametrize("tell", PLANTED, ids=lambda tell: tell.__name__)
def test_a_planted_violation_is_caught(tell: Callable[[Story], None]) -> None:
    assert PLANTED[tell] in judge(tell)


def test_every_checker_has_a_planted_violation() -> None:
    assert set(PLANTED.values()) == KV_CHECKERS.keys()
