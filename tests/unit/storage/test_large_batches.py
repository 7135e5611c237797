"""Large batches go past the kernel's cache, between small ones that do not: the log is the same either way."""

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recorded.crashed import kill_writer, write_with_little_room
from vivum.storage import batch_buffer, growing_file, packing_twin
from vivum.storage.batch_buffer import LARGE_BYTES, PAGE_BYTES
from vivum.storage.growing_file import GrowingFile
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_files import find_segments
from vivum.storage.segment_format import HEADER_BYTES, SEGMENT_ROWS_MAX
from vivum.storage.segment_log import SegmentLog
from vivum.storage.segment_reader import LogReader

SIZES = (10, LARGE_BYTES, LARGE_BYTES + 77, 10, 5000, 3 * LARGE_BYTES, LARGE_BYTES - 3000, LARGE_BYTES, 10)


def run(number: int, size: int) -> RecordedRun:
    payload = number.to_bytes(2, "little") * (size // 2)
    return RecordedRun("/a", 1, 1, number * 2, 1, 0, 1000 + number, [payload, b"second"])


def rows(directory: Path) -> list[tuple[int, int]]:
    found = []
    for batch in LogReader(directory).batches(0, 1 << 62):
        for row in batch.to_pylist():
            number = row["sequence"] // 2
            if row["sequence"] % 2 == 0:
                assert row["payload"] == number.to_bytes(2, "little") * (SIZES[number] // 2)
            found.append((row["offset"], row["sequence"]))
    return found


def write(directory: Path) -> SegmentLog:
    log = SegmentLog(directory)
    for number, size in enumerate(SIZES):
        log.append([run(number, size)])
    return log


@pytest.fixture(params=["past the cache", "through the cache"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "through the cache":
        monkeypatch.setattr(growing_file, "_DIRECT", 0)
    return str(request.param)


def test_large_and_small_batches_are_read_back_while_they_are_written_and_afterwards(tmp_path, way):
    log = SegmentLog(tmp_path)
    reader = LogReader(tmp_path)
    for number, size in enumerate(SIZES):
        log.append([run(number, size)])
        assert reader.stop_offset() == 2 * number + 2
        assert rows(tmp_path) == [(place, place) for place in range(2 * number + 2)]
    log.close()
    assert len(rows(tmp_path)) == 2 * len(SIZES)


def test_the_bytes_are_the_same_past_the_cache_and_through_it(tmp_path, monkeypatch):
    kept = []
    for direct in (growing_file._DIRECT, 0):
        monkeypatch.setattr(growing_file, "_DIRECT", direct)
        log = SegmentLog(tmp_path / str(direct), clock=lambda: 5)
        for number, size in enumerate(SIZES):
            log.append([run(number, size)])
        log.close()
        kept.append(find_segments(log.directory)[0].path.read_bytes())
    assert kept[0] == kept[1]


def test_a_large_batch_ends_on_a_page_and_a_small_one_wastes_none(tmp_path):
    write(tmp_path).close()
    entries = find_segments(tmp_path)[0].entries()
    for entry, size in zip(entries, SIZES, strict=True):
        assert (entry.stop % PAGE_BYTES == 0) == (size >= LARGE_BYTES)
    assert entries[0].stop < PAGE_BYTES


def test_a_log_cut_in_a_large_batch_keeps_what_is_before_it(tmp_path, way):
    killed = kill_writer(write(tmp_path / "log"))
    cut_at = killed.entries[5]
    for cut in (cut_at.at + 1, cut_at.at + HEADER_BYTES, cut_at.at + PAGE_BYTES, cut_at.stop - 1, cut_at.stop):
        with SegmentLog(killed.cut(cut)) as log:
            assert log.append([run(0, 10)]).start == SEGMENT_ROWS_MAX
        kept = 12 if cut == cut_at.stop else 10
        assert [offset for offset, _ in rows(killed.directory)] == [
            *range(kept),
            SEGMENT_ROWS_MAX,
            SEGMENT_ROWS_MAX + 1,
        ]


FULL = """
import sys
from vivum.storage.errors import StorageError
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_log import SegmentLog
log = SegmentLog(sys.argv[1])
log.append([RecordedRun("/a", 1, 1, 1, 1, 0, 0, [b"small"])])
for number in (2, 3):
    try:
        log.append([RecordedRun("/a", 1, 1, number, 1, 0, 0, [bytes(600_000)])])
    except StorageError as error:
        print(str(error))
log.append([RecordedRun("/a", 1, 1, 4, 1, 0, 0, [b"small"])])
log.close()
"""


def test_a_large_batch_that_does_not_fit_is_told_and_leaves_a_good_log(tmp_path):
    told = write_with_little_room(FULL, tmp_path, 500_000)
    assert len(told) == 2
    assert all(each.startswith(f"cannot write the log {tmp_path}: File too large") for each in told)
    found = [row["sequence"] for batch in LogReader(tmp_path).batches(0, 1 << 62) for row in batch.to_pylist()]
    assert found == [1, 4]


def test_a_file_system_that_refuses_the_way_past_its_cache_gets_all_through_it(tmp_path, monkeypatch):
    plain = os.pwrite

    def refuse(file: int, data: Any, at: int) -> int:
        if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return plain(file, data, at)

    monkeypatch.setattr(os, "pwrite", refuse)
    file = GrowingFile(tmp_path / "file")
    could = file.is_direct
    file.append(memoryview(bytes(100)))
    file.append(memoryview(b"x" * 2 * LARGE_BYTES))
    assert not file.is_direct
    assert could or not growing_file._DIRECT
    file.close()
    assert (tmp_path / "file").read_bytes() == bytes(100) + b"x" * 2 * LARGE_BYTES


def test_memory_of_an_unusually_large_batch_is_given_back(tmp_path, monkeypatch):
    monkeypatch.setattr(batch_buffer, "KEPT_BYTES_MAX", 8 * 1024 * 1024)
    with SegmentLog(tmp_path) as log:
        log.append([RecordedRun("/a", 1, 1, 1, 1, 0, 0, [bytes(9 * 1024 * 1024)])])
        assert len(log._buffer._memory) == 16 * 1024 * 1024
        log.append([RecordedRun("/a", 1, 1, 2, 1, 0, 0, [b"x"])])
        assert len(log._buffer._memory) == 8 * 1024 * 1024


@settings(derandomize=True, database=None, deadline=None, max_examples=200)
@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(-1, 50), st.integers(0, 300))
def test_compiled_packing_equals_its_twin(payloads, at, room):
    compiled = pytest.importorskip("vivum.storage._packing")
    assert compiled.stops_of(payloads) == packing_twin.stops_of(payloads)
    outcomes = []
    for packing in (compiled.pack_payloads, packing_twin.pack_payloads):
        memory = bytearray(room)
        try:
            packing(payloads, memory, at)
            outcomes.append(bytes(memory))
        except ValueError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_both_packings_refuse_what_is_not_bytes():
    compiled = pytest.importorskip("vivum.storage._packing")
    for each in (compiled, packing_twin):
        for call in (each.stops_of, lambda payloads, each=each: each.pack_payloads(payloads, bytearray(9), 0)):
            with pytest.raises(TypeError, match="a payload is bytes, not str"):
                call([b"a", "b"])
