"""An audit of 50 million records, and what memory it takes: minutes, so for the soak."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.soak

BENCH = Path(__file__).parents[2] / "bench/pipeline.py"


def test_fifty_million_records_are_judged_within_four_gigabytes():
    command = [sys.executable, str(BENCH), "--audit-records", "50000000", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["audit_records"] > 49_999_000
    # Driver, JVM and Python workers together; pages that they share count for each of them.
    assert told["audit_rss_mb_max"] < 4096
