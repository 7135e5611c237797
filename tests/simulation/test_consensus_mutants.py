"""The swarm of replicas finds planted bugs: each breaks a sentence of the paper, and the right checker complains."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from unit.consensus import test_paper
from vivum.checkers.checker import Violation
from vivum.protocols.consensus import machine as machine_module
from vivum.protocols.consensus.batch import EntryBatch
from vivum.protocols.consensus.commands import ReadIndex
from vivum.protocols.consensus.configuration import ReplicaConfiguration
from vivum.protocols.consensus.log import ReplicatedLog
from vivum.protocols.consensus.machine import Came, ReplicaMachine
from vivum.protocols.consensus.records import NOBODY, Promises, Recovery, StoredState
from vivum.protocols.consensus.roles import Leading
from vivum.protocols.consensus.sessions import Apply, Sessions
from vivum.protocols.consensus.state_machine import Applier
from vivum.sim.replicas.swarm import make_up_replicas
from vivum.sim.replicas.world import ReplicaWorld
from vivum.wire.consensus import VoteRequest

Patch = pytest.MonkeyPatch


def forgets_its_vote(patch: Patch) -> None:
    """A record has the term alone."""
    right = machine_module.entries_record

    def entries_record(promises: Promises, after: int, batches: Iterable[EntryBatch]) -> bytes:
        return right(promises._replace(vote=NOBODY), after, batches)

    patch.setattr(machine_module, "entries_record", entries_record)


def forgets_its_term(patch: Patch) -> None:
    """A record has neither term nor vote."""
    right = machine_module.entries_record

    def entries_record(promises: Promises, after: int, batches: Iterable[EntryBatch]) -> bytes:
        return right(promises._replace(term=0, vote=NOBODY), after, batches)

    patch.setattr(machine_module, "entries_record", entries_record)


def commits_older_terms_by_counting(patch: Patch) -> None:
    """An entry is committed as soon as it is on a majority, whatever its term (paper, Figure 8)."""

    def commit_index(self: Leading, log: ReplicatedLog, term: int) -> int:
        matched = {node: peer.matched for node, peer in self.peers.items()}
        return max(log.commit_index, self._at_majority(log.configuration, log.saved_index, matched))

    patch.setattr(Leading, "commit_index", commit_index)


def votes_without_a_look_at_the_log(patch: Patch) -> None:
    """A vote, and a pre-vote, goes to whoever asks first."""
    right = ReplicaMachine._on_vote_request

    def on_vote_request(self: ReplicaMachine, came: Came, body: VoteRequest) -> None:
        request = VoteRequest(body.term, 1 << 40, 1 << 40, body.is_pre, body.is_transfer)
        right(self, came, request)

    patch.setattr(ReplicaMachine, "_on_vote_request", on_vote_request)


def votes_twice(patch: Patch) -> None:
    """Who voted in a term votes again for another."""
    right = ReplicaMachine._on_vote_request

    def on_vote_request(self: ReplicaMachine, came: Came, body: VoteRequest) -> None:
        if not body.is_pre:
            self._promises = self._promises._replace(vote=NOBODY)
        right(self, came, body)

    patch.setattr(ReplicaMachine, "_on_vote_request", on_vote_request)


def half_is_enough(patch: Patch) -> None:
    """Half of the voters count as a majority."""

    def has_quorum(self: ReplicaConfiguration, nodes: Any) -> bool:
        return sum(node in nodes for node in self.voters) >= len(self.voters) // 2

    patch.setattr(ReplicaConfiguration, "has_quorum", has_quorum)


def keeps_what_conflicts(patch: Patch) -> None:
    """An entry that is there already stays, whatever its term."""

    def take_batches(self: ReplicaMachine, batches: Iterable[EntryBatch]) -> None:
        for batch in batches:
            if batch.last <= self.log.last_index:
                continue
            if batch.first <= self.log.last_index:
                self.log.cut(batch.first - 1)
            self._append(batch)

    patch.setattr(ReplicaMachine, "_take_batches", take_batches)


def appends_without_a_look_at_the_entry_before(patch: Patch) -> None:
    """The consistency check of AppendEntries looks at the index alone."""
    right = ReplicatedLog.term_at

    class Agreeable(int):
        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = int.__hash__

    right_append = ReplicaMachine._on_append

    def on_append(self: ReplicaMachine, came: Came, body: Any) -> None:
        def term_at(log: ReplicatedLog, index: int) -> int | None:
            found = right(log, index)
            is_before = index == body.previous_index and found is not None
            return Agreeable(found) if is_before else found  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(ReplicatedLog, "term_at", term_at)
            right_append(self, came, body)

    patch.setattr(ReplicaMachine, "_on_append", on_append)


def reads_without_a_round(patch: Patch) -> None:
    """A leader answers reads from its own state at once: it may have been deposed."""

    def read(self: ReplicaMachine, role: Leading, command: ReadIndex) -> None:
        self._allowed_reads.append(command.request)

    patch.setattr(ReplicaMachine, "_read", read)


def reads_before_its_term_has_a_commit(patch: Patch) -> None:
    """A new leader reads at the commit index that it happens to know."""

    def begin(self: ReplicaMachine) -> None:
        right(self)
        assert isinstance(self._role, Leading)
        self._role.first_index = 0

    right = ReplicaMachine.become_leader
    patch.setattr(ReplicaMachine, "become_leader", begin)


def runs_retries_again(patch: Patch) -> None:
    """A session forgets what it ran."""

    def run(
        self: Sessions, client: int, sequence: int, heard: int, time_ns: int, commands: Sequence[bytes], apply: Apply
    ) -> Any:
        return apply(commands), None

    patch.setattr(Sessions, "run", run)


def leaves_the_sessions_out_of_snapshots(patch: Patch) -> None:
    """A snapshot has the application's state alone."""
    patch.setattr(Sessions, "encode", lambda self: b"\x90")


def takes_what_is_left_for_the_whole(patch: Patch) -> None:
    """A replica with a damaged disk votes as if it had never had more."""

    def impair(self: Recovery, lost: Iterable[Any]) -> None:
        for record in lost:
            self.promises = record.promises

    patch.setattr(Recovery, "impair", impair)


def applies_a_batch_twice_after_a_snapshot(patch: Patch) -> None:
    """A snapshot says that it ends one entry earlier than it does."""
    right = Applier.restore

    def restore(self: Applier, index: int, time_ns: int, sessions: bytes, application: bytes) -> None:
        right(self, index, time_ns, sessions, bytes(8) + application[8:])
        self.sessions.decode(b"\x90")

    patch.setattr(Applier, "restore", restore)


def forgets_the_end_of_its_log(patch: Patch) -> None:
    """At a start the last batch on disk is left out."""
    right = Recovery.finish

    def finish(self: Recovery, snapshot: bytes = b"") -> StoredState:
        state = right(self, snapshot)
        del state.batches[max(1, len(state.batches) - 1) :]
        return state

    patch.setattr(Recovery, "finish", finish)


def changes_two_replicas_at_a_time(patch: Patch) -> None:
    """The operator's next change does not wait for the one before, nor for an entry of the term."""
    right = ReplicaMachine._change_replicas

    def change(self: ReplicaMachine, role: Leading, command: Any) -> None:
        commit, self.log.commit_index = self.log.commit_index, 1 << 40
        try:
            right(self, role, command)
        finally:
            self.log.commit_index = commit

    patch.setattr(ReplicaMachine, "_change_replicas", change)


MUTANTS: dict[Callable[[Patch], None], tuple[str, list[int]]] = {
    forgets_its_vote: ("election_safety", [2040]),
    forgets_its_term: ("election_safety", [7, 13]),
    votes_without_a_look_at_the_log: ("leader_completeness", [2, 3]),
    votes_twice: ("election_safety", [3, 5]),
    half_is_enough: ("election_safety", [2, 3]),
    keeps_what_conflicts: ("state_machine_safety", [3]),
    appends_without_a_look_at_the_entry_before: ("log_matching", [25]),
    reads_without_a_round: ("linearizable", [3, 7]),
    reads_before_its_term_has_a_commit: ("linearizable", [3, 7]),
    runs_retries_again: ("at_most_once", [1, 3]),
    leaves_the_sessions_out_of_snapshots: ("state_machine_safety", [3, 14]),
    takes_what_is_left_for_the_whole: ("leader_completeness", [18]),
    applies_a_batch_twice_after_a_snapshot: ("state_machine_safety", [3, 14]),
    forgets_the_end_of_its_log: ("state_machine_safety", [9]),
}
"""Each with the checker that must notice, and seeds that found it last, so that the test is short. Any
change of the protocol makes other worlds of them; then the first seeds are searched."""

SEARCHED = range(1, 301)


def violations(seed: int) -> list[str]:
    try:
        found: list[Violation] = ReplicaWorld(make_up_replicas(seed), seed).run().violations
    except Exception as error:
        return [f"crash: {type(error).__name__}: {error}"]
    return [str(each) for each in found]


def finder(checker: str, known: Iterable[int]) -> int | None:
    """Return the first seed whose world a checker complains of."""
    for seed in [*known, *SEARCHED]:
        if any(each.startswith(checker) for each in violations(seed)):
            return seed
    return None


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    assert finder(*MUTANTS[mutant]) is not None


def test_figure_8_is_too_rare_for_the_swarm_and_found_by_the_test_that_plays_it(monkeypatch: Patch) -> None:
    """A new leader's no-op nearly always goes with the entries in front of it, so counting these is seldom wrong."""
    test_paper.test_5_4_2_entries_of_former_terms_are_not_committed_by_counting()
    commits_older_terms_by_counting(monkeypatch)
    with pytest.raises(AssertionError):
        test_paper.test_5_4_2_entries_of_former_terms_are_not_committed_by_counting()


def test_two_changes_at_a_time_are_too_rare_and_found_by_the_test_that_asks_for_them(monkeypatch: Patch) -> None:
    """A second change must come between the first one and its commit, and a split just then."""
    test_paper.test_one_change_at_a_time_and_only_when_the_term_has_a_commit()
    changes_two_replicas_at_a_time(monkeypatch)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_paper.test_one_change_at_a_time_and_only_when_the_term_has_a_commit()
