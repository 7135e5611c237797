"""Results as JSON lines: one line for each finished point, with the code that made it.

A result belongs to the code that made it: after a change of `vivum` a point counts as not finished.
"""

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

import vivum
from experiments.description import Axes, Point


class Outcome(Struct, frozen=True):
    """What a point gave."""

    key: str
    axes: Axes
    seed: int
    commit: str
    source: str
    wall_s: float
    rss_mb: float
    numbers: dict[str, float]


class ResultFile:
    """The results of one experiment; new ones are added at the end, and the last of a key counts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Outcome]:
        """Read all outcomes, whatever code made them. A line that was cut off by a crash is left out."""
        found = {}
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                try:
                    outcome = msgspec.json.decode(line, type=Outcome)
                except msgspec.DecodeError:
                    continue
                found[outcome.key] = outcome
        return found

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(msgspec.to_builtins(outcome)) + "\n")


def pending(points: list[Point], done: dict[str, Outcome], source: str) -> list[Point]:
    """Pick the points that this code has not finished yet."""

    def is_done(point: Point) -> bool:
        outcome = done.get(point.parameters.digest(point.seed))
        return outcome is not None and outcome.source == source

    return [point for point in points if not is_done(point)]


def outcomes_of(points: list[Point], done: dict[str, Outcome]) -> list[Outcome]:
    """Find what is known of these points, in their order."""
    keys = [point.parameters.digest(point.seed) for point in points]
    return [done[key] for key in keys if key in done]


def compared(outcomes: list[Outcome], baseline: Axes) -> list[Outcome]:
    """Add `rate_relative`: the rate as a share of that of the point that differs only by lying on the baseline."""

    def place(axes: Axes) -> str:
        return json.dumps({**axes, **baseline}, sort_keys=True)

    base = {
        place(each.axes): each.numbers["rate_median"]
        for each in outcomes
        if all(each.axes.get(path) == value for path, value in baseline.items())
    }
    return [
        msgspec.structs.replace(each, numbers={**each.numbers, "rate_relative": each.numbers["rate_median"] / rate})
        if baseline and (rate := base.get(place(each.axes)))
        else each
        for each in outcomes
    ]


def code_identity() -> tuple[str, str]:
    """Name the code under test: the commit, marked when files differ from it, and a digest of all its sources."""
    package = Path(vivum.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py*")):
        if path.suffix in (".py", ".pyx", ".pxd"):
            digest.update(str(path.relative_to(package)).encode() + path.read_bytes())
    commit = _git(package, "rev-parse", "--short", "HEAD")
    if _git(package, "status", "--porcelain", "--", "."):
        commit += "+changes"
    return commit or "unknown", digest.hexdigest()[:8]


def _git(folder: Path, *words: str) -> str:
    found: Any = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    return str(found.stdout).strip() if found.returncode == 0 else ""
