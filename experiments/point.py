"""One point of an experiment: a pure function from parameters and seed to numbers."""

from experiments.description import PointParameters
from experiments.measuring.numbers import Numbers
from experiments.measuring.probe import Probe
from vivum.observe.trace import Tracer
from vivum.sim.scenario import parse_scenario
from vivum.sim.world import World


def point(parameters: PointParameters, seed: int, trace: Tracer | None = None) -> Numbers:
    """Run the scenario of a point and measure it. The same arguments give the same numbers, on any machine.

    `trace` gets what happened to messages, groups and views, from the beginning; it changes no number.
    """
    world = World(parse_scenario(parameters.scenario, "point"), seed, trace, frames=False, checked=False)
    probe = Probe(world)
    world.start()
    world.advance_to(parameters.warm_up_ns)
    probe.begin()
    stop_ns = parameters.warm_up_ns + parameters.duration_ns
    for at_ns in range(parameters.warm_up_ns + parameters.sample_ns, stop_ns + 1, parameters.sample_ns):
        world.advance_to(at_ns)
        probe.sample()
    return probe.end()
