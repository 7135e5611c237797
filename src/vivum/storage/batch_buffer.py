"""Make batches in memory, exactly as they will lie in their file.

One batch at a time, in memory that the next one reuses: untouched memory costs more than all the rest together, most of
all in a virtual machine. Arrow's own writer decides the layout. It gets columns of placeholders; then one compiled call
writes all columns to their offsets (`lay_columns`) while other threads run. Payloads are copied once, from the messages
or from the frames in which they came.

A large batch ends at a page boundary, so that the next one begins at one: then they can be written past the kernel's
cache (`vivum.storage.growing_file`). The padding is part of the body, and of its checksum.
"""

import mmap
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from operator import mul
from struct import Struct
from typing import TYPE_CHECKING, Any

from vivum.core.errors import UsageError
from vivum.storage.runs import RecordedRun, check_size, parts_of, payload_size
from vivum.storage.segment_format import ALIGNMENT, COLUMNS, HEADER_BYTES, BatchEntry, batch_header, log_schema
from vivum.storage.trace_schema import arrow

if TYPE_CHECKING:
    from vivum.storage._packing_twin import lay_columns
else:
    try:
        from vivum.storage._packing import lay_columns
    except ImportError:
        from vivum.storage._packing_twin import lay_columns

PAGE_BYTES = 4096
"""Every disk that we know takes writes past the kernel's cache if they begin and end at multiples of this."""

LARGE_BYTES = 256 * 1024
"""Bodies of at least this size are padded to a page. In smaller ones the padding would be a waste."""

REUSED_BYTES_MAX = 64 * 1024 * 1024
"""Memory that is kept for the next batch. What a larger batch needed beyond it is released."""

_START_BYTES = 8 * 1024 * 1024
_NUMBER_BYTES = 8
_STOP = Struct("=i")
_STOP_BYTES = _STOP.size
_NUMBERS = tuple(name for name in COLUMNS if name not in ("topic", "payload"))


class BatchBuffer:
    """Makes one batch after the other: `lay_out`, then `seal`. Each batch overwrites the one before."""

    def __init__(self) -> None:
        pyarrow = arrow()
        self._parts = _Parts()
        self._writer = pyarrow.ipc.new_stream(pyarrow.PythonFile(self._parts, mode="w"), log_schema())
        self._make_room(_START_BYTES)
        # Skip the schema, which comes before the first batch and which a log does not need. This also loads parts of
        # Arrow, which may take a second: better now than while messages come in.
        self.lay_out([RecordedRun("/", 1, 1, 1, 1, 1, 1, [b""])], 0, 0)

    def lay_out(self, runs: Sequence[RecordedRun], first_offset: int, at: int) -> BatchEntry:
        """Make the batch of these runs, in this order, for offset `at` of a file, except for its header.

        There must be at least one run, and none may be empty.
        """
        if len(self._memory) > REUSED_BYTES_MAX:
            self._make_room(_START_BYTES)
        counts = [len(run.payloads) for run in runs]
        if not counts or not all(counts):
            raise UsageError("a run to record must have at least one message")
        rows = sum(counts)
        topics = [run.topic.encode() for run in runs]
        topic_bytes = sum(map(mul, map(len, topics), counts))
        payload_bytes = sum([payload_size(run.payloads) for run in runs])
        check_size(rows, max(topic_bytes, payload_bytes))
        rooms = self._rooms(rows, topic_bytes, payload_bytes)
        position = _positions(runs, counts)
        if position is not None:
            del rooms["position"], rooms["has position"]
        batch = self._batch_of(rows, rooms, position)
        parts = self._parts.found
        parts.clear()
        self._writer.write_batch(batch)
        body_bytes = sum(map(len, parts))
        place = at % PAGE_BYTES
        if body_bytes >= LARGE_BYTES:
            body_bytes += -(at + HEADER_BYTES + body_bytes) % PAGE_BYTES
        stop = place + HEADER_BYTES + body_bytes + ALIGNMENT
        if stop > len(self._memory):
            self._make_room(stop)
        # Match Arrow's output buffers to our placeholders by address.
        named = {each.address: name for name, each in rooms.items() if each.size}
        places = dict.fromkeys(rooms, 0)
        here = place + HEADER_BYTES
        for part in parts:
            name = None if isinstance(part, bytes) else named.pop(part.address, None)
            if name is None:
                self._memory[here : here + len(part)] = part
            else:
                assert len(part) == rooms[name].size, "Arrow wrote a column in an unknown way"
                places[name] = here
            here += len(part)
        assert not named, f"Arrow left out {named.values()}"
        self._view[here:stop] = bytes(stop - here)
        *offsets, _ = accumulate(counts, initial=first_offset)
        numbers = [
            (places["offset"], 1, offsets),
            (places["sender"], 0, [run.sender for run in runs]),
            (places["incarnation"], 0, [run.incarnation for run in runs]),
            (places["sequence"], 1, [run.first_sequence for run in runs]),
            (places["view"], 0, [run.view for run in runs]),
            (places["sent_ns"], 0, [run.sent_ns for run in runs]),
            (places["delivered_ns"], 0, [run.delivered_ns for run in runs]),
        ]
        if position is None:
            numbers.append((places["position"], 0, [0] * len(runs)))
            absent = places["has position"]
            self._view[absent : absent + rooms["has position"].size] = bytes(rooms["has position"].size)
        lay_columns(
            self._memory,
            counts,
            numbers,
            topics,
            places["topic"],
            places["topic stops"],
            parts_of(runs),
            places["payload"],
            places["payload stops"],
            payload_bytes,
        )
        parts.clear()
        return BatchEntry(
            at,
            first_offset,
            rows,
            min([run.delivered_ns for run in runs]),
            max([run.delivered_ns for run in runs]),
            body_bytes,
            payload_bytes + _STOP_BYTES * rows,
        )

    def seal(self, entry: BatchEntry) -> memoryview:
        """Add the header of the batch that was laid out; return all of it, at `at % PAGE_BYTES` in a page."""
        place = entry.at % PAGE_BYTES
        body = place + HEADER_BYTES
        self._view[place:body] = batch_header(entry, self._view[body : body + entry.body_bytes])
        return self._view[place : place + entry.stop - entry.at]

    def _rooms(self, rows: int, topic_bytes: int, payload_bytes: int) -> dict[str, Any]:
        """Make placeholder buffers for the columns. Arrow decides their offsets when it has them all."""
        sizes = dict.fromkeys(_NUMBERS, _NUMBER_BYTES * rows) | {
            "has position": (rows + 7) // 8,
            "topic stops": _STOP_BYTES * (rows + 1),
            "topic": topic_bytes,
            "payload stops": _STOP_BYTES * (rows + 1),
            "payload": payload_bytes,
        }
        *begins, stop = accumulate([size + -size % ALIGNMENT for size in sizes.values()], initial=0)
        if stop > len(self._memory):
            self._make_room(stop)
        begin_of = dict(zip(sizes, begins, strict=True))
        for name, size in (("topic stops", topic_bytes), ("payload stops", payload_bytes)):
            # Arrow reads where the first value begins and where the last ends.
            _STOP.pack_into(self._memory, begin_of[name], 0)
            _STOP.pack_into(self._memory, begin_of[name] + _STOP_BYTES * rows, size)
        return {name: self._whole.slice(begin_of[name], size) for name, size in sizes.items()}

    def _batch_of(self, rows: int, rooms: dict[str, Any], position: Any) -> Any:
        """Make a batch of placeholders, from which Arrow computes the layout in a file."""
        pyarrow = arrow()
        make, number = pyarrow.Array.from_buffers, pyarrow.int64()
        columns = {name: make(number, rows, [None, rooms[name]], 0) for name in _NUMBERS if name != "position"}
        columns["topic"] = make(pyarrow.string(), rows, [None, rooms["topic stops"], rooms["topic"]], 0)
        columns["payload"] = make(pyarrow.binary(), rows, [None, rooms["payload stops"], rooms["payload"]], 0)
        if position is None:
            position = make(number, rows, [rooms["has position"], rooms["position"]], rows)
        columns["position"] = position
        return pyarrow.RecordBatch.from_arrays([columns[name] for name in COLUMNS], schema=log_schema())

    def _make_room(self, size: int) -> None:
        size = max(_START_BYTES, 1 << (size - 1).bit_length())
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(AttributeError, OSError):
            # A few large pages cost less to write than thousands of small ones.
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._view = memoryview(self._memory)
        self._whole = arrow().py_buffer(self._memory)


def _positions(runs: Sequence[RecordedRun], counts: list[int]) -> Any:
    """Make the column of positions; None if there are none, as in every topic without a total order."""
    if all(run.first_position is None for run in runs):
        return None
    pyarrow = arrow()
    listed: list[int | None] = []
    for run, count in zip(runs, counts, strict=True):
        first = run.first_position
        listed += [None] * count if first is None else range(first, first + count)
    return pyarrow.array(listed, pyarrow.int64())


class _Parts:
    """A file for Arrow that keeps what is written without copying it."""

    closed = False

    def __init__(self) -> None:
        self.found: list[Any] = []

    def write(self, part: Any) -> int:
        self.found.append(part)
        return len(part)

    def flush(self) -> None:
        """Do nothing: no data waits here."""

    def close(self) -> None:
        """Do nothing: no file is open."""
