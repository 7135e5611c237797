"""Arenas that the interpreter gives back are kept, up to a limit, and used again."""

import subprocess
import sys

import pytest

pytest.importorskip("vivum.runtime._arenas", reason="the compiled part was not built")

# In a process of its own: what it keeps, it keeps to its end.
SCRIPT = """
from vivum.runtime import _arenas

def burst():
    return [bytes(100) for _ in range(200_000)]

burst()
assert _arenas.count() == 0
_arenas.keep(3)
burst()
assert _arenas.count() == 3, _arenas.count()
held = burst()
assert _arenas.count() == 0, "they serve again"
del held
assert _arenas.count() == 3
_arenas.keep(1)
burst()
assert _arenas.count() == 3, "never less than somebody asked for"
for count in (-1, 65):
    try:
        _arenas.keep(count)
    except ValueError:
        pass
    else:
        raise AssertionError(count)
"""


def test_some_arenas_are_kept_and_serve_again() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
