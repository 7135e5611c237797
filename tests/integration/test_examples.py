"""The programs under examples/ run and say what they should."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

EXPECTED = {
    "missed.py": ["reads number 0", "some messages are missing here", "goes on with number 1999"],
    "quotes.py": ["NESN 101.20/101.40 from node 1.", "NESN 101.24/101.44"],
    "configuration.py": ["rate is 100", "saw /config/rate = 200", "worked with token", "rate is 200 after all"],
    "leader.py": ["first leads", "second follows", "has 1 members"],
    "rates.py": ["100,000 messages of 100 bytes"],
    "rehearsal.py": ["cec: node 3.", "ann again heard bob", "all promises kept, no program failed"],
    "threads.py": ["0 REGIONS", "1 TOKENS", "2 VIEWS"],
    "patterns.py": ["/plant/hall/temperature 19.5", "/plant/yard/temperature 7.0"],
}


def test_every_example_is_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs(name: str, domain_name: str) -> None:
    more = ["100000"] if name == "rates.py" else []
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), domain_name, *more],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    for text in EXPECTED[name]:
        assert text in ended.stdout
