"""The scenarios that come with Vivum, and how a name on the command line finds one."""

import os.path
from pathlib import Path

from vivum.node.build import PROTOCOLS
from vivum.sim.scenario import Scenario, ScenarioError, load_scenario
from vivum.sim.swarm import make_up

_FOLDER = Path(__file__).parent / "scenarios"
SWARM = "swarm"
"""`swarm:NAME` is the world of a seed for nodes of that protocol, and `swarm:NAME:minority` the one with its service in
the minority. `swarm` alone is a world of whole programs, and no scenario (`vivum.testing.swarm`)."""

MINORITY = "minority"
"""How such a world is named behind the protocol."""


def built_in_names() -> list[str]:
    """List the scenarios that come with Vivum."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def find_scenario(name: str, seed: int) -> Scenario:
    """Find a scenario: a TOML file, the name of a built-in one, or `swarm:NAME`, which is made up from the seed."""
    if name.startswith(f"{SWARM}:"):
        protocol, colon, kind = name.removeprefix(f"{SWARM}:").partition(":")
        if protocol not in PROTOCOLS:
            known = ", ".join(sorted(PROTOCOLS))
            raise ScenarioError(f"{name}: {protocol!r} is no protocol of nodes alone; known: {known}")
        if colon and kind != MINORITY:
            raise ScenarioError(f"{name}: {kind!r} is no kind of world; known: {MINORITY}")
        return make_up(seed, protocol, minority=bool(colon))
    path = Path(name)
    # Not `path.exists()`, which raises for a name that is too long to be one.
    if path.suffix == ".toml" or os.path.exists(name):
        return load_scenario(path)
    if name in built_in_names():
        return load_scenario(_FOLDER / f"{name}.toml")
    raise ScenarioError(
        f"{name}: no such scenario; give a TOML file, '{SWARM}:PROTOCOL', or one of {', '.join(built_in_names())}"
    )
