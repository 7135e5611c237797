"""Chaos between hosts: `python tests/chaos_hosts/run.py --minutes 30` (root; network namespaces, `nft`).

Episodes of half a minute, each from a seed of its own that is printed. Programs on hosts that are network namespaces
send to topics with overlapping members while packets are lost, programs are killed and stopped, and hosts are cut off.
Then all is healed, all must be together again, some last messages must reach everybody, and `judge` reads the logs.

The configuration service (`vivum up`) has a host of its own that loses packets but is neither cut off nor stopped: it
is a single point of failure until the service is replicated.
"""

import argparse
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chaos_hosts.faults import Fault, draw_faults
from chaos_hosts.judge import Verdict, judge
from vivum.bench.namespaces import NetnsHost, NetnsNetwork, why_impossible

MEMBER = Path(__file__).with_name("member.py")

HOSTS = 5
"""Hosts with programs; one more carries the service."""

PROGRAMS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (0, ("/a", "/b")),
    (1, ("/a", "/b", "/c")),
    (2, ("/b", "/c")),
    (3, ("/c", "/d")),
    (4, ("/a", "/d")),
    (1, ("/d",)),
    (3, ("/a", "/b", "/c", "/d")),
)
"""The host of each program, and its topics."""

EPISODE_S = 25.0
PATIENCE_S = 60.0
"""How long programs may take to come together after the heal, on a machine that has other work."""


class Unsettled(Exception):  # noqa: N818 - what the run is
    """Programs did not come together after all was healed."""


class Program:
    """One program, restarted as a new run after each kill."""

    def __init__(self, number: int, host: NetnsHost, topics: tuple[str, ...], options: dict[str, Any]) -> None:
        self.name = f"p{number}"
        self.topics = topics
        self.runs = 0
        self._host = host
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = b""

    @property
    def run(self) -> str:
        return f"{self.name}.{self.runs}"

    def start(self) -> None:
        self.runs += 1
        self._heard = b""
        log = Path(self._options["folder"]) / f"{self.run}.log"
        options = {
            **self._options,
            "run": self.run,
            "topics": self.topics,
            "interface": self._host.address,
            "log": str(log),
            "parent": os.getpid(),
        }
        errors = log.with_suffix(".err").open("wb")
        with errors:
            self._process = subprocess.Popen(
                [*self._host.prefix, sys.executable, str(MEMBER), json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Ctrl-C reaches the one who directs, and ends the others.
                start_new_session=True,
            )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
        self._process = None

    def tell(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def hear(self, word: str, deadline: float) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise Unsettled(f"{self.run} was not {word} within {PATIENCE_S:g} s after the heal")
            piece = os.read(self._process.stdout.fileno(), 4096)
            if not piece:
                errors = (Path(self._options["folder"]) / f"{self.run}.err").read_text().strip().splitlines()
                raise Unsettled(f"{self.run} ended instead of being {word}: {' | '.join(errors[-3:])}")
            self._heard += piece
        line, _, self._heard = self._heard.partition(b"\n")
        if line.decode() != word:
            raise Unsettled(f"{self.run} said {line!r} instead of {word!r}")


class Episode:
    """One run from one seed."""

    def __init__(self, seed: int, folder: Path, network: NetnsNetwork, seconds: float) -> None:
        self.faults = draw_faults(seed, HOSTS, len(PROGRAMS), seconds)
        self.disturbed: Counter[str] = Counter()
        self._folder = folder
        self._network = network
        self._service, *self._hosts = network.hosts
        self._domain = f"chaos {os.getpid()} {seed}"
        options = {"domain": self._domain, "seed": seed, "folder": str(folder)}
        self.programs = [
            Program(number, self._hosts[host], topics, options) for number, (host, topics) in enumerate(PROGRAMS)
        ]
        self._cut: set[int] = set()

    def run(self) -> Verdict:
        """Run it, judge it, and end all processes."""
        with ExitStack() as stack:
            stack.enter_context(self._serving())
            for program in self.programs:
                stack.callback(program.kill)
                program.start()
            deadline = time.monotonic() + PATIENCE_S
            unsettled = ""
            try:
                for program in self.programs:
                    program.hear("entered", deadline)
                self._disturb()
                self._settle()
            except Unsettled as error:
                unsettled = str(error)
        verdict = judge(read_logs(self._folder), self.disturbed)
        if unsettled:
            verdict.blame(unsettled)
        return verdict

    @contextmanager
    def _serving(self) -> Iterator[None]:
        command = [str(Path(sys.executable).with_name("vivum")), "up", "--domain", self._domain]
        command += ["--interface", self._service.address]
        # If we are killed, the kernel ends it.
        with (self._folder / "service.err").open("wb") as errors:
            service = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._service.prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )
        try:
            yield
        finally:
            service.kill()
            service.wait()

    def _disturb(self) -> None:
        acts = [(fault.at_s, 0, fault) for fault in self.faults]
        acts += [(fault.at_s + fault.lasts_s, 1, fault) for fault in self.faults]
        began = time.monotonic()
        for at_s, is_over, fault in sorted(acts, key=lambda act: act[:2]):
            time.sleep(max(0.0, began + at_s - time.monotonic()))
            self._act(fault, bool(is_over))

    def _act(self, fault: Fault, is_over: bool) -> None:
        match fault.kind:
            case "lose":
                self._hosts[fault.target].lose(0 if is_over else fault.percent)
            case "kill":
                program = self.programs[fault.target]
                if is_over:
                    program.start()
                else:
                    program.kill()
            case "stop":
                program = self.programs[fault.target]
                self.disturbed[program.run] += not is_over
                program.signal(signal.SIGCONT if is_over else signal.SIGSTOP)
            case "cut":
                self._cut ^= {fault.target}
                if not is_over:
                    here = self._hosts[fault.target]
                    self.disturbed.update(
                        program.run
                        for program, (host, _) in zip(self.programs, PROGRAMS, strict=True)
                        if self._hosts[host] is here
                    )
                alone = [[self._hosts[number]] for number in sorted(self._cut)]
                rest = [host for host in self._network.hosts if [host] not in alone]
                self._network.partition(*alone, rest)

    def _settle(self) -> None:
        """Let all come together, and let some last messages reach everybody."""
        deadline = time.monotonic() + PATIENCE_S
        for program in self.programs:
            if program.runs > 1:
                program.hear("entered", deadline)
        members = Counter(topic for _, topics in PROGRAMS for topic in topics)
        for program in self.programs:
            program.tell("settle " + " ".join(str(members[topic]) for topic in program.topics))
        for said, told in (("together", "last"), ("settled", "end")):
            for program in self.programs:
                program.hear(said, deadline)
            for program in self.programs:
                program.tell(told)
        for program in self.programs:
            process = program._process
            assert process is not None
            try:
                status = process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Unsettled(f"{program.run} did not end") from None
            if status:
                raise Unsettled(f"{program.run} ended with {status}")


def read_logs(folder: Path) -> dict[str, list[list[Any]]]:
    """Read the logs of a folder. A line that was cut off by a kill does not count."""
    logs = {}
    for path in sorted(folder.glob("*.log")):
        *lines, _ = path.read_text().split("\n")
        logs[path.stem] = [json.loads(line) for line in lines]
    return logs


def run_chaos(seed: int, folder: Path, seconds: float = EPISODE_S) -> Verdict:
    """Run one episode on hosts of its own. Its logs stay in the folder."""
    with NetnsNetwork(1 + HOSTS) as network:
        return Episode(seed, folder, network, seconds).run()


def main() -> int:
    parser = argparse.ArgumentParser(description="Chaos between hosts.")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to go on with episodes")
    parser.add_argument("--seed", type=int, default=None, help="the seed of the first episode")
    parser.add_argument("--episodes", type=int, default=None, help="how many, whatever the time")
    parser.add_argument("--seconds", type=float, default=EPISODE_S, help="how long an episode is disturbed")
    parser.add_argument("--keep", type=Path, default=None, help="keep the logs of failed episodes here")
    parser.add_argument("--quiet", action="store_true", help="do not list the faults")
    asked = parser.parse_args()
    cause = why_impossible()
    if cause:
        print(f"vivum: chaos between hosts skipped: {cause}")
        return 0
    # Clean up also when a supervisor ends us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = int(time.time()) % 1_000_000 if asked.seed is None else asked.seed
    began, failed, total = time.monotonic(), 0, Counter[str]()
    number = 0
    while (number < asked.episodes) if asked.episodes else (time.monotonic() - began < 60 * asked.minutes):
        number += 1
        print(f"vivum: chaos between hosts, seed {seed}", flush=True)
        if not asked.quiet:
            for fault in draw_faults(seed, HOSTS, len(PROGRAMS), asked.seconds):
                print(f"  {fault}")
        with tempfile.TemporaryDirectory(prefix="vivum-chaos-") as folder:
            verdict = run_chaos(seed, Path(folder), asked.seconds)
            if verdict.violations and asked.keep is not None:
                shutil.copytree(folder, asked.keep / str(seed), dirs_exist_ok=True)
        print("  " + ", ".join(f"{key} {value:,}" for key, value in sorted(verdict.figures.items())), flush=True)
        for text in verdict.violations:
            print(f"  VIOLATION {text}")
        failed += bool(verdict.violations)
        total += verdict.figures
        seed += 1
    print(f"vivum: {number} episodes, {failed} failed; " + ", ".join(f"{k} {v:,}" for k, v in sorted(total.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
