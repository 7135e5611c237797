"""Source, jobs and sink on a cluster: a driver and two workers, each a JVM of its own, on this machine."""

import json
import os
import subprocess
import sys

import pytest

from recorded import clustered
from recorded.consumer import Consumer
from recorded.quotes import write_quotes


@pytest.mark.soak
def test_source_jobs_and_sink_run_on_two_workers(tmp_path):
    write_quotes(tmp_path / "log")
    consumer = Consumer(f"cluster-{os.getpid()}")
    try:
        topic = consumer.enter("/out")
        words = [tmp_path / "log", tmp_path / "tables", consumer.domain, tmp_path / "staging"]
        done = subprocess.run(
            [sys.executable, clustered.__file__, *map(str, words)], capture_output=True, text=True, check=False,
            timeout=300, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        told = json.loads(done.stdout.splitlines()[-1])
        del told["silver"]["Quote"]["watermark"]
        silver = {"Quote": {"rows": 45, "late": 0, "refused": 0}}
        assert told == {"bronze": {"rows": 60}, "silver": silver, "workers": 2}
        assert len(set(consumer.values(topic, 60))) == 60
    finally:
        consumer.close()
