"""What Spark needs, and how its absence and its failures are told. Nothing here starts it."""

import subprocess
import sys
from pathlib import Path

import pytest

from vivum.core.errors import HostError
from vivum.pipeline.jobs.running import spark_error
from vivum.pipeline.session import find_java


def java(folder: Path, version: str) -> Path:
    program = folder / "bin/java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\n")
    program.chmod(0o755)
    return program


def test_java_is_found_by_its_home_and_an_old_one_is_refused(tmp_path, monkeypatch):
    program = java(tmp_path / "new", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    assert find_java() == program
    java(tmp_path / "old", "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(HostError, match=r"Spark needs Java 17 or later, and .* is Java 8; install one"):
        find_java()


def test_a_missing_java_is_told_in_one_sentence_by_the_command(tmp_path):
    trace = tmp_path / "trace"
    text = (
        "from vivum.storage.traces import TraceWriter; from vivum.observe.trace import NodeStarted\n"
        f"trace = TraceWriter({str(trace)!r}, 'sim'); trace(NodeStarted(0, 1, 1)); trace.close()\n"
        f"from vivum.cli import main; raise SystemExit(main(['audit', {str(trace)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={"PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("vivum: error: Spark needs Java 17 or later, and there is none in PATH; install one")
    assert done.stderr.count("\n") == 1


def test_our_own_sentence_is_found_in_what_spark_wraps_around_it():
    wrapped = (
        "An exception\n  File x\nvivum.storage.errors.CorruptLogError: /log/1.segment is damaged\n\n\tat org.apache"
    )
    assert str(spark_error(RuntimeError(wrapped))) == "/log/1.segment is damaged"
    assert str(spark_error(RuntimeError("\n[PATH_NOT_FOUND] no\nmore"))) == "Spark failed: [PATH_NOT_FOUND] no"
