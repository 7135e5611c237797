"""Outcomes of points, and what the seeds of a point say together.

An outcome belongs to the code that made it: after a change of what a simulation runs, or of what measures it, a point
counts as not finished.
"""

import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

import vivum
from experiments.description import FOLDER, Axes, Point

SIMULATED = ("checkers", "core", "node", "observe", "protocols", "sim", "wire", "guarantees.py")
"""What a simulation runs of `vivum`. The rest (sockets, console, pipeline) changes no number."""

MEASURING = ("point.py", "measuring")
"""What of the experiments decides numbers."""


class Outcome(Struct, frozen=True):
    """What one run of a point gave."""

    key: str
    axes: Axes
    seed: int
    commit: str
    source: str
    wall_s: float
    rss_mb: float
    numbers: dict[str, float]


class Spread(NamedTuple):
    """A number over the seeds of a point."""

    mean: float
    least: float
    most: float

    @property
    def deviation(self) -> float:
        """How far the seed that is farthest from the mean lies from it."""
        return max(self.most - self.mean, self.mean - self.least)


class Summary(Struct, frozen=True):
    """What the runs of a point gave, one for each seed."""

    axes: Axes
    seeds: tuple[int, ...]
    numbers: dict[str, Spread]


def pending(points: Iterable[Point], done: Mapping[str, Outcome], source: str) -> list[Point]:
    """Pick the points that this code has not finished yet."""

    def is_done(point: Point) -> bool:
        outcome = done.get(point.key)
        return outcome is not None and outcome.source == source

    return [point for point in points if not is_done(point)]


def outcomes_of(points: Iterable[Point], done: Mapping[str, Outcome]) -> list[Outcome]:
    """Find what is known of these points, in their order."""
    return [done[point.key] for point in points if point.key in done]


def compared(outcomes: list[Outcome], baseline: Axes) -> list[Outcome]:
    """Add `rate_relative`: the rate as a share of that of the point that differs only by lying on the baseline.

    Each seed is compared with itself.
    """

    def place(outcome: Outcome) -> str:
        return json.dumps([{**outcome.axes, **baseline}, outcome.seed], sort_keys=True)

    base = {
        place(each): each.numbers["rate_median"]
        for each in outcomes
        if all(each.axes.get(path) == value for path, value in baseline.items())
    }
    return [
        msgspec.structs.replace(each, numbers={**each.numbers, "rate_relative": each.numbers["rate_median"] / rate})
        if baseline and (rate := base.get(place(each)))
        else each
        for each in outcomes
    ]


def summarize(outcomes: Iterable[Outcome]) -> list[Summary]:
    """Put the seeds of each point together, in the order of the points. What a seed lacks, the others say."""
    groups: dict[str, list[Outcome]] = {}
    for each in outcomes:
        groups.setdefault(json.dumps(each.axes), []).append(each)
    found = []
    for runs in groups.values():
        known = [{**each.numbers, "wall_s": each.wall_s, "rss_mb": each.rss_mb} for each in runs]
        names = dict.fromkeys(name for each in known for name in each)
        values = {name: [each[name] for each in known if name in each] for name in names}
        numbers = {name: Spread(fmean(each), min(each), max(each)) for name, each in values.items()}
        found.append(Summary(runs[0].axes, tuple(each.seed for each in runs), numbers))
    return found


def code_identity() -> tuple[str, str]:
    """Name the code under test: the commit, marked when files differ from it, and a digest of what decides numbers."""
    package = Path(vivum.__file__).parent
    digest = hashlib.sha256()
    for home, names in ((package, SIMULATED), (FOLDER, MEASURING)):
        for path in sorted(each for name in names for each in _sources(home / name)):
            digest.update(str(path.relative_to(home)).encode() + path.read_bytes())
    commit = _git(package, "rev-parse", "--short", "HEAD")
    if _git(package, "status", "--porcelain", "--", ".", str(FOLDER)):
        commit += "+changes"
    return commit or "unknown", digest.hexdigest()[:8]


def _sources(path: Path) -> list[Path]:
    found = path.rglob("*.py*") if path.is_dir() else [path]
    return [each for each in found if each.suffix in (".py", ".pyx", ".pxd")]


def _git(folder: Path, *words: str) -> str:
    found: Any = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    return str(found.stdout).strip() if found.returncode == 0 else ""
