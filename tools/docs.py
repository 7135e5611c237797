"""Put the pages of the site together: README as the first page, docs/ as it is, and pages of the API.

python tools/docs.py FOLDER

Beside FOLDER it writes `mkdocs.yml`. Links to files of the tree that are no pages (examples, scripts, sources) lead to
copies of these files.
"""

import ast
import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOP_PAGES = {"README.md": "index.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:]+)(#[^)]*)?\)")

API_PAGES = {
    "Nodes": ["connect", "NodeHandle", "NodeStatistics", "NodeInfo", "Limits"],
    "Topics": ["Topic", "TopicEvent", "Batch", "TopicView", "TopicStatistics", "TopicInfo", "Subscription", "Message"],
    "Guarantees": ["BEST_EFFORT", "RELIABLE", "KEYED", "TIMELY", "Guarantee", "SlowMembers"],
    "Identities": ["Member", "Endpoint"],
    "Errors": [
        *("VivumError", "UsageError", "LimitError", "HostError", "ClosedError", "MissedMessages", "MissedPolicy"),
        *("NoRecorderError", "NoServiceError", "SendFailedError", "TypeMismatch"),
    ],
}
"""What `import vivum` offers, by page."""

CONFIG = """site_name: Vivum
docs_dir: pages
theme:
  name: material
  features: [navigation.sections, content.code.copy]
markdown_extensions: [admonition, tables, attr_list, pymdownx.highlight, pymdownx.superfences]
plugins:
  - search
  - mkdocstrings:
      handlers:
        python:
          paths: [{sources}]
          options:
            show_source: false
            show_root_heading: true
            heading_level: 2
            members_order: source
            filters: ["!^_"]
            inherited_members: true
validation:
  links: {{not_found: warn, anchors: warn, absolute_links: warn, unrecognized_links: warn}}
nav:
  - Vivum: index.md
  - Tutorial: guide/tutorial.md
  - How to:
{guide}
      - TESTING_YOUR_PROGRAMS.md
  - API:
{api}
  - How it works:
      - GUARANTEES.md
      - ARCHITECTURE.md
      - GLOSSARY.md
{design}
  - Reference:
{reference}
      - PERFORMANCE.md
      - TESTING.md
  - Lab:
{lab}
  - Experiments:
{experiments}
  - CHANGELOG.md
  - CONTRIBUTING.md
"""


def homes() -> dict[str, str]:
    """Return the module of each public name, as `vivum/__init__.py` lists them. Nothing is imported."""
    tree = ast.parse((ROOT / "src/vivum/__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_HOMES":
            listed = ast.literal_eval(node.value)
            return {name: home for home, names in listed.items() for name in names}
    raise SystemExit("src/vivum/__init__.py has no _HOMES")


def place_of(path: Path, pages: Path) -> Path:
    """Return where a file of the tree is among the pages."""
    inside = path.relative_to(ROOT)
    if str(inside) in TOP_PAGES:
        return pages / TOP_PAGES[str(inside)]
    return pages / (inside.relative_to("docs") if inside.parts[0] == "docs" else Path("tree") / inside)


def with_links(source: Path, pages: Path) -> str:
    """Return the text of a page with links that hold among the pages; copy the files that they lead to."""
    here = place_of(source, pages).parent

    def moved(match: "re.Match[str]") -> str:
        text, target, anchor = match[1], (source.parent / match[2]).resolve(), match[3] or ""
        if not target.is_relative_to(ROOT) or not target.exists():
            raise SystemExit(f"{source}: the link to {match[2]} leads nowhere")
        if target.is_dir():
            # A folder is no page: its name is enough.
            return text
        place = place_of(target, pages)
        if target.suffix != ".md":
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, place)
        return f"[{text}]({os.path.relpath(place, here)}{anchor})"

    found = source.read_text(encoding="utf-8")
    parts = re.split(r"(^```.*?^```$)", found, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts).replace(
        "](docs/pictures/", "](pictures/"
    )


def listed(pages: Path, folder: str) -> str:
    """Return the pages of a folder as lines of the navigation."""
    found = sorted((pages / folder).glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
    return "\n".join(f"      - {page.relative_to(pages)}" for page in found if page.name != "tutorial.md")


def write_api(pages: Path) -> str:
    """Write the pages of the API; return them as lines of the navigation."""
    known = homes()
    missing = set(known) - {name for names in API_PAGES.values() for name in names}
    if missing:
        raise SystemExit(f"tools/docs.py: no page of the API has {', '.join(sorted(missing))}")
    (pages / "api").mkdir()
    lines = []
    for title, names in API_PAGES.items():
        blocks = "\n".join(f"::: {known[name]}.{name}\n" for name in names)
        (pages / f"api/{title.lower()}.md").write_text(f"# {title}\n\n{blocks}", encoding="utf-8")
        lines.append(f"      - api/{title.lower()}.md")
    for module, title in (("vivum.sync", "Threads"), ("vivum.testing", "Testing")):
        (pages / f"api/{title.lower()}.md").write_text(f"# {title}\n\n::: {module}\n", encoding="utf-8")
        lines.append(f"      - api/{title.lower()}.md")
    return "\n".join(lines)


def main(pages: Path) -> None:
    """Write all pages and the configuration."""
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("*.md"))
    for source in [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in TOP_PAGES)]:
        place = place_of(source, pages)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(with_links(source, pages), encoding="utf-8")
    folders = {name: listed(pages, name) for name in ("guide", "design", "reference", "lab", "experiments")}
    text = CONFIG.format(sources=ROOT / "src", api=write_api(pages), **folders)
    (pages.parent / "mkdocs.yml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
