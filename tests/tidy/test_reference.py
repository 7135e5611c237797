import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

import reference
from vivum.core.errors import UsageError
from vivum.core.settings import setting, settings_of


def test_reference_pages_are_fresh():
    assert reference.stale() == []


def test_a_stale_a_missing_and_a_foreign_page_are_caught(tmp_path):
    for name, text in reference.pages().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert reference.stale(tmp_path) == []
    (tmp_path / "counters.md").write_text("old", encoding="utf-8")
    (tmp_path / "kinds.md").unlink()
    (tmp_path / "notes.md").write_text("mine", encoding="utf-8")
    assert reference.stale(tmp_path) == [
        "docs/reference/counters.md is stale; run `make reference`",
        "docs/reference/kinds.md is stale; run `make reference`",
        "docs/reference/notes.md is not written by tools/reference.py",
    ]


@pytest.mark.slow
def test_pages_are_the_same_in_every_process(root):
    texts = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        code = "import reference; print(reference.pages())"
        run = [sys.executable, "-c", code]
        texts.append(subprocess.run(run, cwd=root / "tools", env=environment, capture_output=True, check=True).stdout)
    assert texts[0] == texts[1]


def test_a_page_names_what_the_code_has():
    pages = reference.pages()
    assert "- `frames_received` (frames): " in pages["counters.md"]
    assert "- `message_bytes_max` = `16,777,216`, bytes.\n  - Why: " in pages["settings.md"]
    assert "## MessageDelivered\n\nKind `message_delivered`." in pages["traces.md"]
    assert "- 1 `DATA`, priority DATA, body messages: " in pages["kinds.md"]
    assert "    - **LimitError** (`vivum.core.errors`)" in pages["errors.md"]


def test_an_error_that_a_test_defines_stays_out():
    class MadeUpError(UsageError):
        """Only here."""

    assert MadeUpError.__name__ not in reference.pages()["errors.md"]


def test_durations_are_shown_with_a_unit_that_people_read():
    @dataclass(frozen=True)
    class Made:
        delay_ns: int = setting(10_000_000, unit="ns", why="w", effect="e")

    ((field, info),) = settings_of(Made)
    assert reference.shown_value(field.default, info.unit) == "`10,000,000` (10ms)"


def test_a_bar_in_a_text_does_not_break_a_table():
    assert list(reference.table(["a"], [["x|y"]]))[2] == "| x\\|y |"
