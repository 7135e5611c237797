"""Starts actors, asks them, and ends them whatever happens."""

import json
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ACTOR = Path(__file__).with_name("actor.py")
TIMEOUT_S = 45
"""Generous: the computer may be busy. What works takes a part of a second."""


class Process:
    """One actor."""

    def __init__(self, domain: str, **options: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(ACTOR), domain, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._is_awaited = False

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def answer(self) -> Any:
        try:
            line = self._lines.get(timeout=TIMEOUT_S)
        except queue.Empty:
            raise AssertionError(f"no answer within {TIMEOUT_S} s") from None
        assert line, f"the process ended with {self._process.wait()}"
        told = json.loads(line)
        assert "error" not in told, told["error"]
        return told.get("answer", told)

    def tell(self, do: str, **arguments: Any) -> "Process":
        """Ask without waiting; `answer` must follow."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        return self

    def ask(self, do: str, **arguments: Any) -> Any:
        return self.tell(do, **arguments).answer()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> int:
        """Let it end by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(TIMEOUT_S)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Cast:
    """All actors of one test."""

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self.all: list[Process] = []

    def start(self, count: int = 1, **options: Any) -> list[Process]:
        """Start so many and wait until each has joined."""
        made = [Process(self.domain, **options) for _ in range(count)]
        self.all += made
        for each in made:
            each.answer()
        return made

    def end(self) -> None:
        for each in self.all:
            each.end()
