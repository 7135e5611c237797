"""What a figure depends on: machine, Python and commit. Every benchmark prints it beside its result."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any


def about() -> dict[str, Any]:
    """Name the machine, the interpreter and the commit that is measured."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "machine": f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": _commit(),
        "load_1m": round(os.getloadavg()[0], 1),
    }


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def busy_s() -> float:
    """Return how long all processors together were busy since the machine started, in seconds."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _idle, _waiting, interrupts, soft, *_ = map(int, stat.readline().split()[1:])
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")
