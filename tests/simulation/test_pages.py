"""What the pages on the simulator and on testing show is run."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


def output_of(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def test_the_ten_lines_of_simulation_run_and_every_promise_holds():
    (simulated,) = programs("docs/design/simulator.md")
    assert re.fullmatch(r"\d+ deliveries, [1-9]\d* datagrams lost, \[\]\n", output_of(simulated))


def test_the_first_rehearsal_of_the_page_on_testing_runs():
    first, *_ = programs("docs/TESTING_YOUR_PROGRAMS.md")
    output_of(f"{first}\ntest_everything_is_heard_on_a_bad_network()")
