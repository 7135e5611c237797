"""What the processes of the demo use of the computer, and whether they are all gone at the end.

Every worker is the leader of a session; what it starts (Java, Spark's Python workers) is in the same one.
"""

import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

POLL_S = 0.05
"""There is no event for the end of a grandchild: one has to look."""


KILL_S = 5.0
"""How long the kernel may take to end what was killed: all its memory is given back before."""

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of what our workers leave when they are killed, so that `wait_for_end` can bury it."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def processes_of(sessions: Collection[int]) -> list[int]:
    """Find the processes of some sessions."""
    return [pid for pid, session in _processes() if session in sessions]


def _processes() -> Iterator[tuple[int, int]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            # It may end while we look.
            with suppress(OSError, ValueError, IndexError):
                fields = Path(entry.path, "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                yield int(entry.name), int(fields[3])


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
    killed: set[int] = set()
    while left := processes_of(sessions):
        for pid in left:
            if time.monotonic() >= deadline and pid not in killed:
                killed.add(pid)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() >= deadline + KILL_S:
            break
        time.sleep(POLL_S)
    return len(killed)
