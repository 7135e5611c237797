"""Profile the processes of a benchmark, with costs for each message.

cProfile makes calls of Python functions look more expensive than they are, and does not see the kernel. Its counts of
calls are exact; for shares of time use a sampling profiler (py-spy).
"""

import contextlib
import os
import pstats
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.table import Table

LINES = 25


@contextlib.contextmanager
def profiled(wanted: bool) -> Iterator[Path | None]:
    """Let the workers started meanwhile write profiles to a folder, which is deleted afterwards."""
    if not wanted:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="vivum-profile-") as folder:
        os.environ["VIVUM_BENCH_PROFILE"] = folder
        try:
            yield Path(folder)
        finally:
            del os.environ["VIVUM_BENCH_PROFILE"]


def profile_table(folder: Path, worker: str, messages: float) -> Table:
    """Make the table of the functions in which a worker spent most time, with their cost for each message."""
    table = Table(box=None, pad_edge=False, title=f"{worker}: own time of functions", title_justify="left")
    for title in ("ns a message", "calls a message", "share", "function"):
        table.add_column(title, justify="left" if title == "function" else "right")
    stats = pstats.Stats(str(folder / f"{worker}.pstats")).stats  # type: ignore[attr-defined]
    rows = [(own, calls, where) for where, (_, calls, own, _, _) in stats.items() if not _is_waiting(where)]
    total = sum(own for own, _, _ in rows) or 1.0
    for own, calls, (path, line, name) in sorted(rows, reverse=True)[:LINES]:
        place = name if path == "~" else f"{Path(path).parent.name}/{Path(path).name}:{line} {name}"
        table.add_row(f"{own / messages * 1e9:,.1f}", f"{calls / messages:.4f}", f"{own / total:.1%}", place)
    return table


def _is_waiting(where: tuple[str, int, str]) -> bool:
    return any(word in where[2] for word in ("run_until_complete", "select", "poll", "acquire", "uvloop"))
