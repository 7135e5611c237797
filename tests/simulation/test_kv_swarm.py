"""Key-value stores hold in the swarm: all faults of the replicas' swarm, clients with operations, watches and locks.

Planted bugs show that the checkers see what goes wrong.
"""

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor

import pytest

from vivum.cli import main
from vivum.protocols.consensus.client import LogClient
from vivum.protocols.consensus.machine import ReplicaMachine
from vivum.protocols.consensus.server import LogServer
from vivum.protocols.consensus.sessions import Sessions
from vivum.protocols.kv.operations import Changes, decode_answer, encode_operation
from vivum.protocols.kv.store import KeyValueStore
from vivum.sim.replicas.kv_world import KvWorld, make_up_stores, run_store_seed

Patch = pytest.MonkeyPatch


def failures(seeds: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Run many worlds on all cores; return what was wrong, by seed."""
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        verdicts = pool.map(run_store_seed, seeds, chunksize=5)
        return {each.seed: each.violations for each in verdicts if each.violations}


@pytest.mark.slow
def test_eight_seeds_hold() -> None:
    assert failures(range(1, 9)) == {}


@pytest.mark.soak
def test_two_thousand_seeds_hold() -> None:
    assert failures(range(1001, 3001)) == {}


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(24, id="a replica that was removed answered watchers that nothing was new, for ever"),
    ],
)
def test_a_seed_that_failed_once_holds(seed: int) -> None:
    assert run_store_seed(seed).violations == ()


def reads_without_asking_the_others(patch: Patch) -> None:
    """A leader answers reads from its own state at once: it may have been deposed."""
    patch.setattr(ReplicaMachine, "_read", lambda self, role, command: self._allowed_reads.append(command.request))


def runs_retries_again(patch: Patch) -> None:
    """A session forgets what it ran."""
    patch.setattr(
        Sessions, "run", lambda self, client, sequence, heard, time_ns, commands, apply: (apply(commands), None)
    )


def loses_the_answer_of_a_put(patch: Patch) -> None:
    """One put in twenty is answered and not done."""
    right = KeyValueStore._put

    def put(self: KeyValueStore, key: bytes, value: bytes, lease: int):
        present = self._entries.get(key)
        if present is None or self.revision % 20:
            return right(self, key, value, lease)
        return right(self, key, present.value, lease)

    patch.setattr(KeyValueStore, "_put", put)


def leaves_a_change_out_of_a_watch(patch: Patch) -> None:
    """Of several changes that come together the last one is left out."""
    right = KeyValueStore.follow

    def follow(self: KeyValueStore, query: bytes, after: int) -> tuple[int, bytes | None]:
        upto, answer = right(self, query, after)
        decoded = None if answer is None else decode_answer(answer)
        if isinstance(decoded, Changes) and len(decoded.changes) > 1:
            return upto, encode_operation(Changes(decoded.changes[:-1]))
        return upto, answer

    patch.setattr(KeyValueStore, "follow", follow)


def ends_leases_by_the_clock_of_whoever_leads(patch: Patch) -> None:
    """The clock of leases is log time, whatever the term: it leaps with a leader whose clock is ahead."""
    right = KeyValueStore.on_time

    def on_time(self: KeyValueStore, index: int, term: int, time_ns: int) -> None:
        self._term = term
        right(self, index, term, time_ns)

    patch.setattr(KeyValueStore, "on_time", on_time)


def lets_two_hold_a_name(patch: Patch) -> None:
    """Whoever stands in a queue is told to be the first."""
    right = KeyValueStore._campaign

    def campaign(self: KeyValueStore, command):
        queued = right(self, command)
        return queued if not hasattr(queued, "token") else type(queued)(queued.token, queued.token, queued.revision)

    patch.setattr(KeyValueStore, "_campaign", campaign)


MUTANTS: dict[Callable[[Patch], None], tuple[tuple[str, ...], int]] = {
    reads_without_asking_the_others: (("key_linearizable",), 30),
    runs_retries_again: (("at_most_once", "key_linearizable", "watch_order"), 1),
    loses_the_answer_of_a_put: (("key_linearizable",), 1),
    leaves_a_change_out_of_a_watch: (("watch_order",), 1),
    ends_leases_by_the_clock_of_whoever_leads: (("lease_time", "lock_exclusion"), 6),
    lets_two_hold_a_name: (("lock_exclusion",), 2),
}
"""Each with the checkers that must notice, and the seed that found it last. Other changes make other worlds of the
seeds; then the first ones are searched."""


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    checkers, known = MUTANTS[mutant]
    assert any(
        each.startswith(checkers) for seed in (known, *range(1, 101)) for each in run_store_seed(seed).violations
    )


def test_worlds_come_to_all_that_they_are_to_test(monkeypatch: Patch) -> None:
    """What no seed reaches, no seed tests."""
    reached: set[str] = set()

    def note(owner: type, name: str) -> None:
        right = getattr(owner, name)

        def noted(self: object, *arguments: object, **more: object) -> object:
            reached.add(name)
            return right(self, *arguments, **more)

        monkeypatch.setattr(owner, name, noted)

    wanted = {
        KeyValueStore: ["_end_lease", "_campaign", "_keep", "_revoke", "restore"],
        LogServer: ["_upload_of", "_on_refused", "_redirect"],
        LogClient: ["_on_gap", "_end_session", "_on_redirection", "_ask_another"],
    }
    for owner, names in wanted.items():
        for name in names:
            note(owner, name)
    kinds: set[str] = set()
    for seed in range(1, 11):
        world = KvWorld(make_up_stores(seed), seed, lambda record: kinds.add(type(record).__name__))
        assert world.run().violations == []
    assert reached == {name for names in wanted.values() for name in names}
    assert {"LockTaken", "LockReleased", "LeaseOver", "LeaseKept", "KeyChangeSeen", "WatchBegan"} <= kinds


def test_the_swarm_is_run_and_replayed_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "swarm", "--protocol", "kv", "--seeds", "1", "--jobs", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["failed"] == []
    assert main(["sim", "run", "swarm:kv", "--seed", "2", "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert replayed["trace_hash"] == run_store_seed(2).trace_hash
    assert main(["sim", "show", "swarm:kv", "--seed", "2", "--limit", "5"]) == 0
    assert "restores  g1 @0" in capsys.readouterr().out
