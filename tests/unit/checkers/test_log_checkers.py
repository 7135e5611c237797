"""The checkers of replicated logs: each catches a planted violation, and none complains of a correct history."""

from collections.abc import Iterable

import pytest

from vivum.checkers.checker import Violation
from vivum.checkers.consensus.registry import LOG_CHECKERS
from vivum.checkers.registry import CheckerSet
from vivum.observe.trace import (
    BatchAppended,
    BatchCommitted,
    CommandAnswered,
    CommandApplied,
    CommandIssued,
    LeaderElected,
    ReadAnswered,
    ReadIssued,
    StateRestored,
    StateSaved,
    TraceRecord,
)


class Story:
    """Writes histories of group 1."""

    def __init__(self) -> None:
        self.records: list[TraceRecord] = []

    def _add(self, kind: type[TraceRecord], node: int, *rest: int, life: int = 1) -> None:
        self.records.append(kind(len(self.records), node, life, 1, *rest))  # type: ignore[arg-type, call-arg]

    def leads(self, node: int, term: int, life: int = 1) -> None:
        self._add(LeaderElected, node, term, life=life)

    def append(self, node: int, term: int, index: int, digest: int, stop: int = 0, life: int = 1) -> None:
        self._add(BatchAppended, node, term, index, stop or index + 1, digest, life=life)

    def commit(self, node: int, term: int, index: int, digest: int, stop: int = 0, life: int = 1) -> None:
        self._add(BatchCommitted, node, term, index, stop or index + 1, digest, life=life)

    def restore(self, node: int, term: int, index: int, digest: int = 0, life: int = 1) -> None:
        self._add(StateRestored, node, term, index, digest, life=life)

    def save(self, node: int, term: int, index: int, digest: int) -> None:
        self._add(StateSaved, node, term, index, digest)

    def apply(self, node: int, index: int, client: int, sequence: int, digest: int, life: int = 1) -> None:
        self._add(CommandApplied, node, index, client, sequence, digest, life=life)

    def issue(self, client: int, sequence: int) -> None:
        self._add(CommandIssued, 1001, client, sequence)

    def answer(self, client: int, sequence: int, digest: int) -> None:
        self._add(CommandAnswered, 1001, client, sequence, digest)

    def read(self, client: int, sequence: int) -> None:
        self._add(ReadIssued, 1001, client, sequence)

    def has_read(self, client: int, sequence: int, index: int, digest: int) -> None:
        self._add(ReadAnswered, 1001, client, sequence, index, digest)


def judge(records: Iterable[TraceRecord]) -> list[Violation]:
    checkers = CheckerSet([each() for each in LOG_CHECKERS.values()])
    for record in records:
        checkers(record)
    return checkers.finish()


def correct() -> Story:
    """Two leaders: an entry that only the first one had goes; a retried command gets its answer again."""
    story = Story()
    for node in (1, 2, 3):
        story.restore(node, 0, 0)
        story.append(node, 0, 1, 10)
    story.leads(1, 1)
    for node in (1, 2, 3):
        story.append(node, 1, 2, 20)
    story.issue(7, 0)
    for node in (1, 2):
        story.append(node, 1, 3, 30, stop=5)
        story.commit(node, 0, 1, 10)
        story.commit(node, 1, 2, 20)
        story.commit(node, 1, 3, 30, stop=5)
        story.apply(node, 3, 7, 0, 300)
        story.apply(node, 4, 7, 1, 400)
    story.answer(7, 0, 300)
    story.append(1, 1, 5, 50)
    story.leads(2, 2)
    story.append(2, 2, 5, 55)
    story.append(1, 2, 5, 55)
    story.commit(2, 2, 5, 55)
    story.answer(7, 0, 300)
    story.read(8, 0)
    story.has_read(8, 0, 4, 400)
    story.save(2, 1, 4, 4444)
    story.restore(3, 1, 4, 4444)
    story.append(3, 2, 5, 55)
    story.commit(3, 2, 5, 55)
    return story


def test_nobody_complains_of_a_correct_history() -> None:
    assert judge(correct().records) == []


def second_leader_in_a_term(story: Story) -> None:
    story.leads(3, 2)


def same_place_and_term_with_other_bytes(story: Story) -> None:
    story.append(3, 2, 6, 66)
    story.append(1, 2, 6, 67)


def same_batch_behind_another_one(story: Story) -> None:
    story.append(1, 3, 5, 56)
    story.append(1, 4, 6, 66)
    story.append(2, 4, 6, 66)


def hole_in_a_log(story: Story) -> None:
    story.append(3, 2, 8, 88)


def leader_without_a_committed_entry(story: Story) -> None:
    story.restore(1, 0, 0, life=2)
    story.append(1, 0, 1, 10, life=2)
    story.leads(1, 3, life=2)


def leader_with_another_entry_in_its_place(story: Story) -> None:
    story.append(3, 3, 5, 58)
    story.leads(3, 4)


def other_entry_committed(story: Story) -> None:
    story.append(1, 3, 5, 58)
    story.commit(1, 3, 5, 58)


def entry_applied_behind_a_hole(story: Story) -> None:
    story.commit(3, 2, 7, 77)


def other_answer_of_the_same_command(story: Story) -> None:
    story.apply(3, 3, 7, 0, 301)


def snapshots_that_differ(story: Story) -> None:
    story.restore(1, 1, 4, 4445, life=2)


def command_that_ran_twice(story: Story) -> None:
    story.apply(2, 6, 7, 1, 400)


def other_answer_to_a_retry(story: Story) -> None:
    story.answer(7, 0, 299)


def answer_that_nobody_computed(story: Story) -> None:
    story.answer(7, 9, 1)


def stale_read(story: Story) -> None:
    story.read(8, 1)
    story.has_read(8, 1, 3, 300)


def read_of_a_state_that_never_was(story: Story) -> None:
    story.read(8, 1)
    story.has_read(8, 1, 4, 401)


def command_in_front_of_one_that_was_answered_before_it_was_called(story: Story) -> None:
    story.read(8, 1)
    story.has_read(8, 1, 4, 400)
    story.issue(7, 1)
    story.answer(7, 1, 400)


PLANTED = {
    second_leader_in_a_term: "election_safety",
    same_place_and_term_with_other_bytes: "log_matching",
    same_batch_behind_another_one: "log_matching",
    hole_in_a_log: "log_matching",
    leader_without_a_committed_entry: "leader_completeness",
    leader_with_another_entry_in_its_place: "leader_completeness",
    other_entry_committed: "state_machine_safety",
    entry_applied_behind_a_hole: "state_machine_safety",
    other_answer_of_the_same_command: "state_machine_safety",
    snapshots_that_differ: "state_machine_safety",
    command_that_ran_twice: "at_most_once",
    other_answer_to_a_retry: "at_most_once",
    answer_that_nobody_computed: "at_most_once",
    stale_read: "linearizable",
    read_of_a_state_that_never_was: "linearizable",
    command_in_front_of_one_that_was_answered_before_it_was_called: "linearizable",
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_violation_is_caught_by_the_checker_of_its_promise(plant: object) -> None:
    story = correct()
    before = len(story.records)
    plant(story)  # type: ignore[operator]
    found = judge(story.records)
    assert PLANTED[plant] in {each.checker for each in found}  # type: ignore[index]
    (first, *_) = [each for each in found if each.checker == PLANTED[plant]]  # type: ignore[index]
    assert any(each in story.records[before:] for each in first.witnesses)


def test_every_checker_has_a_planted_violation() -> None:
    assert set(PLANTED.values()) == LOG_CHECKERS.keys()


def test_an_entry_that_a_later_term_commits_is_not_missed_in_an_earlier_leader_that_hears_of_its_votes_late() -> None:
    story = correct()
    story.leads(3, 5)
    story.append(3, 5, 6, 600)
    story.commit(3, 5, 6, 600)
    # Elected before, told after.
    story.leads(1, 4)
    assert [each.checker for each in judge(story.records)] == []
