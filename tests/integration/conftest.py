import os
from collections.abc import Iterator

import pytest

from live_processes.director import Cast


@pytest.fixture
def domain_name(request: pytest.FixtureRequest) -> str:
    """A domain of its own for each test and each run: what one test sends no other hears."""
    return f"{request.node.name}-{os.getpid()}"


@pytest.fixture
def cast(domain_name: str) -> Iterator[Cast]:
    made = Cast(domain_name)
    yield made
    made.end()
