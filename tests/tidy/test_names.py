from tidy.names import export_faults, name_faults


def test_every_public_name_has_one_home(root):
    assert name_faults(root) == []


def test_every_all_tells_the_truth(root):
    assert export_faults(root) == []


def test_a_name_with_two_homes_is_caught(plant):
    tree = plant({"src/vivum/core/ids.py": "class Member: ...", "src/vivum/wire/views.py": "def Member(): ..."})
    assert name_faults(tree, {}) == [
        "Member is defined in vivum.core.ids and vivum.wire.views; rename one of them, or import it"
    ]


def test_private_names_and_twins_and_imported_names_may_repeat(plant):
    tree = plant(
        {
            "src/vivum/core/ids.py": "class Member: ...\ndef _check(): ...",
            "src/vivum/wire/views.py": "from vivum.core.ids import Member\ndef _check(): ...",
            "src/vivum/wire/_codec_twin.py": "def split(): ...",
            "src/vivum/wire/codec.py": "def split(): ...",
        }
    )
    assert name_faults(tree, {}) == []


def test_commands_of_the_command_line_may_have_the_name_of_something_else(plant):
    tree = plant(
        {
            "src/vivum/cli/sim.py": "@app.command()\ndef run(): ...",
            "src/vivum/cli/conventions.py": "def run(): ...",
        }
    )
    assert name_faults(tree, {}) == []


def test_a_listed_name_may_repeat_and_a_listing_that_nobody_needs_is_caught(plant):
    tree = plant({"src/vivum/core/a.py": "def run(): ...", "src/vivum/core/b.py": "def run(): ...\nclass Once: ..."})
    assert name_faults(tree, {"run": "both are commands"}) == []
    assert "Once is defined once" in name_faults(tree, {"run": "both are commands", "Once": "was two"})[0]


def test_all_that_lists_what_is_not_there_is_caught(plant):
    tree = plant({"src/vivum/core/ids.py": '__all__ = ["NodeId", "_hidden", "Gone", "NodeId"]\nNodeId = _hidden = 1'})
    assert export_faults(tree) == [
        "src/vivum/core/ids.py: __all__ lists _hidden, which is private",
        "src/vivum/core/ids.py: __all__ lists Gone, which the module does not have",
        "src/vivum/core/ids.py: __all__ lists NodeId twice",
    ]


def test_all_may_list_imported_conditional_and_sub_module_names(plant):
    text = '__all__ = ["ids", "pi", "Fast"]\nfrom math import pi\nif pi:\n    Fast = 1\nelse:\n    Fast = 0\n'
    assert export_faults(plant({"src/vivum/core/__init__.py": text, "src/vivum/core/ids.py": ""})) == []
