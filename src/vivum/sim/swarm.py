"""The swarm: worlds made up from a seed, to find what nobody thought of.

A seed decides the number of nodes, the groups, the traffic, the network and the faults. Every world has a safety
phase in which anything may fail, then heals, then a liveness phase at whose end everything that was accepted must
have been delivered or reported. `vivum sim run swarm:qsm --seed N` replays one. Whole programs have a swarm of their
own (`vivum.testing.swarm`), with what these worlds do not have: discovery, a service that nodes carry, names, readers.

Worlds of a protocol with a membership service have bounds too: lives and messages are lost only where a fault
explains it. Otherwise a protocol that gives up at once and reports everything would pass.
"""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Literal

import msgspec

from vivum.core.errors import UsageError
from vivum.core.randomness import RandomSource
from vivum.core.time import MILLISECOND, SECOND
from vivum.guarantees import Guarantee, bare_guarantee
from vivum.node.build import PROTOCOLS
from vivum.sim.scenario import (
    Bandwidth,
    Duration,
    FaultSpec,
    GroupsSpec,
    HostSpec,
    NetworkSpec,
    Scenario,
    TrafficSpec,
)
from vivum.sim.world import World

SAFETY = ("no_duplicate", "no_creation", "fifo", "bounded_queues")
LIVENESS = ("all_delivered",)
BOUNDS = ("lives_explained", "failures_explained")
SETTLE_NS = 20 * SECOND
"""Longer than any time-out of the protocols, so that what is not whole by then never will be."""

SETTLE_WITHOUT_SERVICE_NS = 40 * SECOND
"""The same, plus the time for a standby to take over and to find the nodes that died with the service."""

EFFECTS_MAX = 20
"""How many effects a host that crashes may still carry out."""

SETTLE_MINORITY_NS = 60 * SECOND
"""The same for two sides that went on for themselves: one of them has to give up, and its members to come back."""


def make_up(seed: int, protocol: str = "qsm", *, minority: bool = False) -> Scenario:
    """Make up the world of a seed. Protocols with a membership service get a harder one.

    With `minority` the world is also split for long, and the service is on the smaller side.
    """
    scenario = _make_up_world(seed, protocol)
    has_service = PROTOCOLS[protocol].make_service is not None
    if minority and not has_service:
        raise UsageError(f"protocol {protocol!r} has no configuration service that could be in the minority")
    if has_service:
        scenario = _make_harder(seed, scenario)
    scenario = _between_effects(seed, scenario)
    return _with_the_service_in_the_minority(seed, scenario) if minority else scenario


def _make_up_world(seed: int, protocol: str) -> Scenario:
    rng = RandomSource(seed).fork("swarm")
    nodes = rng.randint(2, 9)
    duration_ns = rng.randint(1, 4) * SECOND
    patterns: list[Literal["identical", "hierarchical", "random"]] = ["identical", "hierarchical", "random"]
    bandwidth_bps = rng.choice([10, 100, 1000]) * 1_000_000
    return Scenario(
        nodes=nodes,
        description=f"made up from seed {seed}",
        duration=Duration(duration_ns),
        settle=Duration(SETTLE_NS),
        protocol=protocol,
        checkers=SAFETY + LIVENESS,
        settings={"window_frames": rng.choice([16, 64, 1024])},
        network=NetworkSpec(
            bandwidth=Bandwidth(bandwidth_bps),
            delay=Duration(rng.randint(10_000, 2_000_000)),
            jitter=Duration(rng.randint(0, 200_000)),
            loss=rng.choice([0.0, 0.0, 0.01, 0.05]),
            duplicate=rng.choice([0.0, 0.0, 0.02]),
            reorder=rng.choice([0.0, 0.0, 0.02]),
        ),
        host=HostSpec(
            socket_bytes=rng.choice([16_384, 65_536, 212_992]),
            clock_offset=Duration(rng.choice([0, SECOND])),
            clock_drift_ppm=rng.choice([0, 200]),
        ),
        groups=GroupsSpec(count=rng.randint(1, 6), pattern=rng.choice(patterns), members=rng.randint(1, nodes)),
        traffic=tuple(_make_up_traffic(rng, nodes, bandwidth_bps) for _ in range(rng.randint(1, 2))),
        faults=tuple(_make_up_fault(rng, nodes, duration_ns) for _ in range(rng.randint(0, 6))),
    )


def _make_harder(seed: int, scenario: Scenario) -> Scenario:
    """Add what a membership service and shared recovery allow: more loss, joins and leaves, rings of few nodes.

    Draws from sources of its own, so that the worlds of protocols without these stay as they are. In two
    thirds of the worlds groups of several regions go the hybrid way, in half of those on one channel for all.
    """
    rng = RandomSource(seed).fork("swarm", "members")
    entry = bare_guarantee(PROTOCOLS[scenario.protocol].transport)
    if scenario.protocol != "qsm":
        return _make_harder_timely(seed, rng, scenario, entry)
    spread = RandomSource(seed).fork("swarm", "spread")
    spread_settings = {
        "spread_channels": spread.choice([0, 1, 256]),
        "spread_address_cost": 0.0,
        "spread_delay_ns": spread.choice([0, 50 * MILLISECOND, 300 * MILLISECOND]),
    }
    network = scenario.network
    changes = tuple(_make_up_change(rng, scenario) for _ in range(rng.choice([0, 0, 1, 2, 4])))
    harder = msgspec.structs.replace(
        scenario,
        checkers=(*entry.promises, "bounded_queues", *entry.liveness, *BOUNDS),
        settings={**scenario.settings, **spread_settings, "ring_nodes_max": rng.choice([2, 3, 4, 25, 25])},
        network=msgspec.structs.replace(network, loss=rng.choice([network.loss, network.loss, 0.1, 0.2])),
        faults=scenario.faults + changes,
    )
    # Slow members are mostly isolated: then most can go wrong.
    harder = msgspec.structs.replace(
        harder,
        settings={
            **harder.settings,
            "rate_rule": rng.choice(["lowest", "lowest", "mean"]),
            "drop_after_ns": rng.choice([300 * MILLISECOND, 5 * SECOND]),
        },
        groups=msgspec.structs.replace(
            harder.groups, slow=rng.choice(["isolate", "isolate", "isolate", "wait", "drop"])
        ),
    )
    return _without_its_service(rng, harder) if rng.random() < 0.25 else harder


def _make_harder_timely(seed: int, rng: RandomSource, scenario: Scenario, entry: Guarantee) -> Scenario:
    """The same for lateral error correction: more loss, joins and leaves, and (r, c), stride and time-outs drawn.

    In a quarter of the worlds what is missing is given up after a deadline; only in the others a message may not be
    lost while its sender lives.
    """
    draw = RandomSource(seed).fork("swarm", "timely")
    changes = tuple(_make_up_change(rng, scenario) for _ in range(rng.choice([0, 0, 1, 2, 4])))
    deadline_ns = draw.choice([0, 0, 0, 200 * MILLISECOND])
    network = scenario.network
    harder = msgspec.structs.replace(
        scenario,
        # Groups of bare protocols have no names: they promise what the entry of their transport does.
        checkers=(
            *entry.promises,
            "bounded_queues",
            *entry.liveness,
            *(() if deadline_ns else ("lost_with_sender", *BOUNDS)),
        ),
        settings={
            **scenario.settings,
            "repair_frames": draw.choice([1, 2, 8, 16]),
            "repair_copies": draw.choice([0, 1, 5, 5]),
            "stride": draw.choice([1, 3, 20]),
            "nak_ns": draw.choice([5 * MILLISECOND, 60 * MILLISECOND]),
            "history_frames": draw.choice([8, 4096]),
            "repairs_kept_max": draw.choice([0, 2, 256]),
            "wanted_recovery": draw.choice([0.0, 0.95]),
            "deadline_ns": deadline_ns,
        },
        network=msgspec.structs.replace(network, loss=rng.choice([network.loss, network.loss, 0.1, 0.2])),
        faults=scenario.faults + changes,
    )
    return _without_its_service(rng, harder) if rng.random() < 0.25 else harder


def _without_its_service(rng: RandomSource, scenario: Scenario) -> Scenario:
    """Let the service die in the second half. With it, one node at most: of three copies one must be left."""
    at_ns = rng.randint(scenario.duration // 2, scenario.duration - 1)
    lasts = rng.choice([None, Duration(rng.randint(MILLISECOND, scenario.duration))])
    died: set[int] = set()
    faults = [FaultSpec(kind="service_crash", at=Duration(at_ns), lasts=lasts)]
    for fault in scenario.faults:
        if fault.kind == "crash":
            if len(died | set(fault.nodes)) > 1:
                continue
            died |= set(fault.nodes)
        faults.append(fault)
    return msgspec.structs.replace(scenario, faults=tuple(faults), settle=Duration(SETTLE_WITHOUT_SERVICE_NS))


def _with_the_service_in_the_minority(seed: int, scenario: Scenario) -> Scenario:
    """Cut more than half of at least five nodes off for 6 to 24 s, time enough for both sides to act.

    Draws from a source of its own. Of the other faults those stay that neither stop a node nor cut it off; load and
    loss are low, so that the split is what goes wrong.
    """
    rng = RandomSource(seed).fork("swarm", "minority")
    nodes = max(scenario.nodes, 5)
    away = rng.sample(range(1, nodes + 1), rng.randint(nodes // 2 + 1, nodes - 1))
    split = FaultSpec(
        kind="partition",
        at=Duration(rng.randint(3 * SECOND, 5 * SECOND)),
        lasts=Duration(rng.randint(6 * SECOND, 24 * SECOND)),
        nodes=tuple(sorted(away)),
    )
    others = tuple(each for each in scenario.faults if each.kind in ("leave", "join", "loss", "duplicate", "reorder"))
    return msgspec.structs.replace(
        scenario,
        nodes=nodes,
        duration=Duration(30 * SECOND),
        settle=Duration(SETTLE_MINORITY_NS),
        faults=(split, *others),
        traffic=tuple(msgspec.structs.replace(each, rate=min(each.rate, 20.0)) for each in scenario.traffic),
        network=msgspec.structs.replace(scenario.network, loss=min(scenario.network.loss, 0.01)),
    )


def _between_effects(seed: int, scenario: Scenario) -> Scenario:
    """Let half of the crashes strike between two effects of a host, some time after the others.

    Draws from a source of its own.
    """
    rng = RandomSource(seed).fork("swarm", "effects")
    faults = tuple(
        msgspec.structs.replace(each, after=rng.choice([0, rng.randint(1, EFFECTS_MAX)]))
        if each.kind in ("crash", "service_crash")
        else each
        for each in scenario.faults
    )
    return msgspec.structs.replace(scenario, faults=faults)


def _make_up_change(rng: RandomSource, scenario: Scenario) -> FaultSpec:
    """Make up that some nodes leave or join some groups, for good or for a time."""
    nodes = rng.sample(range(1, scenario.nodes + 1), rng.randint(1, max(1, scenario.nodes // 2)))
    groups = rng.sample(range(1, scenario.groups.count + 1), rng.randint(1, scenario.groups.count))
    lasts_ns = rng.randint(MILLISECOND, scenario.duration)
    return FaultSpec(
        kind=rng.choice(["leave", "leave", "join"]),
        at=Duration(rng.randint(0, scenario.duration - 1)),
        lasts=rng.choice([None, Duration(lasts_ns)]),
        nodes=tuple(sorted(nodes)),
        groups=tuple(sorted(groups)),
    )


def _make_up_traffic(rng: RandomSource, nodes: int, bandwidth_bps: int) -> TrafficSpec:
    senders = sorted(rng.sample(range(1, nodes + 1), rng.randint(1, nodes)))
    size = rng.choice([0, 10, 100, 1000, 1500, 5000])
    # A link carries what all send. A quarter of it for each of two kinds of traffic leaves room to recover.
    rate_max = bandwidth_bps / 4 / 8 / (size + 200) / len(senders)
    return TrafficSpec(
        senders=tuple(senders),
        rate=min(rate_max, float(rng.choice([5, 20, 100, 300]))),
        size=size,
        arrival=rng.choice(["constant", "poisson"]),
        choose=rng.choice(["round_robin", "random"]),
    )


def _make_up_fault(rng: RandomSource, nodes: int, duration_ns: int) -> FaultSpec:
    kinds = ["crash", "pause", "slow", "partition", "one_way", "loss", "burst", "duplicate", "reorder"]
    some = rng.sample(range(1, nodes + 1), rng.randint(1, max(1, nodes // 2)))
    return FaultSpec(
        kind=rng.choice(kinds),  # type: ignore[arg-type]
        at=Duration(rng.randint(0, duration_ns - 1)),
        lasts=Duration(rng.randint(MILLISECOND, 2 * duration_ns)),
        nodes=tuple(sorted(some)),
        rate=rng.choice([0.05, 0.2, 0.5]),
        length=float(rng.randint(2, 40)),
        factor=rng.choice([2, 10, 50]),
        delay=Duration(rng.randint(100_000, 20 * MILLISECOND)),
    )


@dataclass(frozen=True, slots=True)
class SeedVerdict:
    """What became of one seed."""

    seed: int
    violations: tuple[str, ...]
    events: int
    trace_hash: str


def run_seed(seed: int, protocol: str = "qsm", *, minority: bool = False) -> SeedVerdict:
    """Run the world of one seed. A crash of our own code is a violation like any other."""
    scenario = make_up(seed, protocol, minority=minority)
    try:
        result = World(scenario, seed).run()
    except Exception as error:
        return SeedVerdict(seed, (f"crash: {type(error).__name__}: {error}",), 0, "")
    return SeedVerdict(seed, tuple(map(str, result.violations)), result.events, result.trace_hash)


def _leave_interrupts_to_the_parent() -> None:
    """Let a worker go on with its seed on Ctrl-C, which reaches the whole group: the parent sends no further ones."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_swarm(
    first_seed: int,
    count: int,
    jobs: int,
    protocol: str = "qsm",
    run: Callable[[int, str], SeedVerdict] = run_seed,
) -> Iterator[SeedVerdict]:
    """Run many seeds, in the order of seeds, on several processes. `run` runs one, for worlds of another kind."""
    seeds = range(first_seed, first_seed + count)
    if jobs == 1:
        for seed in seeds:
            yield run(seed, protocol)
        return
    pool = ProcessPoolExecutor(jobs, initializer=_leave_interrupts_to_the_parent)
    try:
        # One seed at a time: a seed is long beside the way to a worker, and when it is done the worker can be let go.
        yield from pool.map(run, seeds, [protocol] * count)
    finally:
        # On Ctrl-C, or when the caller has seen enough: leave nothing behind.
        pool.shutdown(cancel_futures=True)
