"""The looks of files: docstrings, leftovers, empty packages, tests without tests, dead links."""

import ast
import re
from pathlib import Path
from urllib.parse import unquote

from tidy.sources import files, modules, parsed, shown

MARKDOWN_COLUMNS = 100
_LEFTOVER = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
_CODE_BLOCK = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE_SPAN = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
_FOREIGN = re.compile(r"[a-z][a-z0-9+.-]*:|#", re.IGNORECASE)


def docstring_faults(root: Path) -> list[str]:
    """Find modules that do not say what they are."""
    return [
        f"{shown(root, path)}: no docstring that says what the module does"
        for path in files(root, ".py", under=("src", "tools", "bench"))
        if not ast.get_docstring(parsed(path))
    ]


def leftover_faults(root: Path) -> list[str]:
    """Find notes of unfinished work."""
    return [
        f"{shown(root, path, number)}: {match[1]}; do it, or file it as an issue"
        for path in files(root, ".py", ".pyx", ".pyi", ".md", ".sh", ".toml")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := _LEFTOVER.search(line))
    ]


def width_faults(root: Path) -> list[str]:
    """Find lines of Markdown that are wider than a page."""
    return [
        f"{shown(root, path, number)}: {len(line)} columns; wrap at {MARKDOWN_COLUMNS}"
        for path in files(root, ".md")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > MARKDOWN_COLUMNS
    ]


def package_faults(root: Path) -> list[str]:
    """Find packages with nothing in them, folders of code that are no packages, and modules named utils."""
    faults = []
    every = modules(root)
    for module in every:
        place = shown(root, module.path)
        if module.name.split(".")[-1] in {"util", "utils", "helpers", "misc"}:
            faults.append(f"{place}: a module is named after its concept, not {module.name.split('.')[-1]!r}")
        folder = module.path.parent
        if not (folder / "__init__.py").exists():
            faults.append(f"{place}: its folder has no __init__.py")
        elif module.is_package and _only_docstring(module.tree) and not _has_content(folder):
            faults.append(f"{place}: the package is empty; make it when something belongs in it")
    return faults


def _only_docstring(tree: ast.Module) -> bool:
    return all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in tree.body)


def _has_content(folder: Path) -> bool:
    return any(
        path.name != "__init__.py" or path.parent != folder
        for suffix in ("*.py", "*.pyx")
        for path in folder.rglob(suffix)
    )


def empty_test_faults(root: Path) -> list[str]:
    """Find test files without a test in them."""
    return [
        f"{shown(root, path)}: no test in it"
        for path in files(root, ".py", under=("tests",))
        if path.name.startswith("test_") and not _has_test(ast.parse(path.read_text(encoding="utf-8")))
    ]


def _has_test(tree: ast.Module) -> bool:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    named = any(isinstance(node, functions) and node.name.startswith("test_") for node in ast.walk(tree))
    # A hypothesis state machine is collected as a class: `TestX = X.TestCase`.
    machine = any(
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.startswith("Test")
        for node in tree.body
    )
    return named or machine


def link_faults(root: Path) -> list[str]:
    """Find relative links in Markdown files that lead nowhere."""
    faults = []
    for path in files(root, ".md"):
        text = path.read_text(encoding="utf-8")
        # Blank out code, and keep the line numbers right.
        text = _CODE_BLOCK.sub(lambda match: "\n" * match[0].count("\n"), text)
        text = _CODE_SPAN.sub("``", text)
        for match in _LINK.finditer(text):
            link = match[1] or match[2]
            target = unquote(link.split("#")[0])
            if not _FOREIGN.match(link) and not (path.parent / target).exists():
                line = text.count("\n", 0, match.start()) + 1
                faults.append(f"{shown(root, path, line)}: the link {link} leads nowhere")
    return faults
