"""Runs the points of an experiment, several at a time, each in a process of its own."""

import resource
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed

from experiments.description import Point, PointParameters
from experiments.measuring import Numbers
from experiments.point import point

Measured = tuple[Numbers, float, float]
"""Numbers, wall clock seconds, and the memory of the whole simulation in megabytes."""


def run_all(points: list[Point], jobs: int) -> Iterator[tuple[Point, Measured | Exception]]:
    """Run points and hand out each result, or what went wrong, as soon as it is there."""
    # A fresh process for each point: its resident set is that of this point alone.
    with ProcessPoolExecutor(jobs, max_tasks_per_child=1) as pool:
        running: dict[Future[Measured], Point] = {
            pool.submit(_measure, each.parameters, each.seed): each for each in points
        }
        for future in as_completed(running):
            error = future.exception()
            if error is not None and not isinstance(error, Exception):
                raise error
            yield running[future], future.result() if error is None else error


def _measure(parameters: PointParameters, seed: int) -> Measured:
    start_s = time.perf_counter()
    numbers = point(parameters, seed)
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return numbers, time.perf_counter() - start_s, rss_mb
