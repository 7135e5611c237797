import pytest

from tidy.structure import purity_faults


def test_pure_packages_are_pure(root):
    assert purity_faults(root) == []


@pytest.mark.parametrize(
    ("line", "thing"),
    [
        ("import socket", "socket"),
        ("import asyncio", "asyncio"),
        ("from threading import Lock", "threading"),
        ("import time as clock", "time"),
        ("from logging import getLogger", "logging"),
        ("import multiprocessing.pool", "multiprocessing"),
        ("def late():\n    import subprocess", "subprocess"),
        ("import os.path", "os"),
        ("from pathlib import Path", "pathlib"),
        ("def read():\n    return open('x')", "open()"),
        ("print('x')", "print()"),
        ("name = input()", "input()"),
        ("import random\nx = random.random()", "random.random"),
        ("import random\nx = random.SystemRandom()", "random.SystemRandom"),
        ("from random import choice", "random.choice"),
        ("import random as dice", "random under the name dice"),
        ("import datetime\nx = datetime.datetime.now()", "datetime.datetime.now()"),
        ("from datetime import date\nx = date.today()", "date.today()"),
    ],
)
def test_an_impure_line_is_caught(plant, line, thing):
    (fault,) = purity_faults(plant({"src/vivum/protocols/qsm/recovery/ring.py": line}))
    assert fault.endswith(f": {thing} has no place in a pure package")


@pytest.mark.parametrize(
    "line",
    [
        "import random\nclass Source(random.Random): ...",
        "from random import Random\nx = Random(1)",
        "from vivum.core.time import SECOND",
        "def take(window):\n    return window.open(now_ns=1)",
        "from datetime import timedelta",
    ],
)
def test_a_pure_line_is_not_accused(plant, line):
    assert purity_faults(plant({"src/vivum/protocols/qsm/recovery/ring.py": line})) == []


def test_packages_that_drive_nodes_may_be_impure(plant):
    assert (
        purity_faults(plant({"src/vivum/runtime/loop.py": "import socket\nimport random\nx = random.random()"})) == []
    )


def test_the_simulator_draws_nothing_from_global_randomness(plant):
    tree = plant({"src/vivum/sim/network.py": "import time\nimport random\nx = random.random()"})
    assert purity_faults(tree) == ["src/vivum/sim/network.py:3: random.random has no place in a pure package"]


@pytest.mark.parametrize("line", ["from time import monotonic", "cimport os", "    print(x)", "x = random.random()"])
def test_a_compiled_module_is_looked_at_too(plant, line):
    assert len(purity_faults(plant({"src/vivum/wire/_codec.pyx": f"# print(1) is only a comment\n{line}\n"}))) == 1


def test_a_compiled_module_may_use_c(plant):
    text = "from libc.string cimport memcpy\nfrom cpython.bytes cimport PyBytes_AsString\nimport cython\n"
    assert purity_faults(plant({"src/vivum/wire/_codec.pyx": text})) == []


def test_a_listed_exception_is_allowed_and_one_that_nobody_needs_is_caught(plant):
    exceptions = {("vivum.wire.codec", "os"): "needed", ("vivum.wire.frame", "time"): "no longer needed"}
    tree = plant({"src/vivum/wire/codec.py": "from os import environ", "src/vivum/wire/frame.py": ""})
    assert purity_faults(tree, exceptions) == [
        "tools/layers.py: vivum.wire.frame no longer needs its purity exception for time"
    ]
