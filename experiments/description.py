"""What an experiment is, as data: a scenario, what varies in it, what is measured, what is shown.

A TOML file beside this module. `scenario` has the keys of scenario files (`vivum.sim.scenario`) but for `duration`,
which follows from `measure`. Each table of `sweep` is a grid: keys are paths into the scenario (`"traffic.0.senders"`),
or `variant`, which names a table of `variants` that is laid over the scenario, or `measure.duration` and
`measure.warm_up`; values are lists.
The string `"$nodes"` stands for the number of nodes. Points are independent of each other and of where they run.
"""

import hashlib
import json
import tomllib
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from vivum.core.errors import UsageError
from vivum.core.time import format_duration, parse_duration_ns

FOLDER = Path(__file__).parent
VARIANT = "variant"
DURATION = "measure.duration"
WARM_UP = "measure.warm_up"

Axes = dict[str, Any]
"""Where a point lies: the value on each axis of the sweep."""


class MeasureSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """When to measure: after the warm-up, for a time, with a look at the state in every `sample`."""

    warm_up: str = "1s"
    duration: str = "1s"
    sample: str = "1ms"


class QuickSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """A small form of the experiment, to see that it runs."""

    sweep: list[dict[str, list[Any]]]
    duration: str = "200ms"


class PlotSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """One picture: measured `y` over `x`, an axis or a measured number, one line for each value of the axis `by`.

    `where` picks points by their axes, `only_axes` those of grids with just these axes. `by_label` has a place, `{}`,
    for the value of `by`. `lines` are levels to compare with.
    """

    file: str
    title: str
    x: str
    y: dict[str, str]
    x_label: str
    y_label: str
    by: str = ""
    by_label: str = "{}"
    log_x: bool = False
    log_y: bool = False
    lines: dict[str, float] = {}
    only_axes: list[str] = []
    where: Axes = {}


class ColumnSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """One column of the table: an axis or a measured number, its heading, its decimals."""

    value: str
    heading: str
    decimals: int = 0
    scale: float = 1.0


class Experiment(Struct, forbid_unknown_fields=True, frozen=True):
    """A whole experiment. `baseline`: on which values of which axes lie the points that others are compared with."""

    title: str
    figures: str
    scenario: dict[str, Any]
    sweep: list[dict[str, list[Any]]]
    quick: QuickSpec
    measure: MeasureSpec = MeasureSpec()
    variants: dict[str, dict[str, Any]] = {}
    baseline: Axes = {}
    seeds: tuple[int, ...] = (1,)
    plots: list[PlotSpec] = []
    table: list[ColumnSpec] = []


class PointParameters(Struct, frozen=True):
    """All that decides the result of a point, but for its seed and the code."""

    scenario: dict[str, Any]
    warm_up_ns: int
    duration_ns: int
    sample_ns: int

    def digest(self, seed: int) -> str:
        """Name the point: the same for the same parameters and seed."""
        text = json.dumps([msgspec.to_builtins(self), seed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Point(Struct, frozen=True):
    """One run of an experiment."""

    axes: Axes
    parameters: PointParameters
    seed: int


def names() -> list[str]:
    """List the experiments that there are."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Experiment:
    """Read an experiment by its name, or from a TOML file."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.exists():
        raise UsageError(f"{name}: no such experiment; there are {', '.join(names())}")
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Experiment)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {error}") from error


def points(experiment: Experiment, *, quick: bool = False) -> list[Point]:
    """List all points: every combination of every grid, for every seed."""
    found = []
    for grid in experiment.quick.sweep if quick else experiment.sweep:
        for values in product(*grid.values()):
            axes = dict(zip(grid, values, strict=True))
            measure = experiment.measure
            duration = experiment.quick.duration if quick else axes.get(DURATION, measure.duration)
            parameters = PointParameters(
                _scenario_at(experiment, axes),
                parse_duration_ns(axes.get(WARM_UP, measure.warm_up)),
                parse_duration_ns(duration),
                parse_duration_ns(measure.sample),
            )
            parameters.scenario["duration"] = format_duration(parameters.warm_up_ns + parameters.duration_ns)
            found += [Point(axes, parameters, seed) for seed in experiment.seeds]
    return found


def _scenario_at(experiment: Experiment, axes: Axes) -> dict[str, Any]:
    scenario = deepcopy(experiment.scenario)
    for path, value in axes.items():
        if path == VARIANT:
            if value not in experiment.variants:
                raise UsageError(f"variant {value!r} is unknown; there are {', '.join(experiment.variants)}")
            scenario.update(deepcopy(experiment.variants[value]))
    for path, value in axes.items():
        if path not in (VARIANT, DURATION, WARM_UP):
            _set(scenario, path, value)
    resolved: dict[str, Any] = _resolve(scenario, scenario["nodes"])
    return resolved


def default_of(experiment: Experiment, path: str) -> Any:
    """Tell what an axis is where a grid leaves it alone; None if the experiment does not say."""
    of_measure = {DURATION: experiment.measure.duration, WARM_UP: experiment.measure.warm_up}
    where: Any = of_measure.get(path, experiment.scenario)
    for step in path.split(".") if path not in of_measure else ():
        where = where[int(step)] if isinstance(where, list) else where.get(step) if isinstance(where, dict) else None
    return where


def _set(scenario: dict[str, Any], path: str, value: Any) -> None:
    *steps, last = path.split(".")
    where: Any = scenario
    for step in steps:
        where = where[int(step)] if isinstance(where, list) else where.setdefault(step, {})
    where[last] = value


def _resolve(value: Any, nodes: int) -> Any:
    """Put the number of nodes in the place of `"$nodes"`."""
    if isinstance(value, dict):
        return {key: _resolve(each, nodes) for key, each in value.items()}
    if isinstance(value, list):
        return [_resolve(each, nodes) for each in value]
    return nodes if value == "$nodes" else value
