"""Memory and processor time of this process and all that it started: Spark's JVM and the Python workers behind it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
LOOK_S = 0.2


@dataclass
class TreeUse:
    """What a tree of processes used while it was watched."""

    cpu_s: float = 0.0
    rss_mb_max: float = 0.0
    rss_mb_before: float = 0.0


def tree_now() -> tuple[float, float]:
    """Return the seconds of processor that this process and its living descendants had, and their memory in MB."""
    found: dict[int, tuple[int, int, int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            # Fields 4, 14 to 17 and 24 of proc(5): parent, times (also of children that ended), pages in memory.
            found[int(folder.name)] = int(words[1]), sum(map(int, words[11:15])), int(words[21])
    mine, known = {os.getpid()}, 0
    while len(mine) > known:
        known = len(mine)
        mine |= {number for number, (parent, _, _) in found.items() if parent in mine}
    each = [found[number] for number in mine if number in found]
    return sum(ticks for _, ticks, _ in each) / TICKS, sum(pages for _, _, pages in each) * PAGE_BYTES / 2**20


@contextmanager
def watched() -> Iterator[TreeUse]:
    """Watch the tree while something runs. Shared pages count for each process, so memory is told too high."""
    use = TreeUse()
    before_s, use.rss_mb_before = tree_now()
    stop = Event()

    def look() -> None:
        while not stop.wait(LOOK_S):
            use.rss_mb_max = max(use.rss_mb_max, tree_now()[1])

    watcher = Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield use
    finally:
        stop.set()
        watcher.join()
        after_s, rss_mb = tree_now()
        use.cpu_s, use.rss_mb_max = after_s - before_s, max(use.rss_mb_max, rss_mb)
