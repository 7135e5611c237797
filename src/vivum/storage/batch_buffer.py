"""The memory in which a batch is made, just as it will lie in its file.

One batch at a time, in memory that is used again for the next: memory that nobody touched before costs more than all
the rest together, most of all in a virtual machine. Payloads are copied once, to their place.

A large batch ends on a page, so that the next one begins on a page: then they can be written past the kernel's cache
(`vivum.storage.growing_file`). What fills the page is a part of the body, and has its checksum.
"""

import mmap
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from vivum.storage.runs import RecordedRun, batch_of_runs, check_size, pack_payloads, payload_column, payloads_of
from vivum.storage.segment_format import ALIGNMENT, HEADER_BYTES, BatchEntry, batch_header, log_schema
from vivum.storage.trace_schema import arrow
from vivum.wire.codec import measure

PAGE_BYTES = 4096
"""Of what begins and ends on multiples of this, every disk that we know takes writes past the kernel's cache."""

LARGE_BYTES = 256 * 1024
"""A body of so much is filled up to a page. In smaller ones a page would be a waste."""

KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Memory that is kept for the next batch. What a larger batch needed is given back."""

_START_BYTES = 8 * 1024 * 1024


class BatchBuffer:
    """Makes one batch after the other: `lay_out`, then `seal`. Each forgets the batch before."""

    def __init__(self) -> None:
        pyarrow = arrow()
        self._parts = _Parts()
        self._writer = pyarrow.ipc.new_stream(pyarrow.PythonFile(self._parts, mode="w"), log_schema())
        self._make_room(_START_BYTES)
        # Before the first batch comes the schema, which a log has no need of. Also loads parts of Arrow, which may take
        # a second: better now than while messages come in.
        self.lay_out([RecordedRun("/", 1, 1, 1, 1, 1, 1, [b""])], 0, 0)

    def lay_out(self, runs: Sequence[RecordedRun], first_offset: int, at: int) -> BatchEntry:
        """Make the batch of these runs for this place in a file, all but its header."""
        if len(self._memory) > KEPT_BYTES_MAX:
            self._make_room(_START_BYTES)
        payloads = payloads_of(runs)
        payload_bytes, _ = measure(payloads)
        check_size(len(payloads), payload_bytes)
        payload_room = self._room(payload_bytes)
        batch = batch_of_runs(runs, first_offset, payload_column(payloads, payload_room))
        parts = self._parts.found
        parts.clear()
        self._writer.write_batch(batch)
        # Found by its address: the room is what the column points to, and nothing was copied there yet.
        is_payload = [
            not isinstance(part, bytes) and part.address == payload_room.address and part.size == payload_room.size > 0
            for part in parts
        ]
        assert sum(is_payload) == (payload_room.size > 0), "Arrow wrote the payloads in a way that is not known here"
        body_bytes = sum(map(len, parts))
        place = at % PAGE_BYTES
        if body_bytes >= LARGE_BYTES:
            body_bytes += -(at + HEADER_BYTES + body_bytes) % PAGE_BYTES
        stop = place + HEADER_BYTES + body_bytes + ALIGNMENT
        if stop > len(self._memory):
            self._make_room(stop)
        here = place + HEADER_BYTES
        for part, is_room in zip(parts, is_payload, strict=True):
            if is_room:
                pack_payloads(payloads, self._memory, here)
            else:
                self._memory[here : here + len(part)] = part
            here += len(part)
        self._view[here:stop] = bytes(stop - here)
        parts.clear()
        return BatchEntry(
            at,
            first_offset,
            len(batch),
            min(run.delivered_ns for run in runs),
            max(run.delivered_ns for run in runs),
            body_bytes,
            batch.column("payload").nbytes,
        )

    def seal(self, entry: BatchEntry) -> memoryview:
        """Add the header of the batch that was laid out; return the whole, which begins `at % PAGE_BYTES` in a page."""
        place = entry.at % PAGE_BYTES
        body = place + HEADER_BYTES
        self._view[place:body] = batch_header(entry, self._view[body : body + entry.body_bytes])
        return self._view[place : place + entry.stop - entry.at]

    def _room(self, size: int) -> Any:
        """Give a buffer for the payloads to point to. It is not their place, which is known when all else is."""
        if size > len(self._memory):
            self._make_room(size)
        return self._whole.slice(0, size)

    def _make_room(self, size: int) -> None:
        size = max(_START_BYTES, 1 << (size - 1).bit_length())
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(AttributeError, OSError):
            # A disk takes a few large pages at less cost than thousands of small ones.
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._view = memoryview(self._memory)
        self._whole = arrow().py_buffer(self._memory)


class _Parts:
    """A file for Arrow that keeps what is written as it is, without a copy."""

    closed = False

    def __init__(self) -> None:
        self.found: list[Any] = []

    def write(self, part: Any) -> int:
        self.found.append(part)
        return len(part)

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Nothing is open."""
