"""The processes of a benchmark: started, spoken to and ended by the one who measures; none outlives it.

Workers have a session of their own, so Ctrl-C reaches the parent alone, which then ends them. If the parent is killed
the kernel ends them (`PR_SET_PDEATHSIG`, by `worker` for itself, by `setpriv` for foreign servers).
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Self

from vivum.bench.counting import resident_kb
from vivum.core.errors import HostError

ANSWER_S_MAX = 60.0
"""A worker that does not answer for this long is stuck."""

SAMPLE_S = 0.2
"""Distance between two looks at the memory of the workers."""

ACT_S = 0.01
"""How exactly something is done to them at a time: one was stopped for 0.2 s that should have been for 0.1."""


class Worker:
    """One process with a task, and the memory that it was seen to use."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self.name = name
        self.process = process
        self.rss_kb: list[int] = []
        self.is_dismissed = False
        """It may end by itself; nobody listens to it any more."""
        self._errors = errors
        self._buffer = b""

    def tell(self, **values: Any) -> None:
        """Say something to the worker."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(values).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._failure("ended too early") from None

    def hear(self, key: str, timeout_s: float = ANSWER_S_MAX) -> dict[str, Any]:
        """Wait for the worker to say something in which there is this key."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while True:
            while b"\n" not in self._buffer:
                left = deadline - time.monotonic()
                readable, _, _ = select.select([self.process.stdout], [], [], max(0.0, left))
                if not readable:
                    raise self._failure(f"did not tell {key!r} within {timeout_s:g} s")
                piece = os.read(self.process.stdout.fileno(), 65536)
                if not piece:
                    raise self._failure("ended too early")
                self._buffer += piece
            line, _, self._buffer = self._buffer.partition(b"\n")
            heard: dict[str, Any] = json.loads(line)
            if key in heard:
                return heard

    def heard_now(self) -> list[dict[str, Any]]:
        """Read what is there: all that the worker said since the last time. Raises `HostError` if it has ended."""
        assert self.process.stdout is not None
        piece = os.read(self.process.stdout.fileno(), 65536)
        if not piece:
            raise self._failure("ended too early")
        *lines, self._buffer = (self._buffer + piece).split(b"\n")
        return [json.loads(line) for line in lines]

    def cpu_s(self) -> tuple[float, float]:
        """Return how long the worker has run so far, in seconds: its own code, and the kernel for it."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        tick = os.sysconf("SC_CLK_TCK")
        return int(fields[11]) / tick, int(fields[12]) / tick

    def starved_s(self) -> float:
        """Return how long its main thread was ready to run so far, but other work had the processors, in seconds."""
        try:
            with open(f"/proc/{self.process.pid}/schedstat", encoding="ascii") as schedstat:
                return int(schedstat.read().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0

    def sample(self) -> None:
        """Note the resident memory of now."""
        self.rss_kb.append(resident_kb(self.process.pid))

    def _failure(self, what: str) -> HostError:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        cause = f": {lines[-1].strip()}" if lines else ""
        if os.environ.get("VIVUM_BENCH_DEBUG"):
            sys.stderr.write("\n".join(lines) + "\n")
        return HostError(f"the process {self.name} {what}{cause}")


class Crew:
    """All processes of one measurement. Use it in a `with`: at its end, whatever the reason, all of them end."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process that was started here. May be called again."""
        # A second Ctrl-C must not interrupt this.
        before = signal.getsignal(signal.SIGINT)
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._cleanup.close()
        finally:
            with contextlib.suppress(ValueError):
                signal.signal(signal.SIGINT, before)

    def on_close(self, act: Callable[[], object]) -> None:
        """Do something when this crew ends, the last first."""
        self._cleanup.callback(act)

    def start(self, name: str, task: str, options: dict[str, Any], prefix: Sequence[str] = ()) -> Worker:
        """Start a worker with a task, `module:function`. A prefix, such as `ip netns exec NAME`, runs it elsewhere."""
        order = json.dumps({"name": name, "task": task, "options": options, "parent": os.getpid()})
        errors = self._cleanup.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed with the crew
        with _undisturbed():
            process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "vivum.bench.worker", order],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
            self.on_close(lambda: _end(process))
        worker = Worker(name, process, errors)
        self.workers.append(worker)
        return worker

    def serve(self, command: Sequence[str], port: int, timeout_s: float = 10.0) -> None:
        """Start a foreign server and wait until it takes connections on a TCP port of this machine."""
        program = shutil.which(command[0]) or shutil.which(command[0], path="/usr/sbin:/usr/local/sbin")
        if program is None:
            raise MissingError(f"{command[0]} is not installed (Debian: apt-get install {command[0]})")
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with _undisturbed():
            process = subprocess.Popen(
                [*guard, program, *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self.on_close(lambda: _end(process))
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                return
            except OSError:
                # There is no event to wait for: the server is not ours.
                time.sleep(0.02)
        raise HostError(f"{command[0]} did not take connections on port {port} within {timeout_s:g} s")

    def hear_any(self, timeout_s: float) -> list[tuple[Worker, dict[str, Any]]]:
        """Wait until a worker sends something, or until the timeout; return all messages with their workers."""
        by_stream = {
            worker.process.stdout: worker
            for worker in self.workers
            if worker.process.stdout is not None and not worker.is_dismissed
        }
        readable, _, _ = select.select(list(by_stream), [], [], timeout_s)
        return [(by_stream[each], said) for each in readable for said in by_stream[each].heard_now()]

    def watch(self, until: float, act: Callable[[float], None] | None = None) -> None:
        """Sample the memory of all workers until a time of the monotonic clock; `act(now)` is called more often."""
        sampled = -SAMPLE_S
        while (now := time.monotonic()) < until:
            if now - sampled >= SAMPLE_S:
                sampled = now
                for worker in self.workers:
                    worker.sample()
            if act is not None:
                act(now)
            time.sleep(max(0.0, min(SAMPLE_S if act is None else ACT_S, until - time.monotonic())))


class MissingError(HostError):
    """Something that a benchmark compares with is not installed: it is skipped, with this as the reason."""


def free_port(interface: str = "127.0.0.1") -> int:
    """Find a TCP port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((interface, 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Let Ctrl-C wait: between the start of a process and the note that it must be ended there is no safe moment."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    if process.poll() is None and process.stdin is not None:
        # A worker that waits for a word of ours ends by itself, and writes its profile if it makes one.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5.0 if "VIVUM_BENCH_PROFILE" in os.environ else 0.2)
    if process.poll() is None:
        # A stopped process does not hear SIGTERM.
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
