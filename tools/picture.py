"""Write docs/pictures/demo.svg: what `vivum demo` prints, as a terminal shows it.

python tools/picture.py [SECONDS]
"""

import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 118
LINES_SHOWN = 48
"""Beginning and end are shown where there are more lines."""


def main() -> None:
    """Run the demo and write the picture."""
    seconds = sys.argv[1] if len(sys.argv) > 1 else "20"
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "dumb"}
    command = [sys.executable, "-m", "vivum.cli", "demo", "--seconds", seconds]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    lines = [line for line in shown.splitlines() if "\r" not in line]
    if len(lines) > LINES_SHOWN:
        half = LINES_SHOWN // 2
        lines = [*lines[:half], "  …", *lines[-half:]]
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print("[bold green]$[/] vivum demo\n")
        console.print(Text.from_ansi("\n".join(lines)))
        target = Path(__file__).resolve().parent.parent / "docs/pictures/demo.svg"
        target.parent.mkdir(exist_ok=True)
        console.save_svg(str(target), title="vivum demo")
    sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main()
