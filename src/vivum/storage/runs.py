"""Runs of recorded messages, and how they become the columns of a log without a step for each message.

A run is what a node delivers at a time: messages of one sender in one topic, numbered one after the other. All that
its messages have in common is kept once for the run, and repeated by numpy.
"""

import os
from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec

from vivum.core.errors import UsageError
from vivum.storage.segment_format import SEGMENT_ROWS_MAX, log_schema
from vivum.storage.trace_schema import arrow

if os.environ.get("VIVUM_PURE") == "1":
    from vivum.storage.packing_twin import pack_payloads, stops_of
else:
    try:
        from vivum.storage._packing import pack_payloads, stops_of
    except ImportError:
        from vivum.storage.packing_twin import pack_payloads, stops_of

__all__ = [
    "BATCH_VALUE_BYTES_MAX",
    "RecordedRun",
    "batch_of_runs",
    "check_size",
    "pack_payloads",
    "payload_column",
    "payloads_of",
]

BATCH_VALUE_BYTES_MAX = 1 << 30
"""Payloads of one batch, or topics. Arrow's columns of bytes end at 2 GiB; a writer that is asked for more refuses."""


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


def payloads_of(runs: Sequence[RecordedRun]) -> list[bytes]:
    """List the payloads of all runs, in a list that nobody else has."""
    return list(chain.from_iterable([run.payloads for run in runs]))


def payload_column(payloads: list[bytes], body: Any) -> Any:
    """Make the column of payloads that lie, or will lie, one behind the other in this buffer."""
    pyarrow = arrow()
    stops = pyarrow.py_buffer(stops_of(payloads))
    return pyarrow.Array.from_buffers(pyarrow.binary(), len(payloads), [None, stops, body])


def check_size(rows: int, value_bytes: int) -> None:
    """Refuse more than one batch can have."""
    if rows > SEGMENT_ROWS_MAX or value_bytes > BATCH_VALUE_BYTES_MAX:
        raise UsageError(
            f"{rows} messages with {value_bytes} bytes are too many for one batch of a log, which takes "
            f"{SEGMENT_ROWS_MAX} messages and {BATCH_VALUE_BYTES_MAX} bytes; append fewer at a time"
        )


def batch_of_runs(runs: Sequence[RecordedRun], first_offset: int, payload: Any = None) -> Any:
    """Make one Arrow batch of these runs, in this order. Runs must not be empty, nor all of them together.

    `payload` is the column of payloads, for who has a place for them; else they are put together here.
    """
    arrow()
    import numpy
    import pyarrow

    counts = numpy.array([len(run.payloads) for run in runs], numpy.int64)
    if not len(counts) or not counts.all():
        raise UsageError("a run to record must have at least one message")
    stops = counts.cumsum()
    rows = int(stops[-1])
    begins = stops - counts
    counting = numpy.arange(rows, dtype=numpy.int64)
    # In UTF-8 a character has up to four bytes.
    check_size(rows, 4 * rows * max([len(run.topic) for run in runs]))

    def repeated(values: Sequence[int]) -> Any:
        return numpy.repeat(numpy.array(values, numpy.int64), counts)

    def counted(firsts: Sequence[int]) -> Any:
        """Count on from the first number of each run: the row's place, moved by where the run begins."""
        return numpy.repeat(numpy.array(firsts, numpy.int64) - begins, counts) + counting

    def of_text(texts: Sequence[str]) -> Any:
        coded = [text.encode() for text in texts]
        body = b"".join([each * count for each, count in zip(coded, counts.tolist(), strict=True)])
        ends = numpy.zeros(rows + 1, numpy.int32)
        repeated([len(each) for each in coded]).cumsum(out=ends[1:])
        buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(body)]
        return pyarrow.Array.from_buffers(pyarrow.string(), rows, buffers)

    positions = [run.first_position for run in runs]
    if any(each is not None for each in positions):
        absent = numpy.repeat(numpy.array([each is None for each in positions]), counts)
        position = pyarrow.array(counted([each or 0 for each in positions]), mask=absent)
    else:
        position = pyarrow.nulls(rows, pyarrow.int64())
    if payload is None:
        payloads = payloads_of(runs)
        check_size(rows, sum(map(len, payloads)))
        payload = payload_column(payloads, pyarrow.py_buffer(b"".join(payloads)))
    return pyarrow.RecordBatch.from_arrays(
        [
            pyarrow.array(counting + first_offset),
            of_text([run.topic for run in runs]),
            pyarrow.array(repeated([run.sender for run in runs])),
            pyarrow.array(repeated([run.incarnation for run in runs])),
            pyarrow.array(counted([run.first_sequence for run in runs])),
            pyarrow.array(repeated([run.view for run in runs])),
            position,
            pyarrow.array(repeated([run.sent_ns for run in runs])),
            pyarrow.array(repeated([run.delivered_ns for run in runs])),
            payload,
        ],
        schema=log_schema(),
    )
