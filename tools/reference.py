"""Writes the reference pages in `docs/reference` from the one list of each fact in the code.

    python tools/reference.py            write the pages
    python tools/reference.py --check    write nothing; exit code 1 and one line for each page that is stale

The text depends on the code alone: two runs give the same bytes.
"""

import argparse
import dataclasses
import importlib
import inspect
import pkgutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import msgspec

import vivum
from vivum.core.errors import VivumError
from vivum.core.settings import settings_of
from vivum.core.time import format_duration
from vivum.observe.counters import counter_list
from vivum.observe.trace import Record, TraceRecord
from vivum.wire.kinds import KINDS

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
NOTE = "<!-- Written by tools/reference.py; change the code, then run `make reference`. -->"
WIDTH = 100


def import_all() -> list[ModuleType]:
    """Import every module of the package, so that every subclass and settings class is known."""
    found = []
    for info in pkgutil.walk_packages(vivum.__path__, "vivum."):
        if not info.name.endswith(".__main__"):
            found.append(importlib.import_module(info.name))
    return sorted(found, key=lambda module: module.__name__)


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Write a Markdown table."""
    heads = list(heads)
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
    yield ""


def paragraph(text: str) -> Iterator[str]:
    """Write a paragraph in lines that a terminal holds."""
    yield from textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    yield ""


def item(text: str, depth: int = 0) -> Iterator[str]:
    """Write an item of a list: for what is too long for the cell of a table."""
    indent = "  " * depth
    yield from textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"{indent}- ",
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def counters_page() -> Iterator[str]:
    """Write what a node counts."""
    yield "# Counters"
    yield ""
    yield from paragraph(
        "What every node counts, from `vivum.observe.counters`. Counters only grow, from 0 with each life."
    )
    for name, unit, text in counter_list():
        yield from item(f"`{name}` ({unit}): {text}")


def settings_page() -> Iterator[str]:
    """Write all settings, class by class."""
    yield "# Settings"
    yield ""
    yield "Every setting with its default, why it is that, and what more or less of it does. Each list is"
    yield "one frozen dataclass: pass your own, `Limits(ranges_max=512)`, to change some of it."
    yield ""
    for group in settings_classes():
        yield f"## {group.__name__}"
        yield ""
        base = group.__base__ if dataclasses.is_dataclass(group.__base__) else None
        known = set() if base is None else {each.name for each, _ in settings_of(base)}
        more = "" if base is None else f" Has also all of `{base.__name__}`."
        yield from paragraph(f"`{group.__module__}.{group.__name__}`. {first_paragraph(group)}{more}")
        for each, info in settings_of(group):
            if each.name in known:
                continue
            yield from item(f"`{each.name}` = {shown_value(each.default, info.unit)}, {info.unit}.")
            yield from item(f"Why: {info.why}", 1)
            yield from item(f"Effect: {info.effect}", 1)
        yield ""


def settings_classes() -> list[type]:
    """Find the dataclasses that declare settings, sorted by name, each once however often it is imported."""
    classes = {
        value
        for module in import_all()
        for value in vars(module).values()
        if isinstance(value, type) and dataclasses.is_dataclass(value) and settings_of(value)
    }
    return sorted(classes, key=lambda each: (each.__name__, each.__module__))


def shown_value(value: Any, unit: str) -> str:
    """Write a default as a person reads it."""
    if unit == "ns" and isinstance(value, int):
        return f"`{value:,}` ({format_duration(value)})"
    return f"`{value:,}`" if type(value) is int else f"`{value!r}`"


def traces_page() -> Iterator[str]:
    """Write all trace records with their fields."""
    yield "# Trace records"
    yield ""
    yield from paragraph(
        "What a traced node tells, from `vivum.observe.trace`. A field means the same wherever it stands."
    )
    common = msgspec.structs.fields(Record)
    yield "Every record has these fields:"
    yield ""
    yield from table(["field", "type"], ([f"`{each.name}`", type_name(each.type)] for each in common))
    for record in get_args(TraceRecord):
        yield f"## {record.__name__}"
        yield ""
        yield from paragraph(f"Kind `{record.__struct_config__.tag}`. {first_paragraph(record)}")
        own = msgspec.structs.fields(record)[len(common) :]
        if own:
            yield from table(["field", "type"], ([f"`{each.name}`", type_name(each.type)] for each in own))


def type_name(kind: Any) -> str:
    """Write a field's type as the source does."""
    return f"`{kind.__name__ if isinstance(kind, type) and not get_args(kind) else kind}`".replace("typing.", "")


def kinds_page() -> Iterator[str]:
    """Write all frame kinds."""
    yield "# Frame kinds"
    yield ""
    yield from paragraph(
        "What a frame can be, from `vivum.wire.kinds`. For the layout see [the wire](../design/wire.md)."
    )
    for kind, info in KINDS.items():
        body = "messages" if info.has_messages else "control"
        yield from item(f"{int(kind)} `{kind.name}`, priority {info.priority.name}, body {body}: {info.meaning}")


def errors_page() -> Iterator[str]:
    """Write the tree of errors."""
    import_all()
    yield "# Errors"
    yield ""
    yield "Every error that Vivum raises on purpose. `UsageError` and below: the caller's fault. `PeerError`"
    yield "and below: the fault of a peer, which never reaches an application."
    yield ""
    yield from error_lines(VivumError, 0)
    yield ""


def error_lines(error: type[Exception], depth: int) -> Iterator[str]:
    """Write one error and those below it."""
    yield from item(f"**{error.__name__}** (`{error.__module__}`): {first_paragraph(error)}", depth)
    # Tests may define errors of their own in the same process.
    below = [each for each in error.__subclasses__() if each.__module__.startswith("vivum.")]
    for each in sorted(below, key=lambda each: each.__name__):
        yield from error_lines(each, depth + 1)


def first_paragraph(thing: Any) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "counters.md": counters_page,
    "errors.md": errors_page,
    "kinds.md": kinds_page,
    "settings.md": settings_page,
    "traces.md": traces_page,
}


def pages() -> dict[str, str]:
    """Make the text of every page, by file name."""
    return {name: "\n".join([NOTE, "", *page()]).rstrip() + "\n" for name, page in PAGES.items()}


def stale(folder: Path = FOLDER) -> list[str]:
    """Return the pages in a folder that differ from the generated ones, or that are not generated."""
    wanted = pages()
    faults = [
        f"docs/reference/{name} is stale; run `make reference`"
        for name, text in wanted.items()
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text
    ]
    extra = sorted({path.name for path in folder.glob("*.md")} - set(wanted))
    return faults + [f"docs/reference/{name} is not written by tools/reference.py" for name in extra]


def main() -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description="Write docs/reference from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is stale")
    if parser.parse_args().check:
        faults = stale()
        for fault in faults:
            print(fault, file=sys.stderr)
        return 1 if faults else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(FOLDER.parents[1])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
