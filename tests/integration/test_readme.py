"""The README's programs and commands, but for installs: `make soak` does those too (tools/newcomer.sh)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def follow(page: Path, folder: Path, domain: str) -> "subprocess.CompletedProcess[str]":
    here = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        [sys.executable, str(ROOT / "tools/newcomer.py"), str(page), "--short"],
        cwd=folder,
        env=os.environ | {"PATH": here, "VIVUM_DOMAIN": domain},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_tutorial_does_what_it_says(tmp_path: Path, domain_name: str) -> None:
    done = follow(ROOT / "docs/guide/tutorial.md", tmp_path, domain_name)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "number 4" in lines
    assert "NESN 101.2 102.0" in lines
    assert lines[lines.index("leads 2 members") + 1] == "leads 1 members"
    assert "3 messages sent again" in lines


def test_the_readme_does_what_it_says(tmp_path: Path, domain_name: str) -> None:
    done = follow(ROOT / "README.md", tmp_path, domain_name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "$ python chat.py ann" in done.stdout
    assert "$ vivum sub '/hello/**'" in done.stdout
    assert "first message after" in done.stdout


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("```sh\necho one\n```\n```text\ntwo\n```\n", "but this was printed"),
        ("```sh\nfalse\n```\n", "exit code 1: false"),
        ("```sh\necho a  # terminal 1\nfalse   # terminal 2\n```\n", "exit code 1: false"),
    ],
)
def test_a_page_that_is_wrong_fails(page: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(page)
    done = follow(tmp_path / "page.md", tmp_path, "none")
    assert done.returncode == 1
    assert told in done.stderr
