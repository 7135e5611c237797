"""The pages that `make docs` makes into a site, put together without building it."""

import subprocess
import sys

import pytest

import vivum


@pytest.fixture
def pages(root, tmp_path):
    folder = tmp_path / "pages"
    subprocess.run([sys.executable, str(root / "tools/docs.py"), str(folder)], check=True)
    return folder


def test_every_public_name_has_a_place_in_the_api(pages):
    written = "\n".join(page.read_text() for page in (pages / "api").glob("*.md"))
    assert {name for name in vivum.__all__ if f".{name}\n" not in written} == set()


def test_every_page_is_in_the_navigation(pages):
    navigation = (pages.parent / "mkdocs.yml").read_text()
    found = {str(page.relative_to(pages)) for page in pages.rglob("*.md")}
    assert {name for name in found if name not in navigation} == set()


def test_a_link_to_a_file_of_the_tree_leads_to_its_copy(pages):
    assert "](../tree/examples/deploy/compose.yaml)" in (pages / "guide/deploy.md").read_text()
    assert (pages / "tree/examples/deploy/compose.yaml").exists()
    assert "](../index.md#install)" in (pages / "guide/tutorial.md").read_text()


def test_every_public_name_has_a_docstring():
    constants = {"BEST_EFFORT", "RELIABLE", "KEYED", "MissedPolicy"}
    for name in set(vivum.__all__) - constants:
        found = getattr(vivum, name)
        assert found.__doc__, name
        if isinstance(found, type):
            for part, value in vars(found).items():
                if not part.startswith("_") and callable(value):
                    assert value.__doc__, f"{name}.{part}"
