"""The swarm of replicas holds: deaths within a write, flipped bits, splits, pauses, drifting clocks, changing members.

Seeds that failed once stand here with what was wrong.
"""

import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import pytest

from vivum.cli import main
from vivum.protocols.consensus.client import LogClient
from vivum.protocols.consensus.machine import ReplicaMachine
from vivum.protocols.consensus.progress import Progress
from vivum.sim.replicas.swarm import make_up_replicas, run_replica_seed
from vivum.sim.replicas.world import ReplicaWorld


def failures(seeds: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Run many worlds on all cores; return what was wrong, by seed."""
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        verdicts = pool.map(run_replica_seed, seeds, chunksize=10)
        return {each.seed: each.violations for each in verdicts if each.violations}


def test_thirty_seeds_hold() -> None:
    assert failures(range(1, 31)) == {}


@pytest.mark.slow
def test_three_hundred_seeds_hold() -> None:
    assert failures(range(31, 301)) == {}


@pytest.mark.soak
def test_two_thousand_seeds_hold() -> None:
    assert failures(range(1001, 3001)) == {}


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(59, id="clients that asked again too soon filled the log with what was in it already"),
        pytest.param(192, id="an impaired replica committed by heartbeat what it had not compared with the leader's"),
        pytest.param(280, id="a learner without a log was promoted, and a blank replica did not vote"),
        pytest.param(423, id="a commit was told before the record that it rested on was written"),
        pytest.param(836, id="who had removed itself did not stand, and nobody else had the entry"),
    ],
)
def test_a_seed_that_failed_once_holds(seed: int) -> None:
    assert run_replica_seed(seed).violations == ()


def test_a_seed_is_the_same_every_time() -> None:
    assert run_replica_seed(6) == run_replica_seed(6)
    assert run_replica_seed(6).trace_hash != run_replica_seed(9).trace_hash


def test_worlds_come_to_all_that_they_are_to_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no seed reaches, no seed tests."""
    reached: set[str] = set()

    def note(owner: type, name: str) -> None:
        right = getattr(owner, name)

        def noted(self: object, *arguments: object, **more: object) -> object:
            reached.add(name)
            return right(self, *arguments, **more)

        monkeypatch.setattr(owner, name, noted)

    wanted = ["become_leader", "_install", "_on_timeout_now", "_leave_if_removed", "_drop_front", "_on_snapshot_reply"]
    for name in wanted:
        note(ReplicaMachine, name)
    for name in ("become_snapshot", "on_refused", "on_lost"):
        note(Progress, name)
    of_clients = ["_on_gap", "_end_session", "_on_redirection", "_ask_another"]
    for name in of_clients:
        note(LogClient, name)
    events: set[str] = set()
    torn = flipped = 0
    for seed in range(1, 25):
        world = ReplicaWorld(make_up_replicas(seed), seed)
        right = world._on_event
        for host in world.hosts.values():
            host.on_event = lambda host, event, right=right: (events.add(type(event).__name__), right(host, event))  # type: ignore
        for client in world.clients:
            right = client._on_event
            client.host.on_event = lambda host, event, right=right: (
                events.add(type(event).__name__),
                right(host, event),
            )
        assert world.run().violations == []
        torn += sum(host.store.torn for host in world.hosts.values())
        flipped += sum(host.store.flipped for host in world.hosts.values())
    assert reached == {*wanted, *of_clients, "become_snapshot", "on_refused", "on_lost"}
    assert {"ReplicaHealed", "ReplicasChanged", "RequestsRefused", "CommandsAnswered"} <= events
    assert {"CommandDone", "CommandLost", "QueryDone"} <= events
    assert torn > 0
    assert flipped > 0


def test_the_swarm_is_run_and_replayed_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "swarm", "--protocol", "consensus", "--seeds", "2", "--jobs", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["failed"] == []
    assert main(["sim", "run", "swarm:consensus", "--seed", "2", "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert replayed["trace_hash"] == run_replica_seed(2).trace_hash
    assert main(["sim", "show", "swarm:consensus", "--seed", "2", "--limit", "5"]) == 0
    assert "restores  g1 @0" in capsys.readouterr().out
