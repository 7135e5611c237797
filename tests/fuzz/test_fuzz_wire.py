import re
import subprocess
import sys
from pathlib import Path

import pytest

TARGET = Path(__file__).with_name("fuzz_wire.py")


def run_target(tmp_path, *arguments):
    return subprocess.run(
        [sys.executable, str(TARGET), *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def _atheris():
    pytest.importorskip("atheris", reason="atheris has no wheel for this platform, or the extra `dev` is missing")


@pytest.mark.slow
@pytest.mark.usefixtures("_atheris")
def test_three_seconds_of_fuzzing_find_nothing(tmp_path):
    run = run_target(tmp_path, "--seconds", "3")
    assert run.returncode == 0, run.stderr[-3000:]
    done = re.search(r"Done (\d+) runs", run.stderr)
    assert done is not None, run.stderr[-3000:]
    assert int(done[1]) > 1000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_atheris")
def test_a_finding_can_be_replayed(tmp_path):
    (tmp_path / "input").write_bytes(b"\x01\x01 not a frame")
    assert run_target(tmp_path, "--replay", "input").returncode == 0
