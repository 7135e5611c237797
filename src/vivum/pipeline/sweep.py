"""Sweeps: the points of experiments as one Spark job, one task a simulation, the longest first.

Each task runs its point with the functions of `experiments/` and writes the result as one small Parquet file under a
hidden name, then renames it. So a sweep that is stopped loses only what was running, and the same command goes on. A
point that fails is tried once more; what fails twice is reported.

Sessions for sweeps take `SETTINGS`: then each point has a fresh process, so that its memory can be told.
With a cluster, the folder of results must be one that all workers see.
"""

import importlib
import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
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
from vivum.storage.traces import TraceWriter

SETTINGS = {"spark.python.worker.reuse": "false"}
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


@dataclass(frozen=True)
class Task:
    """One point that is to be run: for which sweep, and how long that will take, more or less."""

    experiment: str
    out: Path
    traces: Path | None
    key: str
    seed: int
    parameters: bytes
    axes: str
    estimate_s: float

    @property
    def name(self) -> str:
        """What people call it."""
        axes = [f"{path.rpartition('.')[2]}={value}" for path, value in json.loads(self.axes).items()]
        return " ".join([self.experiment, *axes, f"seed={self.seed}"])

    @property
    def result(self) -> Path:
        """Where its result goes."""
        return self.out / f"{self.key}.parquet"


class Sweep:
    """One experiment, its points, and the folder of its results."""

    def __init__(self, description: Path, out: Path, *, quick: bool = False, traces: bool = False) -> None:
        self.home = import_experiments(description)
        names = ("description", "results", "cost")
        self._modules = {name: importlib.import_module(f"experiments.{name}") for name in names}
        self.name = description.stem
        whole = self._modules["description"].load(str(description))
        self.experiment = self._modules["description"].shortened(whole) if quick else whole
        self.points = self._modules["description"].points(self.experiment)
        self.out = out.absolute() / (self.name + ("-quick" if quick else ""))
        self.traces = self.out / "traces" if traces else None
        self.commit, self.source = self._modules["results"].code_identity()

    def done(self) -> dict[str, Any]:
        """Return the outcomes that there are, by key, whatever code made them."""
        found = {}
        for path in self.out.glob("*.parquet"):
            try:
                (row,) = pyarrow.parquet.read_table(path, schema=RESULT).to_pylist()
            except (OSError, ValueError, pyarrow.ArrowException) as error:
                raise StorageError(f"cannot read the result {path}: {error}; remove it") from error
            row["axes"], row["numbers"] = json.loads(row["axes"]), dict(row["numbers"])
            found[row["key"]] = self._modules["results"].Outcome(**row)
        return found

    def tasks(self) -> list[Task]:
        """Return what this code has not finished yet. Where traces are wanted, a result without one does not count."""
        done = self.done()
        if self.traces is not None:
            done = {key: each for key, each in done.items() if any((self.traces / key).glob("*.parquet"))}
        return [
            Task(
                self.name,
                self.out,
                self.traces,
                each.key,
                each.seed,
                msgspec.json.encode(each.parameters),
                json.dumps(each.axes),
                self._modules["cost"].estimate_s(each.parameters),
            )
            for each in self._modules["results"].pending(self.points, done, self.source)
        ]

    def report(self, before: int, failed: dict[str, str]) -> SweepReport:
        """Sum up what is there now."""
        outcomes = self._modules["results"].outcomes_of(self.points, self.done())
        return SweepReport(len(self.points), before, failed, outcomes)


class Watch:
    """How far a sweep is. Who wants to show it overrides `show_begin` and `show_finished`."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.wall_s: dict[str, float] = {}
        self.processors = 1
        # Results of former code may lie in the same places.
        self._old: dict[Path, int] = {}

    def begin(self, tasks: list[Task], processors: int) -> None:
        """Note what is to be done, so many points at once."""
        self.tasks, self.processors = tasks, processors
        self._old = {task.result: _written_ns(task.result) for task in tasks}
        self.show_begin()

    def show_begin(self) -> None:
        """Hear that the sweep begins."""

    def show_finished(self, task: Task, took_s: float) -> None:
        """Hear that a point has a result, and how many seconds it took."""

    @property
    def left_s(self) -> float:
        """How much longer it will take, if what is left keeps to the estimates as what is finished did."""
        done_s = sum(task.estimate_s for task in self.tasks if task.key in self.wall_s)
        left_s = sum(task.estimate_s for task in self.tasks) - done_s
        return left_s / self.processors * (sum(self.wall_s.values()) / done_s if done_s else 1.0)

    def look(self) -> None:
        """Look which points have a result now."""
        for task in self.tasks:
            if task.key not in self.wall_s and _written_ns(task.result) > self._old[task.result]:
                took_s = pyarrow.parquet.read_table(task.result, columns=["wall_s"])["wall_s"][0].as_py()
                self.wall_s[task.key] = took_s
                self.show_finished(task, took_s)


def _written_ns(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def run_sweeps(spark: SparkSession, sweeps: Sequence[Sweep], watch: Watch | None = None) -> list[SweepReport]:
    """Run what is not done yet of all sweeps as one job, and return how each went."""
    watch = watch or Watch()
    for sweep in sweeps:
        try:
            sweep.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot write {sweep.out}: {error.strerror}; choose another output") from error
    todo = [sweep.tasks() for sweep in sweeps]
    tasks = longest_first(task for each in todo for task in each)
    watch.begin(tasks, spark.sparkContext.defaultParallelism)
    failed = _run(spark, sweeps[0], tasks, watch) if tasks else {}
    return [
        sweep.report(
            len(sweep.points) - len(mine), {task.name: failed[task.key] for task in mine if task.key in failed}
        )
        for sweep, mine in zip(sweeps, todo, strict=True)
    ]


def longest_first(tasks: Iterable[Task]) -> list[Task]:
    """Order tasks so that all processors end at about the same time."""
    return sorted(tasks, key=lambda task: -task.estimate_s)


def _run(spark: SparkSession, sweep: Sweep, tasks: list[Task], watch: Watch) -> dict[str, str]:
    """Run tasks in this order; return what went wrong, by key."""
    home, code = sweep.home, (sweep.commit, sweep.source)

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                error = run_point(home, tasks[number], code)
                yield pyarrow.RecordBatch.from_pydict({"key": [tasks[number].key], "error": [error]})

    stop = Event()

    def watch_results() -> None:
        while not stop.wait(_POLL_S):
            watch.look()

    watcher = Thread(target=watch_results, daemon=True)
    watcher.start()
    try:
        numbers = spark.range(0, len(tasks), 1, numPartitions=len(tasks))
        answers = numbers.mapInArrow(work, "key string, error string").filter("error is not null").collect()
    finally:
        stop.set()
        watcher.join()
    watch.look()
    return {row.key: row.error for row in answers}


def run_point(home: str, task: Task, code: tuple[str, str]) -> str | None:
    """Run one point on a worker and keep its result; return what went wrong, if anything."""
    if home not in sys.path:
        sys.path.insert(0, home)
    description, runner = (importlib.import_module(f"experiments.{name}") for name in ("description", "point"))
    parameters = msgspec.json.decode(task.parameters, type=description.PointParameters)
    empty_mb = _resident_mb()
    for last in range(1, TRIES + 1):
        began_s = time.perf_counter()
        try:
            numbers = _measure(runner, parameters, task)
            break
        except Exception as error:
            # Whatever it is: the other points must not suffer.
            if last == TRIES:
                return f"{type(error).__name__}: {error}"
    wall_s = time.perf_counter() - began_s
    rss_mb = max(0.0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6 - empty_mb)
    row = (task.key, task.axes, task.seed, *code, round(wall_s, 1), round(rss_mb, 1), list(numbers.items()))
    table = pyarrow.Table.from_arrays(
        [pyarrow.array([value], field.type) for value, field in zip(row, RESULT, strict=True)], schema=RESULT
    )
    hidden = task.out / f".{task.key}.tmp"
    pyarrow.parquet.write_table(table, hidden)
    hidden.replace(task.result)
    return None


def _resident_mb() -> float:
    """Return the memory that this process has now, before the simulation; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0.0
    return pages * resource.getpagesize() / 1e6


def _measure(runner: Any, parameters: Any, task: Task) -> Any:
    if task.traces is None:
        return runner.point(parameters, task.seed)
    folder = task.traces / task.key
    shutil.rmtree(folder, ignore_errors=True)
    with TraceWriter(folder, "sim", promises=parameters.scenario.get("checkers")) as trace:
        return runner.point(parameters, task.seed, trace)


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
