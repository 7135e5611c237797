"""A seed that is run in a process of its own."""

import os
import subprocess
import sys


def hash_elsewhere(module: str, function: str, seed: int, **environment: str) -> str:
    """Return the trace hash of a seed as another process has it, with these variables in its environment."""
    code = f"from {module} import {function}; print({function}({seed}).trace_hash)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
