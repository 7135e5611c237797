"""The jobs as programs of their own: with `spark-submit`, and with `python -m`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import vivum.pipeline.jobs
from recorded.quotes import write_quotes
from vivum.cli.app import main
from vivum.observe.trace import NodeStarted
from vivum.storage.traces import TraceWriter

pytestmark = pytest.mark.slow

JOBS = Path(vivum.pipeline.jobs.__file__).parent
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SUBMIT = Path(sys.executable).with_name("spark-submit")
PROGRAMS = ["alerts", "audit", "bronze", "figures", "market", "operations", "silver", "surveillance"]


def run(*words: object) -> "subprocess.CompletedProcess[str]":
    # A home of Spark that somebody has set would be taken before ours.
    environment = {key: value for key, value in os.environ.items() if key != "SPARK_HOME"}
    environment["PYSPARK_PYTHON"] = sys.executable
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, env=environment)


def test_a_job_runs_with_spark_submit_where_that_was_told_to_run_and_with_its_settings(tmp_path):
    write_quotes(tmp_path / "log")
    words = [JOBS / "bronze.py", "--log", tmp_path / "log", "--tables", tmp_path / "tables"]
    told = {"enabled": "true", "dir": tmp_path / "events", "compress": "false"}
    (tmp_path / "events").mkdir()
    events = [word for key, value in told.items() for word in ("--conf", f"spark.eventLog.{key}={value}")]
    fast = ["--driver-java-options", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"]
    chosen = ["--conf", "spark.sql.shuffle.partitions=7", "--conf", "spark.sql.session.timeZone=Asia/Tokyo"]
    done = run(SUBMIT, "--master", "local[1]", *fast, *events, *chosen, *words)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"rows": 60}
    told = "".join(each.read_text() for each in (tmp_path / "events").rglob("events*"))
    for setting in ('"spark.master":"local[1]"', '"spark.sql.shuffle.partitions":"7"', '"Asia/Tokyo"'):
        assert setting in told


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_job_is_a_program_with_help(name):
    assert name in {each.stem for each in JOBS.glob("*.py")}
    done = run(sys.executable, "-m", f"vivum.pipeline.jobs.{name}", "--help")
    assert done.returncode == 0, done.stderr
    assert "--master" in done.stdout


@pytest.mark.parametrize("words", [["sweep", str(EXPERIMENTS / "load.toml")], ["audit", "TRACE"]])
def test_an_output_that_cannot_be_written_costs_no_spark(words, tmp_path, capsys):
    with TraceWriter(tmp_path / "trace", "sim") as trace:
        trace(NodeStarted(0, 1, 1))
    (tmp_path / "file").touch()
    given = [str(tmp_path / "trace") if word == "TRACE" else word for word in words]
    assert main([*given, "--out", str(tmp_path / "file/out")]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"vivum: error: cannot write {tmp_path}/file/out")
    assert told.count("\n") == 1


def test_what_is_wrong_is_told_in_one_sentence(tmp_path, capfd):
    done = run(sys.executable, "-m", "vivum.pipeline.jobs.bronze", "--log", tmp_path / "no", "--tables", tmp_path,
               "--master", "nonsense")  # fmt: skip
    sentence = "vivum: error: master 'nonsense' is none that Spark has; write local[*], local[2], spark://HOST:PORT"
    assert done.returncode == 2
    assert done.stderr.startswith(sentence)
    assert done.stderr.count("\n") == 1
    assert main(["pipeline", "run", "silver", "--tables", str(tmp_path), "--master", "nonsense"]) == 2
    assert capfd.readouterr().err.startswith(sentence)
