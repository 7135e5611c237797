"""One seed decides everything: the same trace in two runs and in two processes, whatever the hash seed."""

import pytest

from elsewhere import hash_elsewhere
from vivum.sim.library import find_scenario
from vivum.sim.swarm import make_up, run_seed
from vivum.sim.world import Result, World


def run(name: str, seed: int) -> Result:
    return World(find_scenario(name, seed), seed).run()


def test_the_same_seed_gives_the_same_trace_twice_in_one_process() -> None:
    first, second = run("swarm:qsm", 11), run("swarm:qsm", 11)
    assert first == second
    assert len(first.trace_hash) == 32
    assert first.records > 1000


def test_another_seed_gives_another_trace_of_the_same_scenario() -> None:
    scenario = make_up(11)
    assert World(scenario, 11).run().trace_hash != World(scenario, 12).run().trace_hash


def test_looking_on_does_not_change_what_happens() -> None:
    scenario = make_up(11)
    seen: list[object] = []
    watched = World(scenario, 11, seen.append).run()
    assert watched.trace_hash == World(scenario, 11).run().trace_hash
    assert len(seen) == watched.records
    quiet = World(scenario, 11, frames=False, checked=False).run()
    assert (quiet.events, quiet.arrivals, quiet.delivered) == (watched.events, watched.arrivals, watched.delivered)


def test_stopping_to_look_does_not_change_what_happens() -> None:
    scenario = make_up(11)
    world = World(scenario, 11)
    world.start()
    for at_ns in range(0, world.end_ns, 77_777_777):
        world.advance_to(at_ns)
    world.advance_to(world.end_ns)
    assert world.finish().trace_hash == World(scenario, 11).run().trace_hash


@pytest.mark.slow
def test_the_same_seed_gives_the_same_trace_in_processes_with_different_hash_seeds() -> None:
    seeds = ("0", "1", "4242")
    hashes = {hash_elsewhere("vivum.sim.swarm", "run_seed", 11, PYTHONHASHSEED=each) for each in seeds}
    assert hashes == {run_seed(11).trace_hash}


@pytest.mark.slow
def test_the_plain_python_codec_gives_the_same_trace_as_the_compiled_one() -> None:
    compiled, pure = (hash_elsewhere("vivum.sim.swarm", "run_seed", 11, VIVUM_PURE=each) for each in ("0", "1"))
    assert compiled == pure
