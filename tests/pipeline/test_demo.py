"""The demo as a user starts it: all processes real, packets lost on purpose, Spark, the audit; and Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from vivum.demo.processes import memory_mb, processes_of, wait_for_end

pytestmark = pytest.mark.slow

DEMO = [sys.executable, "-m", "vivum.cli", "demo"]
PATIENCE_S = 240
"""Generous: the computer may be busy. On a free one it takes half a minute."""


def start(folder: Path, *words: str, **environment: str) -> "subprocess.Popen[str]":
    """Start a demo that puts its files below this folder."""
    return subprocess.Popen(
        [*DEMO, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder), "COLUMNS": "120", **environment},
    )


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1]) if entry.name.isdecimal() else 0
        except OSError:
            continue
        if parent == pid:
            found |= {int(entry.name)} | descendants(int(entry.name))
    return found


def test_a_short_demo_delivers_everything_finds_what_is_planted_and_passes_the_audit(tmp_path):
    process = start(tmp_path, "--seconds", "5", "--symbols", "60", "--rate", "400", "--loss", "3", "--json")
    out, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, told
    summary: dict[str, Any] = json.loads(out.splitlines()[-1])
    messages, alerts, audit = summary["messages"], summary["alerts"], summary["audit"]
    assert messages["sent"] > 1000
    assert messages["received"] == messages["expected"]
    assert messages["expected"]["recorder"] == messages["sent"] == summary["recorder"]["recorded"]
    assert (messages["failed"], messages["lost"], summary["recorder"]["missed"]) == (0, 0, 0)
    assert summary["network"]["datagrams_lost_on_purpose"] > 0
    assert summary["network"]["frames_repaired"] > 0
    assert summary["bars"]["made"] > 0
    assert summary["bars"]["trades"] > 0
    assert summary["bars"]["refused"] == 0
    # Everything that is planted shows in seconds, unless this computer stood still in between.
    assert alerts["planted"] >= 9
    assert alerts["found"] >= alerts["planted"] - 2, alerts
    assert (alerts["came_back_twice"], alerts["decoys_reported"]) == (0, 0)
    assert audit["verdict"] == "holds"
    # What RELIABLE promises, and nothing that it does not.
    assert set(audit["checks"]) >= {"no_duplicate", "no_creation", "fifo", "view_agreement", "views_first"}
    assert "virtual_synchrony" not in audit["checks"]
    assert audit["records"] > messages["deliveries"] > 3 * messages["sent"]
    assert 100 < summary["memory_mb"] < 4000
    for words in ("The market is open", "First bars", "Alerts of the surveillance", "Spark audits the traces"):
        assert words in told
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_in_the_middle_leaves_no_process_and_no_file(tmp_path):
    process = start(tmp_path, "--seconds", "600", "--symbols", "60", "--rate", "200")
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "The market is open" in line:
                break
        started = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "nothing is left behind" in out
    # Eight nodes and the process with Spark at least; Java may not have been there yet.
    assert len(started) >= 9
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.iterdir()) == []


def test_without_java_it_says_so_before_anything_is_done(tmp_path):
    process = start(tmp_path, JAVA_HOME="/nowhere")
    out, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "needs Java 17" in told
    assert len(told.splitlines()) == 1
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_in_use_is_refused(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/mine").touch()
    process = start(tmp_path, "--keep", str(tmp_path / "kept"))
    _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "is not empty" in told


def test_what_does_not_end_by_itself_is_killed_and_counted():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    assert processes_of({process.pid}) == [process.pid]
    assert memory_mb([process.pid]) > 0
    began = time.monotonic()
    assert wait_for_end({process.pid}, 0.1) == 1
    assert time.monotonic() - began < 60
    assert processes_of({process.pid}) == []
    # It was buried by `wait_for_end`, which the object does not know.
    process.returncode = -signal.SIGKILL
