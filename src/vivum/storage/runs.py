"""Runs of recorded messages, and how they become the columns of a log without a step for each message.

A run is what a node delivers at a time: messages of one sender in one topic, numbered one after the other. All that
its messages have in common is kept once for the run, and Arrow repeats it.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import msgspec

from vivum.core.errors import UsageError
from vivum.storage.segment_format import SEGMENT_ROWS_MAX, log_schema
from vivum.storage.trace_schema import arrow

BATCH_PAYLOAD_BYTES_MAX = 1 << 30
"""Payload of one batch. Arrow's binary columns end at 2 GiB; a writer that is asked for more refuses."""


class RecordedRun(msgspec.Struct, frozen=True, gc=False):
    """Messages as a receiver got them: `payloads[i]` has `first_sequence + i`, and `first_position + i` if ordered."""

    topic: str
    sender: int
    incarnation: int
    first_sequence: int
    view: int
    sent_ns: int
    delivered_ns: int
    payloads: Sequence[bytes]
    first_position: int | None = None


def batch_of_runs(runs: Sequence[RecordedRun], first_offset: int) -> Any:
    """Make one Arrow batch of these runs, in this order. Runs must not be empty, nor all of them together."""
    pyarrow = arrow()
    counts = [len(run.payloads) for run in runs]
    stops = list(accumulate(counts))
    if not stops or not all(counts):
        raise UsageError("a run to record must have at least one message")
    rows = stops[-1]
    payloads: list[bytes] = list(chain.from_iterable([run.payloads for run in runs]))
    payload_bytes = sum(map(len, payloads))
    if rows > SEGMENT_ROWS_MAX or payload_bytes > BATCH_PAYLOAD_BYTES_MAX:
        raise UsageError(
            f"{rows} messages with {payload_bytes} bytes are too many for one batch of a log, which takes "
            f"{SEGMENT_ROWS_MAX} messages and {BATCH_PAYLOAD_BYTES_MAX} bytes; append fewer at a time"
        )
    ends = pyarrow.array(stops, pyarrow.int32())
    counting = _counting(rows)

    def repeated(values: Sequence[Any], kind: Any) -> Any:
        encoded = pyarrow.RunEndEncodedArray.from_arrays(ends, pyarrow.array(values, kind))
        return pyarrow.compute.run_end_decode(encoded)

    def numbers(values: Sequence[int | None]) -> Any:
        return repeated(values, pyarrow.int64())

    def counted(firsts: Sequence[int | None]) -> Any:
        """Count on from the first number of each run: the row's place, moved by where the run begins."""
        begins = [stop - count for stop, count in zip(stops, counts, strict=True)]
        moved = [None if first is None else first - begin for first, begin in zip(firsts, begins, strict=True)]
        return pyarrow.compute.add(numbers(moved), counting)

    return pyarrow.RecordBatch.from_arrays(
        [
            pyarrow.compute.add(counting, first_offset),
            repeated([run.topic for run in runs], pyarrow.string()),
            numbers([run.sender for run in runs]),
            numbers([run.incarnation for run in runs]),
            counted([run.first_sequence for run in runs]),
            numbers([run.view for run in runs]),
            counted([run.first_position for run in runs]),
            numbers([run.sent_ns for run in runs]),
            numbers([run.delivered_ns for run in runs]),
            _binary(payloads, payload_bytes),
        ],
        schema=log_schema(),
    )


def _binary(payloads: list[bytes], total: int) -> Any:
    """Make the column of payloads. Arrow is the faster for short ones; long ones are joined at once."""
    pyarrow = arrow()
    if total < 512 * len(payloads):
        return pyarrow.array(payloads, pyarrow.binary(), size=len(payloads))
    stops = array("i", accumulate(map(len, payloads), initial=0))
    buffers = [None, pyarrow.py_buffer(stops), pyarrow.py_buffer(b"".join(payloads))]
    return pyarrow.Array.from_buffers(pyarrow.binary(), len(payloads), buffers)


def _counting(rows: int) -> Any:
    """Return 0, 1, 2 and so on. Kept for the next call: most batches are of one size or smaller."""
    global _kept_counting  # noqa: PLW0603
    if _kept_counting is None or len(_kept_counting) < rows:
        buffer = arrow().py_buffer(array("q", range(1 << (rows - 1).bit_length())))
        _kept_counting = arrow().Array.from_buffers(arrow().int64(), buffer.size // 8, [None, buffer])
    return _kept_counting.slice(0, rows)


_kept_counting: Any = None
