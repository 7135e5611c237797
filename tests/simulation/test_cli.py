"""`vivum sim` for machines: the JSON object on the last line, exit codes, and Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vivum.cli import main

VIVUM = [sys.executable, "-m", "vivum.cli"]
TINY = 'nodes = 3\nduration = "100ms"\nsettle = "1s"\ncheckers = ["fifo", "all_delivered"]\n[[traffic]]\nrate = 100\n'
# Total order is not what this protocol promises: two senders, and a receiver that hears them in another order.
VIOLATING = TINY.replace('"fifo", "all_delivered"', '"total_order"').replace("rate = 100", "rate = 100\nsenders = 2")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def last_line(text: str) -> dict[str, object]:
    found = json.loads(text.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def test_run_ends_with_one_json_object(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "run", str(tiny), "--seed", "5", "--json"]) == 0
    result = last_line(capsys.readouterr().out)
    assert {"trace_hash", "events", "violations", "wall_s"} <= result.keys()
    assert result["violations"] == 0
    assert result["seed"] == 5
    assert result["accepted"] == 10


def test_a_violation_is_exit_code_1_and_named_with_its_witnesses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "violating.toml"
    path.write_text(VIOLATING)
    assert main(["sim", "run", str(path), "--json"]) == 1
    result = last_line(capsys.readouterr().out)
    assert result["violations"]
    assert main(["sim", "run", str(path)]) == 1
    printed = capsys.readouterr().out
    assert "violated total_order" in printed
    assert "delivers" in printed
    assert main(["sim", "show", str(path), "--limit", "5"]) == 1


def test_swarm_ends_with_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "swarm", "--seeds", "2", "--first-seed", "7", "--jobs", "1", "--json"]) == 0
    result = last_line(capsys.readouterr().out)
    assert result["seeds"] == 2
    assert result["failed"] == []
    assert result["first_seed"] == 7


def test_show_prints_a_timeline_as_wide_as_asked(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "show", str(tiny), "--node", "2", "--limit", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert "more" in lines[-1]
    assert main(["sim", "show", str(tiny), "--frames", "--limit", "1000"]) == 0
    assert "-> DATA" in capsys.readouterr().out


def test_run_writes_the_trace_to_parquet(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    assert main(["sim", "run", str(tiny), "--trace", str(tmp_path / "traces"), "--json"]) == 0
    assert list((tmp_path / "traces").glob("*.parquet"))


def test_list_names_the_built_in_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "list", "--json"]) == 0
    scenarios = last_line(capsys.readouterr().out)["scenarios"]
    assert isinstance(scenarios, dict)
    assert "quickstart" in scenarios
    assert main(["sim", "list"]) == 0


@pytest.mark.slow
def test_the_cluster_that_is_watched_keeps_every_guarantee(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "watch", "--seconds", "0", "--json"]) == 0
    assert last_line(capsys.readouterr().out)["violations"] == 0
    assert main(["sim", "watch", "--seconds", "0"]) == 0
    assert "Every guarantee held" in capsys.readouterr().out


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text()
            except OSError:
                continue
            if int(status.rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.name))
    return found


def _wait_until(condition: object, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for child processes in /proc")
@pytest.mark.parametrize("to_the_group", [True, False], ids=["ctrl-c in a terminal", "kill -INT"])
def test_a_swarm_that_is_interrupted_leaves_nothing_behind(to_the_group: bool) -> None:
    process = subprocess.Popen(
        [*VIVUM, "sim", "swarm", "--seeds", "5000", "--jobs", "2", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert _wait_until(lambda: len(_children(process.pid)) >= 2, 20)
        children = _children(process.pid)
        time.sleep(0.5)
        if to_the_group:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert _wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children), 2)
