"""The swarm of key-value stores: the worlds of the replicas' swarm, with a store for the application.

The same faults, and clients that put, compare-and-set, watch and lock. Judged by the checkers of the log and by those
of the store (`checkers/kv`).
"""

from dataclasses import replace

from vivum.checkers.consensus.registry import LOG_CHECKERS
from vivum.checkers.kv.registry import KV_CHECKERS
from vivum.core.randomness import RandomSource
from vivum.core.time import MILLISECOND
from vivum.protocols.kv.settings import KvSettings
from vivum.protocols.kv.store import KeyValueStore
from vivum.sim.replicas.kv_client import KvClient
from vivum.sim.replicas.swarm import make_up_replicas
from vivum.sim.replicas.world import ReplicaPlan, ReplicaWorld
from vivum.sim.swarm import SeedVerdict

KV = "kv"
"""How these worlds are named where others name a protocol."""


def make_up_stores(seed: int) -> ReplicaPlan:
    """Make up the world of a seed: as for replicas, but small operations, and more clients."""
    plan = make_up_replicas(seed)
    rng = RandomSource(seed).fork("kv")
    clients = [plan.clients[at % len(plan.clients)] for at in range(rng.randint(2, 4))]
    return replace(
        plan,
        clients=tuple(
            replace(
                each,
                commands=max(20, each.commands),
                gap_ns=rng.choice([8, 20, 60]) * MILLISECOND,
                size=min(each.size, 200),
                reads=rng.choice([0.2, 0.5]),
            )
            for each in clients
        ),
        settings=replace(plan.settings, sessions_max=rng.choice([3, 1000])),
    )


class KvWorld(ReplicaWorld):
    """One simulation."""

    client_type = KvClient
    checker_types = (*LOG_CHECKERS.values(), *KV_CHECKERS.values())

    def make_application(self) -> KeyValueStore:
        """Make a store; those of some worlds forget soon what watchers may want to resume from."""
        is_short = self.seed % 4 == 1
        return KeyValueStore(KvSettings(history_events_max=8) if is_short else None)

    def _is_whole(self) -> bool:
        """Return whether all watchers have come to the end, too."""
        if not super()._is_whole():
            return False
        revisions = {
            host.application.revision for host in self.hosts.values() if isinstance(host.application, KeyValueStore)
        }
        return all(each.watched == max(revisions) for each in self.clients if isinstance(each, KvClient))


def run_store_seed(seed: int, protocol: str = KV) -> SeedVerdict:  # noqa: ARG001 - as others are called
    """Run the world of one seed. A crash of our own code is a violation like any other."""
    try:
        result = KvWorld(make_up_stores(seed), seed).run()
    except Exception as error:
        return SeedVerdict(seed, (f"crash: {type(error).__name__}: {error}",), 0, "")
    return SeedVerdict(seed, tuple(map(str, result.violations)), result.events, result.trace_hash)
