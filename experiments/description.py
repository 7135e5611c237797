"""What an experiment is, as data: a scenario, what varies in it, what is measured, what is shown.

A TOML file beside this module. `scenario` has the keys of scenario files (`vivum.sim.scenario`) but for `duration`,
which follows from `measure`. Each table of `sweep` is a grid: keys are paths into the scenario (`"traffic.0.senders"`;
several with commas between them get the same value), or `variant` and `variant.*`, or `measure.duration` and
`measure.warm_up`; values are lists. The string `"$nodes"` stands for the number of nodes. Points are independent of
each other and of where they run.

A variant is a table of `variants`, or of the folder `variants`, where those lie that several experiments have. It is
laid over the scenario, its `measure` over when to measure: one after the other, if a grid has several such keys.

Every point is run with several seeds. A seed decides what is random in a world (losses, the jitter of each link, the
choices of nodes and applications), and when each sender begins and each fault strikes: up to `measure.phase` later than
the scenario says, so that runs do not meet the tokens at the same moment.
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
from vivum.core.randomness import RandomSource
from vivum.core.time import MICROSECOND, format_duration, parse_duration_ns

FOLDER = Path(__file__).parent
COMMON = FOLDER / "variants"
DURATION = "measure.duration"
WARM_UP = "measure.warm_up"

Axes = dict[str, Any]
"""Where a point lies: the value on each axis of the sweep."""


class MeasureSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """When to measure: after the warm-up, for a time, with a look at the state in every `sample`.

    Senders and faults begin up to `phase` later than told, as the seed decides.
    """

    warm_up: str = "1s"
    duration: str = "1s"
    sample: str = "1ms"
    phase: str = "100ms"


class QuickSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """A small form of the experiment, to see that it runs."""

    sweep: list[dict[str, list[Any]]]
    duration: str = "200ms"


class CurveSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """A curve that others measured, to compare with."""

    x: list[float]
    y: list[float]


class PlotSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """One picture: measured `y` over `x`, an axis or a measured number, one line for each value of the axis `by`.

    `where` picks points by their axes, `only_axes` those of grids with just these axes. `by_label` has a place, `{}`,
    for the value of `by`. `lines` are levels to compare with, `curves` what others measured; both as they are, while
    measured values are multiplied by `scale`.
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
    curves: dict[str, CurveSpec] = {}
    scale: float = 1.0
    only_axes: list[str] = []
    where: Axes = {}


class ColumnSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """One column of the table: an axis or a measured number, its heading, its decimals.

    Where a table is too wide for a page it becomes several, and columns of axes stand in each of them.
    """

    value: str
    heading: str
    decimals: int = 0
    scale: float = 1.0


class TargetSpec(Struct, forbid_unknown_fields=True, frozen=True):
    """What is asked of a number: at every point that `where` picks, with every seed, it is at least this."""

    text: str
    value: str
    least: float
    where: Axes = {}


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
    seeds: tuple[int, ...] = (1, 2, 3)
    plots: list[PlotSpec] = []
    table: list[ColumnSpec] = []
    targets: list[TargetSpec] = []


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

    @property
    def key(self) -> str:
        """Its name."""
        return self.parameters.digest(self.seed)


def names() -> list[str]:
    """List the experiments that there are."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Experiment:
    """Read an experiment by its name, or from a TOML file."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.exists():
        raise UsageError(f"{name}: no such experiment; there are {', '.join(names())}")
    try:
        experiment = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Experiment)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {error}") from error
    return msgspec.structs.replace(experiment, variants={**_common_variants(), **experiment.variants})


def _common_variants() -> dict[str, dict[str, Any]]:
    tables = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(COMMON.glob("*.toml"))]
    return {table.pop("name"): table for table in tables}


def shortened(experiment: Experiment) -> Experiment:
    """Return the quick form of an experiment: few points, all of them short."""
    variants = deepcopy(experiment.variants)
    for table in variants.values():
        table.get("measure", {}).pop("duration", None)
    measure = msgspec.structs.replace(experiment.measure, duration=experiment.quick.duration)
    return msgspec.structs.replace(experiment, sweep=experiment.quick.sweep, measure=measure, variants=variants)


def points(experiment: Experiment) -> list[Point]:
    """List all points: every combination of every grid, for every seed."""
    found = []
    for grid in experiment.sweep:
        for values in product(*grid.values()):
            axes = dict(zip(grid, values, strict=True))
            scenario, measure = _scenario_at(experiment, axes)
            warm_up_ns, duration_ns, sample_ns, phase_ns = map(parse_duration_ns, msgspec.structs.astuple(measure))
            scenario["duration"] = format_duration(warm_up_ns + duration_ns)
            for seed in experiment.seeds:
                staggered = _stagger(scenario, phase_ns, seed)
                found.append(Point(axes, PointParameters(staggered, warm_up_ns, duration_ns, sample_ns), seed))
    return found


def measure_at(experiment: Experiment, axes: Axes) -> MeasureSpec:
    """Return when a point is measured."""
    return _scenario_at(experiment, axes)[1]


def _stagger(scenario: dict[str, Any], phase_ns: int, seed: int) -> dict[str, Any]:
    """Let every sender and every fault begin a little later, each by a draw of its own."""
    random = RandomSource(seed).fork("phase")

    def later(start: str, *name: str | int) -> str:
        return f"{(parse_duration_ns(start) + random.fork(*name).randrange(phase_ns + 1)) // MICROSECOND}us"

    traffic = [
        {**each, "senders": [sender], "start": later(each.get("start", "0s"), "traffic", index, sender)}
        for index, each in enumerate(scenario.get("traffic", []))
        for sender in _senders(each)
    ]
    faults = [
        {**each, "at": later(each["at"], "fault", index)} for index, each in enumerate(scenario.get("faults", []))
    ]
    return {**scenario, "traffic": traffic, "faults": faults}


def _senders(traffic: dict[str, Any]) -> list[int]:
    senders = traffic.get("senders", 1)
    return list(range(1, senders + 1)) if isinstance(senders, int) else senders


def _scenario_at(experiment: Experiment, axes: Axes) -> tuple[dict[str, Any], MeasureSpec]:
    """Return the scenario of a point, and when it is measured."""
    scenario = deepcopy(experiment.scenario)
    times: dict[str, str] = {}
    for path, value in axes.items():
        if _is_variant(path):
            if value not in experiment.variants:
                raise UsageError(f"variant {value!r} is unknown; there are {', '.join(experiment.variants)}")
            variant = deepcopy(experiment.variants[value])
            times.update(variant.pop("measure", {}))
            scenario.update(variant)
    for path, value in axes.items():
        if path in (DURATION, WARM_UP):
            times[path.removeprefix("measure.")] = value
        elif not _is_variant(path):
            for each in path.split(","):
                _set(scenario, each, value)
    measure = msgspec.convert({**msgspec.structs.asdict(experiment.measure), **times}, MeasureSpec)
    return _resolve(scenario, scenario["nodes"]), measure


def _is_variant(path: str) -> bool:
    return path.partition(".")[0] == "variant"


def default_of(experiment: Experiment, path: str) -> Any:
    """Return what an axis is where a grid leaves it alone; or None if the experiment does not say."""
    of_measure = {DURATION: experiment.measure.duration, WARM_UP: experiment.measure.warm_up}
    where: Any = of_measure.get(path, experiment.scenario)
    for step in path.partition(",")[0].split(".") if path not in of_measure else ():
        where = where[int(step)] if isinstance(where, list) else where.get(step) if isinstance(where, dict) else None
    return where


def _set(scenario: dict[str, Any], path: str, value: Any) -> None:
    *steps, last = path.split(".")
    where: Any = scenario
    for step in steps:
        where = where[int(step)] if isinstance(where, list) else where.setdefault(step, {})
    where[last] = value


def _resolve(scenario: dict[str, Any], nodes: int) -> dict[str, Any]:
    """Put the number of nodes in the place of `"$nodes"`."""

    def resolve(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: resolve(each) for key, each in value.items()}
        if isinstance(value, list):
            return [resolve(each) for each in value]
        return nodes if value == "$nodes" else value

    return {key: resolve(value) for key, value in scenario.items()}
