"""The swarm of replicas: worlds made up from a seed, to find what nobody thought of.

A seed decides the number of replicas, the settings, the network, the clients, the faults, and what the operator
changes meanwhile. `vivum sim run swarm:consensus --seed N` replays one.
"""

from dataclasses import replace as dataclass_replace

from msgspec.structs import replace

from vivum.core.randomness import RandomSource
from vivum.core.time import MILLISECOND, SECOND
from vivum.protocols.consensus.settings import ConsensusSettings
from vivum.sim.replicas.client import ClientPlan
from vivum.sim.replicas.world import PlannedChange, ReplicaPlan, ReplicaWorld
from vivum.sim.scenario import Bandwidth, Duration, FaultSpec, HostSpec, NetworkSpec
from vivum.sim.swarm import SeedVerdict

CONSENSUS = "consensus"
"""How these worlds are named where others name a protocol."""

SETTLE_NS = 15 * SECOND
"""Much longer than some elections take."""

EFFECTS_MAX = 12
"""How many effects a host that crashes may still carry out."""


def make_up_replicas(seed: int) -> ReplicaPlan:
    """Make up the world of a seed: every third one is stormy."""
    return _make_up_storm(seed) if seed % 3 == 0 else _make_up_world(seed)


def _make_up_storm(seed: int) -> ReplicaPlan:
    """Let leaders come and go: a slow network, short timeouts, and many short faults."""
    plan = _make_up_world(seed)
    rng = RandomSource(seed).fork("replicas", "storm")
    duration_ns, nodes = 4 * SECOND, plan.replicas + plan.spares
    faults = []
    for _ in range(rng.randint(10, 40)):
        some = tuple(sorted(rng.sample(range(1, nodes + 1), rng.randint(1, (nodes + 1) // 2))))
        fault = _make_up_crash(rng, some, duration_ns)
        if rng.random() < 0.5:
            kind = rng.choice(["partition", "partition", "one_way", "pause"])
            fault = FaultSpec(kind=kind, at=fault.at, nodes=some)  # type: ignore[arg-type]
        lasts = Duration(rng.choice([MILLISECOND, 10 * MILLISECOND, rng.randint(MILLISECOND, 400 * MILLISECOND)]))
        faults.append(replace(fault, lasts=lasts))
    return dataclass_replace(
        plan,
        duration_ns=duration_ns,
        settings=dataclass_replace(
            plan.settings,
            election_ns=100 * MILLISECOND,
            heartbeat_ns=25 * MILLISECOND,
            frame_bytes_max=400,
            batch_bytes_max=300,
            # So that all is through soon after the healing, however slow the network is.
            pending_bytes_max=20_000,
            window_bytes_max=20_000,
            window_messages_max=64,
        ),
        clients=plan.clients[:1],
        network=replace(plan.network, delay=Duration(rng.randint(1, 20) * MILLISECOND)),
        faults=tuple(faults),
        changes=tuple(
            dataclass_replace(each, at_ns=rng.randrange(duration_ns)) for each in (*plan.changes, *plan.changes)
        ),
    )


def _make_up_world(seed: int) -> ReplicaPlan:
    rng = RandomSource(seed).fork("replicas")
    replicas = rng.choice([3, 3, 3, 5, 5, 7])
    duration_ns = rng.randint(1000, 3000) * MILLISECOND
    # A world either changes its membership or has a disk that loses bits: an impaired voter is no help in a change.
    changes = rng.random() < 0.5
    spares = rng.randint(1, 2) if changes else 0
    election_ns = rng.choice([100, 200, 400]) * MILLISECOND
    # Some worlds have small frames, windows and snapshots, so that all that comes in parts does.
    frame_bytes_max = rng.choice([400, 1472, 60_000])
    settings = ConsensusSettings(
        election_ns=election_ns,
        heartbeat_ns=election_ns // rng.choice([4, 8]),
        resend_ns=rng.choice([20, 50, 100]) * MILLISECOND,
        frame_bytes_max=frame_bytes_max,
        batch_bytes_max=rng.choice([300, 1000, 60_000]),
        pending_bytes_max=rng.choice([20_000, 8_000_000]),
        window_bytes_max=rng.choice([2000, 20_000, 1_000_000]),
        window_messages_max=rng.choice([3, 8, 64]),
        snapshot_log_bytes=rng.choice([2000, 6000, 20_000_000]),
        log_tail_bytes=rng.choice([0, 1500, 1_000_000]),
        sessions_max=rng.choice([2, 1000]),
        session_answers_max=rng.choice([20, 10_000]),
    )
    flipped = 0 if changes else rng.choice([0, rng.randint(1, replicas)])
    faults = [_make_up_fault(rng, replicas + spares, duration_ns) for _ in range(rng.randint(0, 10))]
    if flipped:
        faults += [_make_up_crash(rng, (flipped,), duration_ns) for _ in range(2)]
    return ReplicaPlan(
        replicas=replicas,
        spares=spares,
        duration_ns=duration_ns,
        settle_ns=SETTLE_NS,
        settings=settings,
        clients=tuple(_make_up_client(rng, duration_ns) for _ in range(rng.randint(1, 3))),
        network=NetworkSpec(
            bandwidth=Bandwidth(rng.choice([100, 1000]) * 1_000_000),
            delay=Duration(rng.randint(10_000, 2_000_000)),
            jitter=Duration(rng.randint(0, 200_000)),
            loss=rng.choice([0.0, 0.0, 0.01, 0.1]),
            duplicate=rng.choice([0.0, 0.0, 0.05]),
            reorder=rng.choice([0.0, 0.0, 0.05]),
            reorder_delay=Duration(rng.randint(100_000, 10 * MILLISECOND)),
        ),
        host=HostSpec(
            receive_cost=Duration(20_000),
            send_cost=Duration(5_000),
            clock_offset=Duration(rng.choice([0, SECOND])),
            clock_drift_ppm=rng.choice([0, 200, 10_000]),
        ),
        faults=tuple(faults),
        changes=tuple(_make_up_change(rng, replicas, spares, duration_ns) for _ in range(rng.randint(1, 5)))
        if changes
        else tuple(
            PlannedChange(rng.randrange(duration_ns), "transfer", rng.randint(1, replicas))
            for _ in range(rng.randint(0, 2))
        ),
        flipped=flipped,
        padding_bytes=rng.choice([0, 5000]),
    )


def _make_up_client(rng: RandomSource, duration_ns: int) -> ClientPlan:
    gap_ns = rng.choice([8, 20, 60]) * MILLISECOND
    return ClientPlan(
        commands=rng.randint(1, 2 * duration_ns // gap_ns),
        gap_ns=gap_ns,
        burst_max=rng.choice([1, 3, 10]),
        size=rng.choice([0, 20, 200, 2000]),
        reads=rng.choice([0.0, 0.3, 0.7]),
        lost=rng.choice([0.0, 0.0, 0.1, 0.3]),
    )


def _make_up_fault(rng: RandomSource, nodes: int, duration_ns: int) -> FaultSpec:
    some = tuple(sorted(rng.sample(range(1, nodes + 1), rng.choice([1, 1, rng.randint(1, nodes)]))))
    if rng.random() < 0.4:
        return _make_up_crash(rng, some, duration_ns)
    kinds = ["pause", "slow", "partition", "partition", "partition", "one_way", "loss", "burst", "duplicate", "reorder"]
    return FaultSpec(
        kind=rng.choice(kinds),  # type: ignore[arg-type]
        at=Duration(rng.randint(0, duration_ns - 1)),
        lasts=Duration(rng.randint(MILLISECOND, duration_ns)),
        nodes=some,
        rate=rng.choice([0.05, 0.2, 0.5]),
        length=float(rng.randint(2, 40)),
        factor=rng.choice([2, 10, 50]),
        delay=Duration(rng.randint(100_000, 20 * MILLISECOND)),
    )


def _make_up_crash(rng: RandomSource, nodes: tuple[int, ...], duration_ns: int) -> FaultSpec:
    """Make up that some die, most between two effects or over one, and come back soon or late."""
    return FaultSpec(
        kind="crash",
        at=Duration(rng.randint(0, duration_ns - 1)),
        lasts=Duration(rng.choice([5 * MILLISECOND, rng.randint(MILLISECOND, duration_ns)])),
        nodes=nodes,
        after=rng.choice([0, rng.randint(1, EFFECTS_MAX), rng.randint(1, EFFECTS_MAX)]),
    )


def _make_up_change(rng: RandomSource, replicas: int, spares: int, duration_ns: int) -> PlannedChange:
    at_ns = rng.randrange(duration_ns)
    match rng.choice(["add", "add", "remove", "transfer"]):
        case "add":
            return PlannedChange(at_ns, "add", rng.randint(replicas + 1, replicas + spares))
        case "remove":
            return PlannedChange(at_ns, "remove", rng.randint(1, replicas))
        case _:
            return PlannedChange(at_ns, "transfer", rng.randint(1, replicas))


def run_replica_seed(seed: int, protocol: str = CONSENSUS) -> SeedVerdict:  # noqa: ARG001 - as others are called
    """Run the world of one seed. A crash of our own code is a violation like any other."""
    try:
        result = ReplicaWorld(make_up_replicas(seed), seed).run()
    except Exception as error:
        return SeedVerdict(seed, (f"crash: {type(error).__name__}: {error}",), 0, "")
    return SeedVerdict(seed, tuple(map(str, result.violations)), result.events, result.trace_hash)
