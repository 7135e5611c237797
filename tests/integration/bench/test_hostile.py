"""Hostile datagrams at every open port while traffic flows: counted and dropped, no crash, no disturbance."""

import os
import random
from pathlib import Path

import pytest

import hostile
from hostile import Hostility, attack
from vivum.bench.cell import Cell, Outcome
from vivum.core.errors import DecodeError
from vivum.wire.codec import split

REFUSED = (
    "frames_refused_decode",
    "frames_refused_version",
    "frames_refused_domain",
    "frames_refused_kind",
    "frames_refused_state",
)
PER_S = 1000.0


@pytest.fixture(autouse=True)
def attackers_find_their_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes of a crew import what they are to run from the tests."""
    folders = [str(Path(hostile.__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))


def check(outcome: Outcome, datagrams: int) -> None:
    """Everything real arrived, once and in order; of the rest every sort was refused, and counted."""
    assert [outcome.total(key) for key in ("lost", "duplicated", "out_of_order")] == [0, 0, 0]
    assert outcome.per_s_min > outcome.sent["sent_per_s"] / 2
    reports = [outcome.sent, *outcome.received]
    for each in reports:
        for key in REFUSED:
            assert each["counters"][key] > 0, key
    # One target in five is a channel that all hear, so most count at more than one node.
    refused = sum(each["counters"][key] for each in reports for key in REFUSED)
    assert refused > datagrams / 4


def hostile_cell(seconds: float) -> Cell:
    return Cell(1000, 3, seconds, options={"per_s": PER_S, "batch": 10})


@pytest.mark.slow
def test_thousands_of_hostile_datagrams_disturb_nothing():
    check(attack(hostile_cell(3.0), 6000, seed=7), 6000)


@pytest.mark.soak
def test_a_million_hostile_datagrams_disturb_nothing():
    check(attack(hostile_cell(180.0), 1_000_000, seed=11), 1_000_000)


def test_hostility_makes_both_frames_that_decode_and_bytes_that_do_not():
    hostility = Hostility(7, random.Random(3))
    decoded = 0
    for _ in range(500):
        try:
            split(hostility.next())
            decoded += 1
        except DecodeError:
            pass
    assert 100 < decoded < 400
