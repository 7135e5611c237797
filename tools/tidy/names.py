"""Names: each public one has one home, and `__all__` tells the truth."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from layers import SAME_NAMES
from tidy.sources import Module, modules, shown

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def name_faults(root: Path, same_names: dict[str, str] = SAME_NAMES) -> list[str]:
    """Find public classes and functions that two modules define, and permissions nobody needs.

    Modules whose own name begins with an underscore are not looked at: they are twins behind a public one.
    """
    homes: dict[str, list[str]] = defaultdict(list)
    for module in modules(root):
        if not module.name.split(".")[-1].startswith("_"):
            for name in sorted({node.name for node in _definitions(module.tree.body)}):
                homes[name].append(module.name)
    faults = [
        f"{name} is defined in {' and '.join(where)}; rename one of them, or import it"
        for name, where in sorted(homes.items())
        if len(where) > 1 and name not in same_names
    ]
    faults += [
        f"tools/layers.py: {name} is defined once, so its permission in SAME_NAMES is not needed"
        for name in sorted(same_names)
        if len(homes[name]) < 2
    ]
    return faults


def _definitions(body: list[ast.stmt]) -> Iterator[Definition]:
    for node in body:
        if isinstance(node, Definition):
            if not node.name.startswith("_") and not _is_command(node):
                yield node
        elif isinstance(node, ast.If | ast.Try):
            yield from _definitions([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)])


def _is_command(node: Definition) -> bool:
    """Return whether this is a command of the command line, which nobody imports by its name."""
    return any(ast.unparse(each).startswith("app.command") for each in node.decorator_list)


def export_faults(root: Path) -> list[str]:
    """Find entries of `__all__` that are missing from the module, private, or listed twice."""
    faults = []
    for module in modules(root):
        listed = _all(module)
        if listed is None:
            continue
        place = shown(root, module.path)
        bound = _bound(module)
        for name in listed:
            if name not in bound:
                faults.append(f"{place}: __all__ lists {name}, which the module does not have")
            elif name.startswith("_") and not name.startswith("__"):
                faults.append(f"{place}: __all__ lists {name}, which is private")
        faults += [
            f"{place}: __all__ lists {name} twice" for name in sorted({n for n in listed if listed.count(n) > 1})
        ]
    return faults


def _all(module: Module) -> list[str] | None:
    for node in module.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                return [str(name) for name in ast.literal_eval(node.value)]
    return None


def _bound(module: Module) -> set[str]:
    """Collect every name that the module binds at its top level, and its sub-modules."""
    names = {path.stem for path in module.path.parent.glob("*.py")} if module.is_package else set()
    # Names bound inside functions and classes are not the module's, but their own names are.
    todo: list[ast.AST] = list(module.tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, Definition):
            names.add(node.name)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        todo += ast.iter_child_nodes(node)
    # Lazy exports: a module-level __getattr__ may serve any name that the module's text mentions as a string.
    if "__getattr__" in names:
        names |= {n.value for n in ast.walk(module.tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return names
