"""Gives the tidy tests the rules of `tools/`, the repository, and small trees with a planted fault."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

Plant = Callable[[dict[str, str]], Path]


@pytest.fixture
def root() -> Path:
    return ROOT


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """Write files, by path below an empty repository; packages get their `__init__.py`."""

    def write(contents: dict[str, str]) -> Path:
        for name, text in contents.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            folder = path.parent
            while folder.is_relative_to(tmp_path / "src/vivum"):
                init = folder / "__init__.py"
                if not init.exists():
                    init.write_text('"""A package."""\n', encoding="utf-8")
                folder = folder.parent
        return tmp_path

    return write
