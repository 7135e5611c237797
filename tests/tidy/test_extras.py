"""The advice which extra to install, beside what `pyproject.toml` says."""

import re
import subprocess
import sys
import tomllib

from vivum.core.extras import EXTRAS

DISTRIBUTIONS = {"zmq": "pyzmq", "zenoh": "eclipse-zenoh", "nats": "nats-py"}
"""Names on the package index, where they are not those of the import."""


def test_every_library_is_in_the_extra_that_is_named(root):
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = {extra: {re.split(r"[>=<;\[ ]", each)[0] for each in needs} for extra, needs in extras.items()}
    absent = {library for library, extra in EXTRAS.items() if DISTRIBUTIONS.get(library, library) not in listed[extra]}
    assert absent == set()


COMMANDS = {
    "record /a --to log": "log",
    "pub /a text --trace folder": "log",
    "audit trace": "spark",
    "sweep load.toml": "spark",
    "pipeline run silver": "spark",
}
"""Commands, and the extra that each must name."""

WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in ('pyarrow', 'xxhash', 'pyspark', 'pandas'):
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)

sys.meta_path.insert(0, Absent())
from vivum.cli import main
for words in sys.argv[1:]:
    sys.stderr.write(f'{main(words.split())}\\n')
"""


def test_a_command_without_its_library_names_the_extra_in_one_line(tmp_path):
    """Run where the libraries cannot be found, as on a machine where they were never installed."""
    code = [sys.executable, "-c", WITHOUT, *COMMANDS]
    told = subprocess.run(code, capture_output=True, text=True, check=False, cwd=tmp_path).stderr.splitlines()
    assert [each for each in told if each in "012"] == ["2"] * len(COMMANDS), told
    for (words, extra), line in zip(COMMANDS.items(), told[::2], strict=True):
        assert f"pip install 'vivum[{extra}]'" in line, words
        assert any(f" {library};" in line for library in EXTRAS), words
