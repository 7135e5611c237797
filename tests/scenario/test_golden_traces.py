"""Scenarios whose whole timeline is kept beside them, line by line, and reviewed as a difference."""

from pathlib import Path

import pytest

from vivum.sim.scenario import load_scenario
from vivum.sim.timeline import line_of
from vivum.sim.world import World

FOLDER = Path(__file__).parent
SEED = 1


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_a_scenario_goes_as_it_went(path: Path, rewrite: bool) -> None:
    lines: list[str] = []
    scenario = load_scenario(path)
    result = World(scenario, SEED, lambda record: lines.append(line_of(record))).run()
    assert result.violations == []
    golden = path.with_suffix(".trace")
    if rewrite:
        golden.write_text("\n".join([f"# {scenario.description}", *lines, ""]), encoding="utf-8")
    expected = golden.read_text(encoding="utf-8").splitlines()
    assert lines == expected[1:], f"{path.name} goes another way; if that is right: pytest tests/scenario --rewrite"


def test_every_trace_has_its_scenario() -> None:
    assert {path.stem for path in FOLDER.glob("*.trace")} == {path.stem for path in FOLDER.glob("*.toml")}
