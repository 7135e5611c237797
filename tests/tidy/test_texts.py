import pytest

from tidy.texts import (
    docstring_faults,
    empty_test_faults,
    leftover_faults,
    link_faults,
    package_faults,
    width_faults,
)

RULES = [docstring_faults, leftover_faults, link_faults, width_faults, package_faults, empty_test_faults]


@pytest.mark.parametrize("rule", RULES)
def test_the_repository_follows(root, rule):
    assert rule(root) == []


@pytest.mark.parametrize("rule", RULES)
def test_a_tidy_tree_is_not_accused_by(plant, rule):
    tree = plant(
        {
            "src/vivum/core/ids.py": '"""Names of things."""\n',
            "tests/test_ids.py": "def test_ids_are_integers(): ...\n",
            "README.md": "[core](src/vivum/core) and [out](https://example.org)\n",
        }
    )
    assert rule(tree) == []


def test_a_module_without_a_docstring_is_caught(plant):
    tree = plant({"src/vivum/core/ids.py": "NodeId = int\n"})
    assert docstring_faults(tree) == ["src/vivum/core/ids.py: no docstring that says what the module does"]


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME"])
def test_a_note_of_unfinished_work_is_caught(plant, word):
    (fault,) = leftover_faults(plant({"docs/plan.md": f"Good.\n{word}: better\n"}))
    assert fault.startswith(f"docs/plan.md:2: {word}")


def test_a_line_of_markdown_that_is_too_wide_is_caught(plant):
    tree = plant({"docs/plan.md": f"{'ä' * 100}\n{'x' * 101}\n"})
    assert width_faults(tree) == ["docs/plan.md:2: 101 columns; wrap at 100"]


def test_an_empty_package_is_caught(plant):
    tree = plant({"src/vivum/core/ids.py": "", "src/vivum/tempest/__init__.py": '"""Soon."""\n'})
    assert package_faults(tree) == [
        "src/vivum/tempest/__init__.py: the package is empty; make it when something belongs in it"
    ]


def test_a_module_named_utils_is_caught(plant):
    (fault,) = package_faults(plant({"src/vivum/core/utils.py": ""}))
    assert fault.startswith("src/vivum/core/utils.py: a module is named after its concept")


def test_code_in_a_folder_that_is_no_package_is_caught(plant):
    tree = plant({"src/vivum/core/ids.py": ""})
    (tree / "src/vivum/core/__init__.py").unlink()
    assert package_faults(tree) == ["src/vivum/core/ids.py: its folder has no __init__.py"]


def test_a_test_file_without_a_test_is_caught(plant):
    tree = plant({"tests/test_ids.py": "def helper(): ...\n"})
    assert empty_test_faults(tree) == ["tests/test_ids.py: no test in it"]


def test_a_dead_link_is_caught_with_its_line(plant):
    tree = plant({"docs/a.md": "# A\n\nSee [b](b.md#part) and ![c](../c.png).\n", "c.png": ""})
    assert link_faults(tree) == ["docs/a.md:3: the link b.md#part leads nowhere"]


def test_links_in_code_and_to_other_sites_are_not_followed(plant):
    text = "`[a](b)`\n```\n[a](b)\n```\n[c](https://example.org/d) [e](#f) [g](mailto:h@example.org)\n"
    assert link_faults(plant({"docs/a.md": text})) == []
