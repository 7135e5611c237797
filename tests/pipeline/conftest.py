"""One Spark session for all tests of the pipeline in one process: starting one takes seconds."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recorded.quotes import write_quotes
from vivum.pipeline import session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    # Workers look for the modules of the tests as well.
    here = str(Path(__file__).parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
    made = session(
        "vivum-tests",
        master="local[2]",
        settings={
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
            "spark.sql.shuffle.partitions": "2",
            # To make fast code for a query, or to plan it again half way, costs more than it saves where each sees
            # a few rows once. Programs that tests start have sessions as users have them.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
        },
        brief=True,
    )
    yield made
    made.stop()


@pytest.fixture
def quotes(tmp_path: Path) -> Path:
    """A log of 60 rows."""
    write_quotes(tmp_path / "log")
    return tmp_path / "log"
