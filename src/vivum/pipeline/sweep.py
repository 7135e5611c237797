"""Sweeps: the points of an experiment as a Spark job, one task a simulation.

Each task runs its point with the runner of `experiments/` (a process of its own, so that its memory can be told) and
writes the result as one small Parquet file under a hidden name, then renames it. So a sweep that is stopped loses only
what was running, and the same command goes on. A point that fails is tried once more; what fails twice is reported.

With a cluster, the folder of results must be one that all workers see.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import msgspec
import pyarrow
import pyarrow.parquet
from pyspark.sql import SparkSession

from vivum.core.errors import UsageError
from vivum.storage.errors import StorageError

TRIES = 2
_POLL_S = 0.5
RESULT = pyarrow.schema(
    [
        ("key", pyarrow.string()),
        ("axes", pyarrow.string()),
        ("seed", pyarrow.int64()),
        ("commit", pyarrow.string()),
        ("source", pyarrow.string()),
        ("wall_s", pyarrow.float64()),
        ("rss_mb", pyarrow.float64()),
        ("numbers", pyarrow.map_(pyarrow.string(), pyarrow.float64())),
    ]
)


@dataclass(frozen=True)
class SweepReport:
    """How a sweep went: how many points there are, were there before, and failed twice with which words."""

    points: int
    before: int
    failed: dict[str, str]
    outcomes: list[Any]


class Sweep:
    """One experiment, its points, and the folder of its results."""

    def __init__(self, description: Path, out: Path, *, quick: bool = False, traces: bool = False) -> None:
        self.home = import_experiments(description)
        self._modules = {name: importlib.import_module(f"experiments.{name}") for name in ("description", "results")}
        self.experiment = self._modules["description"].load(str(description))
        self.points = self._modules["description"].points(self.experiment, quick=quick)
        self.out = out.absolute() / (description.stem + ("-quick" if quick else ""))
        self.traces = self.out / "traces" if traces else None
        self.commit, self.source = self._modules["results"].code_identity()

    def done(self) -> dict[str, Any]:
        """Return the outcomes that there are, by key. A result of other code counts as not there."""
        found = {}
        for path in self.out.glob("*.parquet"):
            try:
                (row,) = pyarrow.parquet.read_table(path, schema=RESULT).to_pylist()
            except (OSError, ValueError, pyarrow.ArrowException) as error:
                raise StorageError(f"cannot read the result {path}: {error}; remove it") from error
            row["axes"], row["numbers"] = json.loads(row["axes"]), dict(row["numbers"])
            found[row["key"]] = self._modules["results"].Outcome(**row)
        return found

    def _finished(self) -> dict[str, Any]:
        """Return the outcomes of points that need not run: where traces are wanted, only those that have one."""
        done = self.done()
        if self.traces is None:
            return done
        return {key: each for key, each in done.items() if any((self.traces / key).glob("*.parquet"))}

    def run(self, spark: SparkSession, progress: Callable[[int, int], None] | None = None) -> SweepReport:
        """Run what is not done yet. `progress` is told how many of how many are there."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot write {self.out}: {error.strerror}; choose another output") from error
        todo = self._modules["results"].pending(self.points, self._finished(), self.source)
        before = len(self.points) - len(todo)

        def tell(count: int) -> None:
            if progress is not None:
                progress(before + count, len(self.points))

        failed = self._run(spark, todo, tell) if todo else {}
        outcomes = self._modules["results"].outcomes_of(self.points, self.done())
        return SweepReport(len(self.points), before, failed, outcomes)

    def _run(self, spark: SparkSession, todo: list[Any], progress: Callable[[int], None]) -> dict[str, str]:
        wanted = [
            (each.parameters.digest(each.seed), each.seed, msgspec.json.encode(each.parameters), json.dumps(each.axes))
            for each in todo
        ]
        home, out, traces, code = self.home, self.out, self.traces, (self.commit, self.source)

        def work(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    key, seed, parameters, axes = wanted[number]
                    error = run_point(home, out, (key, seed, parameters, axes), code, traces)
                    yield pyarrow.RecordBatch.from_pydict({"key": [key], "error": [error]})

        stop = Event()

        def watch() -> None:
            keys = {each[0] for each in wanted}
            while not stop.wait(_POLL_S):
                progress(sum(path.stem in keys for path in out.glob("*.parquet")))

        watcher = Thread(target=watch, daemon=True)
        watcher.start()
        try:
            tasks = spark.range(0, len(wanted), 1, numPartitions=len(wanted))
            answers = tasks.mapInArrow(work, "key string, error string").filter("error is not null").collect()
        finally:
            stop.set()
            watcher.join()
        names = {each[0]: f"{each[3]} seed {each[1]}" for each in wanted}
        return {names[row.key]: row.error for row in answers}


def run_point(
    home: str, out: Path, point: tuple[str, int, bytes, str], code: tuple[str, str], traces: Path | None = None
) -> str | None:
    """Run one point on a worker and keep its result; return what went wrong, if anything."""
    if home not in sys.path:
        sys.path.insert(0, home)
    description = importlib.import_module("experiments.description")
    running = importlib.import_module("experiments.running")
    key, seed, parameters, axes = point
    each = description.Point(json.loads(axes), msgspec.json.decode(parameters, type=description.PointParameters), seed)
    for _ in range(TRIES):
        ((_, measured),) = running.run_all([each], 1, traces)
        if not isinstance(measured, Exception):
            break
    else:
        return f"{type(measured).__name__}: {measured}"
    numbers, wall_s, rss_mb = measured
    row = (key, axes, seed, *code, round(wall_s, 1), round(rss_mb, 1), list(numbers.items()))
    table = pyarrow.Table.from_arrays(
        [pyarrow.array([value], field.type) for value, field in zip(row, RESULT, strict=True)], schema=RESULT
    )
    hidden = out / f".{key}.tmp"
    pyarrow.parquet.write_table(table, hidden)
    hidden.replace(out / f"{key}.parquet")
    return None


def import_experiments(description: Path) -> str:
    """Make the package `experiments` importable from the folder of a description; return where it is."""
    if not description.exists():
        raise UsageError(f"{description}: no such experiment; give a file such as experiments/load.toml")
    home = description.absolute().parent
    for folder in (home.parent, Path(os.getcwd())):
        if (folder / "experiments/__init__.py").exists():
            if str(folder) not in sys.path:
                sys.path.insert(0, str(folder))
            return str(folder)
    raise UsageError(f"{description}: the package 'experiments' is not beside it; run this in a clone of Vivum")
