"""Large batches go past the kernel's cache, between small ones that do not: the log is the same either way."""

import errno
import fcntl
import os
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recorded.crashed import kill_writer, write_with_little_room
from vivum.storage import _packing_twin, batch_buffer, growing_file
from vivum.storage.batch_buffer import LARGE_BYTES, PAGE_BYTES
from vivum.storage.growing_file import GrowingFile
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_files import find_segments
from vivum.storage.segment_format import HEADER_BYTES, SEGMENT_ROWS_MAX
from vivum.storage.segment_log import SegmentLog
from vivum.storage.segment_reader import LogReader
from vivum.wire import codec
from vivum.wire.codec import PackedRun

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
        # The header of a segment names its log, which is another one.
        kept.append(find_segments(log.directory)[0].path.read_bytes()[HEADER_BYTES:])
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
    could = file.direct >= 0
    file.append(memoryview(bytes(100)))
    file.append(memoryview(b"x" * 2 * LARGE_BYTES))
    assert file.direct < 0
    assert could or not growing_file._DIRECT
    file.close()
    assert (tmp_path / "file").read_bytes() == bytes(100) + b"x" * 2 * LARGE_BYTES


def test_memory_of_an_unusually_large_batch_is_given_back(tmp_path, monkeypatch):
    monkeypatch.setattr(batch_buffer, "REUSED_BYTES_MAX", 8 * 1024 * 1024)
    with SegmentLog(tmp_path) as log:
        log.append([RecordedRun("/a", 1, 1, 1, 1, 0, 0, [bytes(9 * 1024 * 1024)])])
        assert len(log._buffers[-1]._memory) == 16 * 1024 * 1024
        log.append([RecordedRun("/a", 1, 1, 2, 1, 0, 0, [b"x"])])
        assert len(log._buffers[-1]._memory) == 8 * 1024 * 1024


def piece(payloads: list[bytes], before: bytes = b"", behind: bytes = b"") -> tuple[bytes, int, int]:
    """Lay payloads one behind the other with their lengths, as they lie in a frame."""
    packed = b"".join(len(each).to_bytes(2, "little") + each for each in payloads)
    return before + packed + behind, len(before), len(payloads)


PAYLOADS = st.lists(st.binary(max_size=40), max_size=8)
PARTS = st.one_of(
    st.binary(max_size=40),
    st.builds(piece, PAYLOADS, st.binary(max_size=3), st.binary(max_size=3)),
    st.tuples(st.binary(max_size=20), st.integers(-1, 30), st.integers(-1, 4)),
)
NUMBERS = st.one_of(st.integers(0, 9), st.integers(-(2**63), 2**63 - 1), st.just(2**63))


@st.composite
def batches(draw):
    """Draw what is asked of `lay_columns`; right more often than not, and wrong in every way that it must notice."""
    parts = draw(st.lists(PARTS, max_size=8))
    rows = sum(1 if isinstance(part, bytes) else max(0, part[2]) for part in parts)
    size = sum(len(part) if isinstance(part, bytes) else len(part[0]) - part[1] - 2 * part[2] for part in parts)
    first = draw(st.integers(0, rows))
    counts = draw(st.sampled_from([[first, rows - first]] * 5 + [[rows], [], [rows + 1], [-1, rows + 1], [2**31]]))
    texts = draw(st.lists(st.binary(max_size=9), min_size=len(counts), max_size=len(counts)))
    numbers = draw(
        st.lists(
            st.tuples(
                st.sampled_from([0, 0, 0, 8, 7]),
                st.integers(0, 1),
                st.lists(st.integers(0, 2**40), min_size=len(counts), max_size=len(counts))
                | st.lists(NUMBERS, max_size=3),
            ),
            max_size=1,
        )
    )
    more = draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
    # Apart from each other: where they overlap, the last one written counts.
    at = [draw(st.sampled_from([place] * 9 + [-4, place + 1, 5000])) for place in (900, 1800, 2700, 3600)]
    return counts, numbers, texts, *at[:2], parts, *at[2:], size + more


@pytest.mark.slow
@settings(derandomize=True, database=None, deadline=None, max_examples=1500)
@given(batches(), st.sampled_from([4500, 4500, 4500, 3700, 0]))
def test_compiled_packing_equals_its_twin(drawn, room):
    compiled = pytest.importorskip("vivum.storage._packing")
    outcomes = []
    for form in (compiled, _packing_twin):
        memory = bytearray(room)
        try:
            form.lay_columns(memory, *drawn)
            outcomes.append(bytes(memory))
        except (ValueError, OverflowError) as error:
            outcomes.append((type(error), str(error) if isinstance(error, ValueError) else ""))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("form", ["_packing", "_packing_twin"])
def test_columns_are_laid_where_they_belong(form):
    lay_columns = pytest.importorskip(f"vivum.storage.{form}").lay_columns
    memory = bytearray(200)
    parts = [b"first", piece([b"a", b"", b"bcd"], b"head", b"padding")]
    lay_columns(memory, [1, 3], [(0, 1, [7, 40]), (32, 0, [5, 6])], [b"x", b"yz"], 100, 64, parts, 120, 140, 9)
    assert struct.unpack("=8q", memory[:64]) == (7, 40, 41, 42, 5, 6, 6, 6)
    assert (struct.unpack("=5i", memory[64:84]), memory[100:107]) == ((0, 1, 3, 5, 7), b"xyzyzyz")
    assert (struct.unpack("=5i", memory[140:160]), memory[120:129]) == ((0, 5, 6, 6, 9), b"firstabcd")


@pytest.mark.parametrize("form", ["_packing", "_packing_twin"])
def test_what_is_not_bytes_is_refused(form):
    lay_columns = pytest.importorskip(f"vivum.storage.{form}").lay_columns
    for part in ("b", None, (b"a", 0), ("a", 0, 1), [b"a", 0, 0]):
        with pytest.raises(TypeError, match=f"a payload is bytes, not {type(part).__name__}"):
            lay_columns(bytearray(99), [1], [], [b"x"], 0, 4, [part], 20, 24, 1)
    with pytest.raises(TypeError, match="a text is bytes, not str"):
        lay_columns(bytearray(99), [1], [], ["x"], 0, 4, [b"a"], 20, 24, 1)


def packed(first: int, payloads: list[bytes]) -> PackedRun:
    """Make a run that was not cut, of frames as they come."""
    builder, frames, at = codec.FrameBuilder(1472), [], 0
    while at < len(payloads):
        at = builder.extend(1, first, payloads, at)
        frames += codec.split(builder.seal(1, 2, 3, 4, 5, 6, len(frames), 7, pad_to=1472))
    ((*_, found),) = codec.take_runs(frames, len(payloads), {1})
    assert isinstance(found, PackedRun)
    return found


def test_runs_that_were_not_cut_make_the_same_log_as_those_that_were(tmp_path):
    chance = random.Random(1)
    payloads = [chance.randbytes(chance.choice([200, 200, 500, 900])) for _ in range(700)]
    for name, form in (("packed", packed), ("cut", lambda _, each: each)):
        with SegmentLog(tmp_path / name, clock=lambda: 5) as log:
            for first in range(0, 700, 100):
                more = payloads[first : first + 100]
                runs = [RecordedRun("/a", 1, 1, first, 1, 2, 3, form(first, more)), run(0, 10)]
                log.append([*runs, RecordedRun("/b", 1, 1, first, 1, 2, 3, form(first, more[:7]))])
    (one,), (other,) = (sorted((tmp_path / name).glob("*.segment")) for name in ("packed", "cut"))
    assert one.read_bytes()[HEADER_BYTES:] == other.read_bytes()[HEADER_BYTES:]
    assert len(list(LogReader(tmp_path / "packed").batches(0, 1 << 62))) == 7
