"""What the README shows is run."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_ten_lines_of_the_readme_run_and_every_promise_holds():
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"\d+ deliveries, [1-9]\d* datagrams lost, \[\]\n", done.stdout)
