"""Do what a page says, literally: write its programs to files, run its commands, compare what they print.

python tools/newcomer.py README.md [--short | --no-make]

A `python` block that begins with `# NAME.py` becomes that file here. An `sh` block is run line by line; lines that end
in `# terminal 1` and `# terminal 2` run side by side, one begun after the other. A `text` block after it must be what
each of those terminals prints, in any order.

`--short` leaves out blocks that install or make something: it tries the Vivum that is here.
`--no-make` leaves out those with `make`.

Exit code 1, and the output of all terminals, at the first thing that does not go as the page says.
"""

import re
import subprocess
import sys
import time
from pathlib import Path

BLOCK = re.compile(r"^```(python|sh|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TERMINAL = re.compile(r"\s+# terminal \d+$")
MAKE = ("make ",)
INSTALLS = ("pip install", "-m venv", "activate", *MAKE)
COMMAND_S = 600
TERMINAL_S = 1.5


class Session:
    """A shell that keeps what a block did to its environment (`. .venv/bin/activate`) for the next ones."""

    def __init__(self) -> None:
        self._before: list[str] = []
        self.printed: list[str] = []

    def run(self, block: str) -> None:
        """Run the lines of a block, and wait for all of them."""
        lines = [line for line in block.splitlines() if line.strip() and not line.startswith("#")]
        self.printed = []
        started: list[tuple[str, subprocess.Popen[str]]] = []
        for line in lines:
            if TERMINAL.search(line):
                # As a person would, who has to change to the other terminal.
                time.sleep(TERMINAL_S if started else 0)
                started.append(self._start(TERMINAL.sub("", line)))
                continue
            # What comes behind the terminals waits for them.
            self._finish(started)
            if line.startswith(". "):
                self._before.append(line)
            self._finish([self._start(line)])
        self._finish(started)

    def _start(self, line: str) -> tuple[str, "subprocess.Popen[str]"]:
        sys.stdout.write(f"$ {line}\n")
        sys.stdout.flush()
        script = "\n".join(["set -e", *self._before, line])
        return line, subprocess.Popen(
            ["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
        )

    def _finish(self, started: list[tuple[str, "subprocess.Popen[str]"]]) -> None:
        for line, process in started:
            try:
                out, _ = process.communicate(timeout=COMMAND_S)
            except subprocess.TimeoutExpired:
                process.kill()
                out, _ = process.communicate()
                out += f"\n(did not end within {COMMAND_S} s)"
            self.printed.append(out)
            sys.stdout.write("".join(f"  {each}\n" for each in out.splitlines()[-8:]))
            if process.returncode:
                sys.exit(f"exit code {process.returncode}: {line}\n{out}")
        started.clear()


def follow(page: Path, left_out: tuple[str, ...]) -> None:
    """Do what a page says, but for the blocks of commands with one of these words."""
    began = time.monotonic()
    session = Session()
    programs: set[str] = set()
    for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            name = re.match(r"# (\w+\.py)\n", text)
            if name:
                Path(name[1]).write_text(text, encoding="utf-8")
                programs.add(name[1])
        elif kind == "sh":
            if any(word in text for word in left_out):
                session.printed = []
                continue
            session.run(text)
            if any(name in text for name in programs):
                programs.clear()
                sys.stdout.write(f"first message after {time.monotonic() - began:.1f} s\n")
        else:
            wanted = sorted(text.splitlines())
            for out in session.printed:
                if sorted(out.splitlines()) != wanted:
                    sys.exit(f"the page shows\n{text}\nbut this was printed:\n{out}")


if __name__ == "__main__":
    options = sys.argv[2:]
    follow(Path(sys.argv[1]).resolve(), INSTALLS if "--short" in options else MAKE if "--no-make" in options else ())
