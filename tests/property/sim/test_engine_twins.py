"""The compiled parts of the simulator and their plain-Python twins: the same events at the same nanosecond."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivum.core.ids import Channel, Endpoint, NodeId
from vivum.core.randomness import RandomSource
from vivum.core.time import SECOND
from vivum.sim import engine, network, scheduler
from vivum.sim.library import find_scenario
from vivum.sim.loss import BurstLoss, IndependentLoss
from vivum.sim.network import LinkProfile
from vivum.sim.scenario import parse_scenario
from vivum.sim.world import World

pytestmark = pytest.mark.skipif(not engine.COMPILED, reason="the simulator was not compiled")

CHANNEL = Channel(1)
CHOOSERS = ("engine", "host", "faults", "workload", "world")
"""Modules that hold what `engine` chose."""


@contextmanager
def _without_the_compiled_engine() -> Iterator[None]:
    names = [f"vivum.sim.{name}" for name in CHOOSERS]
    held = {name: sys.modules.pop(name) for name in names}
    compiled = sys.modules["vivum.sim._engine"]
    # None makes the import fail, as where it was not built.
    sys.modules["vivum.sim._engine"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.modules |= {**held, "vivum.sim._engine": compiled}


@pytest.fixture(scope="module")
def plain_world() -> Callable[..., Any]:
    """The class `World` on the twins."""
    with _without_the_compiled_engine():
        made = importlib.import_module("vivum.sim.world")
    assert made.Scheduler is scheduler.Scheduler
    assert made.Network is network.Network
    return made.World  # type: ignore[no-any-return]


ROUGH = {
    "nodes": 8,
    "duration": "600ms",
    "settle": "500ms",
    "groups": {"count": 4, "pattern": "hierarchical"},
    "network": {"loss": 0.02, "jitter": "300us", "duplicate": 0.01, "reorder": 0.01, "egress_bytes": 20_000},
    "host": {
        "memory_cost": 0.3,
        "clock_offset": "3s",
        "clock_drift_ppm": 200,
        "socket_bytes": 20_000,
        "inbox_bytes": 8_000,
    },
    "traffic": [
        {"senders": 2, "rate": "max", "size": 700},
        {"senders": 8, "rate": 200.0, "size": 3000, "arrival": "poisson"},
    ],
    "faults": [
        {"kind": "pause", "at": "50ms", "lasts": "40ms", "every": "100ms", "nodes": [3]},
        {"kind": "slow", "at": "80ms", "lasts": "100ms", "factor": 7, "nodes": [4, 5]},
        {"kind": "crash", "at": "150ms", "lasts": "60ms", "nodes": [6]},
        {"kind": "partition", "at": "250ms", "lasts": "60ms", "nodes": [1, 2, 3]},
        {"kind": "burst", "at": "350ms", "lasts": "100ms", "rate": 0.2, "nodes": [7]},
    ],
}


@pytest.mark.parametrize("protocol", ["reference", "qsm"])
def test_a_rough_world_has_the_same_trace(plain_world: Callable[..., Any], protocol: str) -> None:
    scenario = parse_scenario({**ROUGH, "protocol": protocol}, "rough")
    compiled = World(scenario, 5).run()
    assert asdict(compiled) == asdict(plain_world(scenario, 5).run())
    assert compiled.losses.keys() >= {"link", "partition", "socket buffer full"}
    assert compiled.records > 5000


@pytest.mark.parametrize("seed", [3, 7, 11, 20, 23])
def test_a_world_of_the_swarm_has_the_same_trace(plain_world: Callable[..., Any], seed: int) -> None:
    scenario = find_scenario("swarm:qsm", seed)
    assert asdict(World(scenario, seed).run()) == asdict(plain_world(scenario, seed).run())


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30)), max_size=80),
    st.lists(st.integers(0, 100), max_size=6),
)
def test_schedulers_run_the_same_events_in_the_same_order(events: list[tuple[int, int]], stops: list[int]) -> None:
    def run(form: Any) -> list[Any]:
        agenda, seen = form.Scheduler(), []

        def act(argument: tuple[int, int]) -> None:
            number, again_ns = argument
            seen.append((agenda.now_ns, number))
            if again_ns:
                agenda.at(agenda.now_ns + again_ns - 1, act, (number + 1000, 0))

        for number, (at_ns, again_ns) in enumerate(events):
            agenda.at(at_ns, act, (number, again_ns))
        for stop_ns in (*sorted(stops), 200):
            agenda.run_until(stop_ns)
            seen.append((agenda.now_ns, agenda.events, agenda.idle))
        return seen

    assert run(engine) == run(scheduler)


class Listener:
    """A computer that does nothing but write down what arrives, and when."""

    incarnation = 1

    def __init__(self, node_id: int, agenda: Any, seen: list[Any]) -> None:
        self.node_id = NodeId(node_id)
        self.endpoint = Endpoint(f"node-{node_id}", 1)
        self.frame_trace = seen.append
        self._agenda = agenda
        self._seen = seen

    def on_arrival(self, packet: Any) -> None:
        self._seen.append((self._agenda.now_ns, self.node_id, packet.source, packet.destination, packet.data))


PROFILES = st.builds(
    LinkProfile,
    st.sampled_from([64_000, 8_000_000, 100_000_000, 100_000_000_000]),
    st.integers(0, 1_000_000),
    st.sampled_from([0, 10_000, 1_000_000, 20 * SECOND]),
    st.sampled_from([1000, 100_000]),
    st.sampled_from([1000, 100_000, 1 << 40]),
)
SENDS = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 5), st.integers(0, 4000), st.integers(0, 2_000_000)), max_size=40
)


@given(PROFILES, SENDS, st.sets(st.sampled_from(["loss", "burst", "duplicates", "reorders", "blocks"])))
def test_networks_carry_lose_and_delay_the_same(
    profile: LinkProfile, sends: list[tuple[int, int, int, int]], faults: set[str]
) -> None:
    def run(scheduler_of: Any, network_of: Any) -> list[Any]:
        agenda, seen = scheduler_of.Scheduler(), []
        net = network_of.Network(agenda, profile)
        for number in range(1, 5):
            listener = Listener(number, agenda, seen)
            port = net.attach(listener, RandomSource(9).fork(number))
            net.listen(CHANNEL, listener.node_id)
            if number == 2:
                continue
            port.loss.extend([IndependentLoss(0.2)] * ("loss" in faults) + [BurstLoss(0.2, 2.0)] * ("burst" in faults))
            port.duplicates.extend([0.3] * ("duplicates" in faults))
            port.reorders.extend([(0.3, 3_000_000)] * ("reorders" in faults))
            port.blocks.extend([frozenset({NodeId(2)})] * ("blocks" in faults))
            port.update()
        for source, target, size, later_ns in sends:
            port = net.port(NodeId(source))
            where = CHANNEL if target == 0 else Endpoint(f"node-{target}", 1)
            net.send(port, agenda.now_ns + later_ns, where, bytes(size))
            seen.append((port.egress_free_ns, net.egress_room_bytes(port), net.wire_time_ns(size)))
            agenda.run_until(agenda.now_ns + later_ns // 2)
        net.unlisten(CHANNEL, NodeId(3))
        net.port(NodeId(1)).heal()
        agenda.run_until(1000 * SECOND)
        return [*seen, net.arrivals, net.losses, agenda.events, net.port(NodeId(1)).disturbed]

    assert run(engine, engine) == run(scheduler, network)
