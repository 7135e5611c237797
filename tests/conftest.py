"""For all tests."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import vivum

# The same examples in every run, also on a busy machine: a failure here is a failure everywhere.
settings.register_profile(
    "deterministic",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("deterministic")

IS_COMPILED = os.environ.get("VIVUM_PURE") not in ("1", "source")

# A shell that starts us in the background lets us and all that we start ignore Ctrl-C; tests of Ctrl-C need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Refuse to test an old build: a compiled module hides what was changed in its source."""
    for built in Path(vivum.__file__).parent.rglob("*.so") if IS_COMPILED else ():
        source = built.with_name(built.name.split(".")[0] + ".py")
        if source.exists() and source.stat().st_mtime > built.stat().st_mtime:
            pytest.exit(f"{source} has changed since it was compiled: run make dev", returncode=4)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests that change compiled classes to the run that has them as plain Python; the Makefile does both."""
    left = [item for item in items if IS_COMPILED and item.get_closest_marker("plain")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
