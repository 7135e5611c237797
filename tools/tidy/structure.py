"""Layers, purity and owners of libraries: what a module may import and call."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from layers import (
    IMPURE_CALLS,
    IMPURE_MODULES,
    LAYERS,
    LIBRARY_OWNERS,
    PROTOCOLS,
    PURE,
    PURITY_EXCEPTIONS,
    SEEDED,
)
from tidy.sources import Module, files, modules, parsed, shown

_ROW = {part: row for row, parts in enumerate(LAYERS) for part in parts}
_WALL_CLOCKS = {"now", "utcnow", "today"}
# In Cython an import may also be a cimport; `libc` and `cpython` are headers of C and not looked into.
_PYX_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\b|c?import\s+([\w.]+))", re.MULTILINE)
_PYX_CALL = re.compile(r"(?<![\w.])(" + "|".join(sorted(IMPURE_CALLS)) + r")\s*\(")
_PYX_RANDOM = re.compile(r"(?<![\w.])random\.(?!Random\b)\w+")


def layer_faults(root: Path) -> list[str]:
    """Find imports that do not point downward, and packages that have no row in the table."""
    every = modules(root)
    known = {module.name for module in every}
    faults = [
        f"src/vivum/{part}: no row in tools/layers.py; say there where it belongs"
        for part in sorted({module.part for module in every} - set(_ROW))
    ]
    for module in every:
        for each in module.imports():
            target = _target(each.name, known)
            if target is None or module.part not in _ROW:
                continue
            place = shown(root, module.path, each.line)
            there = target.split(".")[1] if "." in target else target
            if there == module.part:
                faults += _protocol_faults(module, target, known, place)
            elif there in _ROW and _ROW[there] <= _ROW[module.part]:
                relation = "its neighbour" if _ROW[there] == _ROW[module.part] else "above it"
                faults.append(f"{place}: {module.part} imports {target}, but {there} is {relation} in tools/layers.py")
    return faults


def _target(name: str, known: set[str]) -> str | None:
    """Return the module of ours that an import reaches, or None when it is none of ours."""
    if name != "vivum" and not name.startswith("vivum."):
        return None
    # A module that is compiled, or does not exist, still has a package that decides its layer.
    return name if name in known or name.count(".") > 1 else "vivum"


def _protocol_faults(module: Module, target: str, known: set[str], place: str) -> Iterator[str]:
    if module.part != "protocols":
        return
    here, there = _protocol(module.name, known), _protocol(target, known)
    if there is None or here == there:
        return
    if there not in PROTOCOLS:
        yield f"{place}: vivum.protocols.{there} is not in PROTOCOLS of tools/layers.py"
    elif here is None:
        yield f"{place}: {module.name} is ground for all protocols and must not import {target}"
    elif here in PROTOCOLS and PROTOCOLS.index(there) < PROTOCOLS.index(here):
        yield f"{place}: protocol {here} imports {target}, which is above it in PROTOCOLS of tools/layers.py"


def _protocol(name: str, known: set[str]) -> str | None:
    """Return the sub-package of `vivum.protocols` that a module is in, or None for one beside them."""
    parts = name.split(".")
    inside = len(parts) > 2 and any(each.startswith(".".join(parts[:3]) + ".") for each in known)
    return parts[2] if inside else None


def protocol_faults(root: Path) -> list[str]:
    """Find sub-packages of `vivum.protocols` that have no place in the order."""
    folder = root / "src/vivum/protocols"
    found = {path.parent.name for path in folder.glob("*/__init__.py")}
    return [
        f"src/vivum/protocols/{name}: not in PROTOCOLS of tools/layers.py; say there where it belongs"
        for name in sorted(found - set(PROTOCOLS))
    ]


def _within(name: str, parts: frozenset[str]) -> bool:
    return any(name == f"vivum.{part}" or name.startswith(f"vivum.{part}.") for part in parts)


def purity_faults(root: Path, exceptions: dict[tuple[str, str], str] = PURITY_EXCEPTIONS) -> list[str]:
    """Find clocks, sockets, files, threads and global randomness in pure packages; unneeded exceptions."""
    faults = []
    used: set[tuple[str, str]] = set()
    names = set()
    for module in modules(root):
        names.add(module.name)
        if _within(module.name, PURE):
            found = [*_impure_imports(module), *_impure_calls(module), *_global_random(module)]
        elif _within(module.name, SEEDED):
            found = list(_global_random(module))
        else:
            continue
        for line, thing in found:
            if (module.name, thing) in exceptions:
                used.add((module.name, thing))
            else:
                faults.append(f"{shown(root, module.path, line)}: {thing} has no place in a pure package")
    for path in files(root, ".pyx", under=("src",)):
        faults += [f"{shown(root, path)}: {thing} has no place in a pure package" for thing in _impure_pyx(root, path)]
    for module_name, thing in sorted(set(exceptions) - used):
        if module_name in names:
            faults.append(f"tools/layers.py: {module_name} no longer needs its purity exception for {thing}")
    return faults


def _impure_imports(module: Module) -> Iterator[tuple[int, str]]:
    for each in module.imports():
        top = each.name.split(".")[0]
        if top in IMPURE_MODULES:
            yield each.line, top


def _impure_calls(module: Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield node.lineno, f"{node.func.id}()"
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _WALL_CLOCKS:
            owner = ast.unparse(node.func.value)
            if owner.split(".")[-1] in {"datetime", "date"}:
                yield node.lineno, f"{owner}.{node.func.attr}()"


def _global_random(module: Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module == "random":
            for alias in node.names:
                if alias.name != "Random":
                    yield node.lineno, f"random.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "random" and alias.asname not in (None, "random"):
                    yield node.lineno, f"random under the name {alias.asname}"
        elif isinstance(node, ast.Attribute) and node.attr != "Random":
            owner = node.value
            if isinstance(owner, ast.Name) and owner.id == "random":
                yield node.lineno, f"random.{node.attr}"


def _impure_pyx(root: Path, path: Path) -> Iterator[str]:
    name = ".".join(path.relative_to(root / "src").with_suffix("").parts)
    if not _within(name, PURE):
        return
    text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
    for match in _PYX_IMPORT.finditer(text):
        top = (match[1] or match[2]).split(".")[0]
        if top in IMPURE_MODULES:
            yield top
    yield from (f"{match[1]}()" for match in _PYX_CALL.finditer(text))
    yield from (match[0] for match in _PYX_RANDOM.finditer(text))


def library_faults(root: Path) -> list[str]:
    """Find imports of a heavy library outside the packages that own it."""
    faults = []
    for module in modules(root):
        for each in module.imports():
            library = each.name.split(".")[0]
            owners = LIBRARY_OWNERS.get(library)
            if owners is not None and module.part not in owners:
                place = shown(root, module.path, each.line)
                faults.append(f"{place}: {library} is imported in {' and '.join(sorted(owners))} alone")
    return faults


_GUARANTEES = "src/vivum/guarantees.py"
_KNOW_NO_ENTRY = {"live", "runtime", "node", "storage", "protocols"}


def entry_faults(root: Path) -> list[str]:
    """Find what knows a guarantee or a layer by name below the registry or beside it: it must ask the entry instead."""
    registry = root / _GUARANTEES
    if not registry.exists():
        return []
    entries, names, layers = _registered(parsed(registry))
    faults = []
    for module in modules(root):
        if module.part not in _KNOW_NO_ENTRY or module.name.startswith(layers):
            continue
        for each in module.imports():
            if each.name.startswith(layers):
                faults.append(f"{shown(root, module.path, each.line)}: knows the layer {each.name}; ask the entry")
        texts = _documentation(module.tree)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Name):
                said, is_known = node.id, node.id in entries
            elif isinstance(node, ast.Attribute):
                said, is_known = node.attr, node.attr in entries
            elif isinstance(node, ast.Constant):
                said, is_known = str(node.value), node.value in names and id(node) not in texts
            else:
                continue
            if is_known:
                faults.append(f"{shown(root, module.path, node.lineno)}: names the guarantee {said}; ask the entry")
    return faults


def _registered(tree: ast.Module) -> tuple[set[str], set[str], tuple[str, ...]]:
    """Return the constants of the entries, their names, and the packages of their layers."""
    entries: set[str] = set()
    names: set[str] = set()
    layers: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = node.value
            if isinstance(called.func, ast.Name) and called.func.id == "Guarantee":
                entries.update(target.id for target in node.targets if isinstance(target, ast.Name))
                names.update(str(each.value) for each in called.args[:1] if isinstance(each, ast.Constant))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vivum.protocols."):
            package = (node.module or "").split(".")[:3]
            if len((node.module or "").split(".")) > len(package):
                layers.append(".".join(package) + ".")
    return entries, names, tuple(layers)


def _documentation(tree: ast.Module) -> set[int]:
    """Return the ids of constants that stand alone: docstrings."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
