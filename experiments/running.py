"""Runs the points of an experiment, several at a time, each in a process of its own."""

import resource
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path

from experiments.description import Point, PointParameters
from experiments.measuring import Numbers
from experiments.point import point
from vivum.storage.traces import TraceWriter

Measured = tuple[Numbers, float, float]
"""Numbers, wall clock seconds, and the memory of the whole simulation in megabytes."""


def run_all(points: list[Point], jobs: int, traces: Path | None = None) -> Iterator[tuple[Point, Measured | Exception]]:
    """Run points and hand out each result, or what went wrong, as soon as it is there.

    With `traces`, the trace of each point goes to a folder there, named by its key; one that is there is replaced.
    """
    # A fresh process for each point: its resident set is that of this point alone.
    with ProcessPoolExecutor(jobs, max_tasks_per_child=1) as pool:
        running: dict[Future[Measured], Point] = {
            pool.submit(_measure, each.parameters, each.seed, traces): each for each in points
        }
        for future in as_completed(running):
            error = future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            yield running[future], future.result() if error is None else error


def _measure(parameters: PointParameters, seed: int, traces: Path | None) -> Measured:
    start_s = time.perf_counter()
    if traces is None:
        numbers = point(parameters, seed)
    else:
        folder = traces / parameters.digest(seed)
        shutil.rmtree(folder, ignore_errors=True)
        with TraceWriter(folder, "sim", promises=parameters.scenario.get("checkers")) as trace:
            numbers = point(parameters, seed, trace)
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return numbers, time.perf_counter() - start_s, rss_mb
