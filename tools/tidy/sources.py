"""Finds the files of a repository, and the modules and imports in them, without importing anything."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

TREES_MAX = 1024
"""Files that stay parsed, since several rules read the same ones."""

_NOT_OURS = {"build", "dist", "node_modules", "out", "__pycache__"}


@dataclass(frozen=True)
class Import:
    """One import: the full name of what is imported, and where."""

    name: str
    line: int


@dataclass(frozen=True)
class Module:
    """One Python file of the package."""

    path: Path
    name: str
    """Dotted, `vivum.core.ids`; a package has the name of its folder."""

    @property
    def is_package(self) -> bool:
        """Return whether this is an `__init__.py`."""
        return self.path.name == "__init__.py"

    @property
    def part(self) -> str:
        """The package under `vivum` that the module is in, or `vivum` for the root itself."""
        return self.name.split(".")[1] if "." in self.name else self.name

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return parsed(self.path)

    def imports(self) -> Iterator[Import]:
        """List all imports, those inside functions and under TYPE_CHECKING too.

        `from a.b import c` counts as `a.b.c`: whether `c` is a module or a name in one is another matter.
        """
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, node.lineno)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    parts = self.name.split(".")
                    drop = node.level - 1 if self.is_package else node.level
                    base = ".".join(parts[: len(parts) - drop] + ([node.module] if node.module else []))
                for alias in node.names:
                    yield Import(f"{base}.{alias.name}", node.lineno)


def parsed(path: Path) -> ast.Module:
    """Parse a file, or return what came of the same text before."""
    return _tree(path.read_text(encoding="utf-8"), str(path))


@lru_cache(TREES_MAX)
def _tree(text: str, name: str) -> ast.Module:
    return ast.parse(text, name)


def modules(root: Path) -> list[Module]:
    """List the modules of `src/vivum`, sorted by name."""
    source = root / "src"
    found = []
    for path in (source / "vivum").rglob("*.py"):
        parts = list(path.relative_to(source).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        found.append(Module(path, ".".join(parts)))
    return sorted(found, key=lambda each: each.name)


def files(root: Path, *suffixes: str, under: tuple[str, ...] = (".",)) -> list[Path]:
    """List our files with one of these suffixes, sorted; hidden folders and made ones are not ours."""
    found = set()
    for folder in under:
        for path in (root / folder).rglob("*"):
            inside = path.relative_to(root).parts
            ours = not any(part in _NOT_OURS or part.startswith(".") or part.endswith(".egg-info") for part in inside)
            if ours and path.suffix in suffixes and path.is_file():
                found.add(path)
    return sorted(found)


def shown(root: Path, path: Path, line: int | None = None) -> str:
    """Write a place as an editor wants it."""
    place = path.relative_to(root).as_posix()
    return place if line is None else f"{place}:{line}"
