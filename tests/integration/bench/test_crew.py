"""The processes of a benchmark: they do what they are told, and none outlives the one who measures."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vivum.bench.crew import Crew, MissingError, free_port
from vivum.core.errors import HostError

TIMEOUT_S = 30.0

# Tasks of workers, by module and name: this module is not importable there, the standard library is.
ENDS = "vivum.bench.systems.raw_multicast:send"
OPTIONS = {"domain": 7, "interface": "127.0.0.1", "size": 100}


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone(pid: int) -> bool:
    """Wait until a process is gone, by its pidfd; no polling."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], TIMEOUT_S)[0])
    finally:
        os.close(handle)


def test_workers_end_with_their_crew_and_stopped_ones_too():
    with Crew() as crew:
        workers = [crew.start(f"worker {number}", ENDS, OPTIONS) for number in range(2)]
        for worker in workers:
            worker.hear("ready")
        os.kill(workers[1].process.pid, signal.SIGSTOP)
        pids = [worker.process.pid for worker in workers]
        assert all(is_running(pid) for pid in pids)
    assert not any(is_running(pid) for pid in pids)


def test_a_worker_that_fails_is_named_with_its_last_words():
    with Crew() as crew:
        worker = crew.start("sender", ENDS, {**OPTIONS, "domain": "no number"})
        with pytest.raises(HostError, match=r"process sender ended too early: TypeError"):
            worker.hear("ready")


def test_a_worker_that_says_nothing_is_not_waited_for_for_ever():
    with Crew() as crew:
        worker = crew.start("sender", ENDS, OPTIONS)
        worker.hear("ready")
        with pytest.raises(HostError, match=r"did not tell 'sent' within 0\.05 s"):
            worker.hear("sent", 0.05)


def test_a_server_that_is_not_installed_is_missing_with_the_way_to_get_it():
    with Crew() as crew, pytest.raises(MissingError, match="no-such-server is not installed"):
        crew.serve(["no-such-server"], free_port())


def test_a_server_that_ends_at_once_is_told():
    with Crew() as crew, pytest.raises(HostError, match="did not take connections"):
        crew.serve(["true"], free_port())


PARENT = """
import sys, time
from vivum.bench.crew import Crew
with Crew() as crew:
    options = {"domain": 7, "interface": "127.0.0.1", "size": 100}
    worker = crew.start("worker", "vivum.bench.systems.raw_multicast:send", options)
    worker.hear("ready")
    print(worker.process.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_do_not_outlive_a_parent_that_is_ended(end: signal.Signals):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_running(pid)
    parent.send_signal(end)
    parent.wait(TIMEOUT_S)
    parent.stdout.close()
    assert gone(pid)
