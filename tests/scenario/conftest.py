"""`pytest tests/scenario --rewrite` writes the expected traces anew; read the difference before you commit it."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the golden traces of tests/scenario anew")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    # In a run of all tests this file is read too late to add an option.
    return bool(request.config.getoption("--rewrite", default=False))
