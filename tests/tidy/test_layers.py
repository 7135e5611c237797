import pytest

from layers import LAYERS
from tidy.structure import layer_faults, library_faults, protocol_faults


def test_imports_point_downward_only(root):
    assert layer_faults(root) == []


def test_every_protocol_has_its_place_in_the_order(root):
    assert protocol_faults(root) == []


def test_heavy_libraries_are_imported_by_their_owners_alone(root):
    assert library_faults(root) == []


def test_no_package_stands_in_two_rows():
    parts = [part for row in LAYERS for part in row]
    assert sorted(parts) == sorted(set(parts))


@pytest.mark.parametrize(
    "line",
    [
        "from vivum.node.node import Node",
        "import vivum.node.node",
        "from vivum import node",
        "from ..node import node",
        "from ..node.node import Node",
        "def late():\n    from vivum.node import node",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from vivum.node.node import Node",
    ],
)
def test_an_upward_import_is_caught_however_it_is_written(plant, line):
    tree = plant({"src/vivum/wire/frame.py": line, "src/vivum/node/node.py": "class Node: ..."})
    (fault,) = layer_faults(tree)
    assert fault.startswith("src/vivum/wire/frame.py:")
    assert "node is above it" in fault


def test_a_downward_import_is_allowed(plant):
    tree = plant({"src/vivum/node/node.py": "from vivum.wire.frame import Frame", "src/vivum/wire/frame.py": ""})
    assert layer_faults(tree) == []


def test_neighbours_in_a_row_do_not_import_each_other(plant):
    tree = plant({"src/vivum/sim/world.py": "import vivum.runtime.loop", "src/vivum/runtime/loop.py": ""})
    assert "its neighbour" in layer_faults(tree)[0]


def test_only_the_command_line_imports_the_root(plant):
    line = "from vivum import __version__"
    tree = plant({"src/vivum/cli/version.py": line, "src/vivum/live/endpoint.py": line})
    (fault,) = layer_faults(tree)
    assert fault.startswith("src/vivum/live/endpoint.py:1")


def test_a_package_that_has_no_row_is_caught(plant):
    tree = plant({"src/vivum/extras/thing.py": ""})
    assert layer_faults(tree) == ["src/vivum/extras: no row in tools/layers.py; say there where it belongs"]


def test_a_protocol_does_not_import_one_above_it(plant):
    tree = plant(
        {
            "src/vivum/protocols/qsm/recovery/ring.py": "import vivum.protocols.vsync.flush",
            "src/vivum/protocols/vsync/flush.py": "",
        }
    )
    assert "protocol qsm imports" in layer_faults(tree)[0]


def test_a_protocol_may_import_one_below_it_and_the_ground(plant):
    lines = "import vivum.protocols.qsm.recovery.ring\nfrom vivum.protocols.commands import JoinGroup"
    tree = plant(
        {
            "src/vivum/protocols/vsync/flush.py": lines,
            "src/vivum/protocols/qsm/recovery/ring.py": "",
            "src/vivum/protocols/commands.py": "class JoinGroup: ...",
        }
    )
    assert layer_faults(tree) == []


@pytest.mark.parametrize("user", ["ricochet", "qsm", "unrepaired", "gossip"])
@pytest.mark.parametrize("part", ["streams", "dissemination", "rings"])
def test_what_protocols_share_knows_none_of_them(plant, part, user):
    tree = plant(
        {
            f"src/vivum/protocols/{part}/part.py": f"import vivum.protocols.{user}.machine",
            f"src/vivum/protocols/{user}/machine.py": "",
        }
    )
    (fault,) = layer_faults(tree)
    assert f"protocol {part} imports" in fault


def test_the_ground_of_the_protocols_imports_none_of_them(plant):
    tree = plant(
        {
            "src/vivum/protocols/commands.py": "import vivum.protocols.qsm.recovery.ring",
            "src/vivum/protocols/qsm/recovery/ring.py": "",
        }
    )
    assert "is ground for all protocols" in layer_faults(tree)[0]


def test_a_protocol_without_a_place_in_the_order_is_caught(plant):
    tree = plant({"src/vivum/protocols/pigeon/post.py": ""})
    assert protocol_faults(tree)[0].startswith("src/vivum/protocols/pigeon: not in PROTOCOLS")


@pytest.mark.parametrize(
    "line", ["import pyspark", "from pyspark.sql import SparkSession", "def f():\n    import pyarrow as pa"]
)
def test_a_heavy_library_in_the_wrong_package_is_caught(plant, line):
    tree = plant({"src/vivum/live/endpoint.py": line, "src/vivum/pipeline/job.py": line})
    (fault,) = library_faults(tree)
    assert fault.startswith("src/vivum/live/endpoint.py")
