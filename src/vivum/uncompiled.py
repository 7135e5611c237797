"""Import the package without its compiled parts, for tests and for suspicion: what `VIVUM_PURE` asks for.

`VIVUM_PURE=1` hides all compiled modules, so that their plain-Python twins serve. `VIVUM_PURE=source` hides those that
are compiled from a module of plain Python (`docs/design/compiled.md`): tests that plant faults in protocols need
classes that can be changed.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from types import ModuleType


class SourceFirst:
    """A finder of the package's modules: sources before compiled ones, or sources alone."""

    def __init__(self, *, alone: bool) -> None:
        compiled = [] if alone else [(ExtensionFileLoader, EXTENSION_SUFFIXES)]
        self._loaders = [(SourceFileLoader, SOURCE_SUFFIXES), *compiled]

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Find a module of this package as its source; leave all others to those who come next."""
        if path is None or not name.startswith("vivum."):
            return None
        found = (FileFinder(each, *self._loaders).find_spec(name) for each in path)
        spec = next((each for each in found if each is not None), None)
        if spec is None:
            # Not to the ordinary finders: they would find the compiled module.
            raise ModuleNotFoundError(f"no source of {name}, and VIVUM_PURE hides what is compiled", name=name)
        return spec


def hide_compiled(wish: str) -> None:
    """Do what `VIVUM_PURE` says, before any other module of the package is imported."""
    sys.meta_path.insert(0, SourceFirst(alone=wish == "1"))
