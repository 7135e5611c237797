"""What the processes of the demo use of the computer, and whether they are all gone at the end.

Every worker is the leader of a session; what it starts (Java, Spark's Python workers) is in the same one.
"""

import os
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

POLL_S = 0.05
"""There is no event for the end of a grandchild: one has to look."""


def processes_of(sessions: Collection[int]) -> list[int]:
    """Find the processes of some sessions; those that only wait to be buried do not count."""
    return [pid for pid, session, state in _processes() if session in sessions and state != "Z"]


def _processes() -> Iterator[tuple[int, int, str]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            # It may end while we look.
            with suppress(OSError, ValueError, IndexError):
                fields = Path(entry.path, "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                yield int(entry.name), int(fields[3]), fields[0]


def memory_mb(pids: Collection[int]) -> float:
    """Add up the memory of processes in MB; pages that several share are counted once (PSS)."""
    total_kb = 0
    for pid in pids:
        with suppress(OSError, ValueError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
            total_kb += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total_kb * 1024 / 1e6


def wait_for_end(sessions: Collection[int], patience_s: float) -> int:
    """Wait until no process of these sessions is left; what does not end is killed. Returns how many were."""
    deadline = time.monotonic() + patience_s
    while left := processes_of(sessions):
        if time.monotonic() >= deadline:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return len(left)
        time.sleep(POLL_S)
    return 0
