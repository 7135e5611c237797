"""A new guarantee is a layer, an entry, a checker and a page: nothing else may know one by name."""

import pytest

from tidy.structure import entry_faults

REGISTRY = """
from vivum.protocols.layer import Layer
from vivum.protocols.stamped.layer import StampedLayer
BETTER = Guarantee("better", "qsm", (StampedLayer,))
GUARANTEES = {"better": BETTER}
"""


def test_the_repository_follows(root):
    assert entry_faults(root) == []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("live/seat.py", "from vivum.guarantees import BETTER\ndrops = promised is BETTER"),
        ("live/seat.py", "import vivum\ndrops = promised is vivum.guarantees.BETTER"),
        ("runtime/driver.py", 'drops = promised.name == "better"'),
        ("protocols/qsm/machine.py", 'transport = "better"'),
        ("live/replay/catching_up.py", "from vivum.protocols.stamped.keys import SeenKeys"),
        ("node/node.py", "from vivum.protocols.stamped.layer import StampedLayer"),
    ],
)
def test_whoever_knows_a_guarantee_or_its_layer_by_name_is_caught(plant, path, line):
    tree = plant({"src/vivum/guarantees.py": REGISTRY, f"src/vivum/{path}": line})
    assert [each.split(":")[0] for each in entry_faults(tree)] == [f"src/vivum/{path}"]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("live/seat.py", '"""As `BETTER` and "better" promise."""\ndrops = not promised.is_gap_free'),
        ("protocols/stamped/layer.py", "from vivum.protocols.stamped.keys import SeenKeys"),
        ("pipeline/publisher.py", "from vivum.guarantees import BETTER\nseat = BETTER"),
    ],
)
def test_words_the_layer_itself_and_users_may(plant, path, line):
    assert entry_faults(plant({"src/vivum/guarantees.py": REGISTRY, f"src/vivum/{path}": line})) == []
