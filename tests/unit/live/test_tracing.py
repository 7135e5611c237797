"""The trace of a live node is written by a thread, whole and in order."""

import os
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from vivum.core.ids import GroupId, Incarnation, Member, NodeId
from vivum.guarantees import BEST_EFFORT, RELIABLE
from vivum.live import tracing
from vivum.live.tracing import NodeTrace, TraceFolder
from vivum.observe.trace import GroupJoined, GroupNamed, NodeStarted, NodeStopped
from vivum.storage.errors import StorageError
from vivum.storage.traces import read_trace

LIFE = Member(NodeId(3), Incarnation(1))


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "ROWS_PER_FILE", 10)


def test_a_node_goes_on_while_its_trace_waits_for_the_disk_and_all_is_written(tmp_path, monkeypatch):
    goes_on = Event()
    plain = os.fsync

    def wait_and_force(file: int) -> None:
        assert goes_on.wait(30)
        plain(file)

    monkeypatch.setattr(os, "fsync", wait_and_force)
    trace = NodeTrace(TraceFolder(tmp_path, "node"))
    trace.on_life(0, LIFE)
    for number in range(1, 10 * tracing.FILES_WAITING_MAX):
        trace(GroupJoined(number, *LIFE, number))
    assert not list(tmp_path.glob("*.parquet"))
    goes_on.set()
    trace.close(1000)
    trace.close(2000)
    found = list(read_trace(tmp_path))
    assert found[0] == NodeStarted(0, *LIFE)
    assert [each.time_ns for each in found[1:-1]] == list(range(1, 10 * tracing.FILES_WAITING_MAX))
    assert found[-1] == NodeStopped(1000, *LIFE, "closed")


def test_a_topic_is_named_with_its_guarantee_before_all_else_of_its_group(tmp_path):
    trace = NodeTrace(TraceFolder(tmp_path, "node"))
    trace.on_topic("/t", GroupId(7), BEST_EFFORT)
    trace.on_topic("/u", GroupId(8), RELIABLE)
    for group in (7, 8):
        trace(GroupJoined(5, *LIFE, group))
    # Another service gave the number to another topic; the one that keeps its topic is not named again.
    trace.on_topic("/v", GroupId(7), RELIABLE)
    for group in (7, 8):
        trace(GroupJoined(9, *LIFE, group))
    trace.close(10)
    assert list(read_trace(tmp_path)) == [
        GroupNamed(5, *LIFE, 7, "/t", "best_effort"),
        GroupJoined(5, *LIFE, 7),
        GroupNamed(5, *LIFE, 8, "/u", "reliable"),
        GroupJoined(5, *LIFE, 8),
        GroupNamed(9, *LIFE, 7, "/v", "reliable"),
        GroupJoined(9, *LIFE, 7),
        GroupJoined(9, *LIFE, 8),
    ]


def test_a_full_disk_is_told_at_the_end(tmp_path, monkeypatch):
    def fail(file: int) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    trace = NodeTrace(TraceFolder(tmp_path, "node"))
    for number in range(35):
        trace(GroupJoined(number, *LIFE, number))
    with pytest.raises(StorageError, match="No space left on device"):
        trace.close(99)


def test_a_fault_while_a_file_is_written_stops_neither_the_writer_nor_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = TraceFolder(tmp_path, "node")

    def extend(_records: object) -> None:
        raise ArithmeticError("a bug of ours")

    monkeypatch.setattr(folder._writer, "extend", extend)
    monkeypatch.setattr(tracing, "ROWS_PER_FILE", 1)
    for _ in range(100):
        folder(NodeStarted(0, 1, 1))
    with pytest.raises(StorageError, match="a bug of ours"):
        folder.close()
