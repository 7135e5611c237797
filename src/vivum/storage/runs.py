"""Runs of recorded messages, and how they become the columns of a log without a step for each message.

A run is what a node delivers at a time: messages of one sender in one topic, numbered one after the other. All that
its messages have in common is kept once for the run, and repeated by numpy.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import msgspec

from vivum.core.errors import UsageError
from vivum.storage.segment_format import SEGMENT_ROWS_MAX, log_schema
from vivum.storage.trace_schema import arrow

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


def joined_payloads(runs: Sequence[RecordedRun]) -> bytes:
    """Put the payloads of all runs one behind the other."""
    return b"".join(chain.from_iterable([run.payloads for run in runs]))


def batch_of_runs(runs: Sequence[RecordedRun], first_offset: int, room: Callable[[int], Any] | None = None) -> Any:
    """Make one Arrow batch of these runs, in this order. Runs must not be empty, nor all of them together.

    Where payloads have a place of their own, `room` gives a buffer for so many bytes of them. The column then points
    there, and the caller puts `joined_payloads` there: large payloads are copied once and not twice.
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
    payload_stops = _stops(map(len, chain.from_iterable([run.payloads for run in runs])), rows)
    payload_bytes = int(payload_stops[-1])
    topic_bytes_max = 4 * rows * max([len(run.topic) for run in runs])
    if rows > SEGMENT_ROWS_MAX or max(payload_bytes, topic_bytes_max) > BATCH_VALUE_BYTES_MAX:
        raise UsageError(
            f"{rows} messages with {payload_bytes} bytes are too many for one batch of a log, which takes "
            f"{SEGMENT_ROWS_MAX} messages and {BATCH_VALUE_BYTES_MAX} bytes; append fewer at a time"
        )

    def repeated(values: Sequence[int]) -> Any:
        return numpy.repeat(numpy.array(values, numpy.int64), counts)

    def counted(firsts: Sequence[int]) -> Any:
        """Count on from the first number of each run: the row's place, moved by where the run begins."""
        return numpy.repeat(numpy.array(firsts, numpy.int64) - begins, counts) + counting

    def of_text(texts: Sequence[str]) -> Any:
        coded = [text.encode() for text in texts]
        body = b"".join([each * count for each, count in zip(coded, counts.tolist(), strict=True)])
        ends = _stops(repeated([len(each) for each in coded]), rows)
        return _variable(pyarrow.string(), ends, pyarrow.py_buffer(body))

    positions = [run.first_position for run in runs]
    if any(each is not None for each in positions):
        absent = numpy.repeat(numpy.array([each is None for each in positions]), counts)
        position = pyarrow.array(counted([each or 0 for each in positions]), mask=absent)
    else:
        position = pyarrow.nulls(rows, pyarrow.int64())
    payload_room = pyarrow.py_buffer(joined_payloads(runs)) if room is None else room(payload_bytes)
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
            _variable(pyarrow.binary(), payload_stops, payload_room),
        ],
        schema=log_schema(),
    )


def _stops(sizes: Any, rows: int) -> Any:
    """Return where each of the values ends, and 0 before the first."""
    import numpy

    stops = numpy.zeros(rows + 1, numpy.int64)
    lengths = sizes if isinstance(sizes, numpy.ndarray) else numpy.fromiter(sizes, numpy.int64, rows)
    lengths.cumsum(out=stops[1:])
    return stops


def _variable(kind: Any, stops: Any, body: Any) -> Any:
    """Make a column of strings or bytes from where each ends."""
    import numpy
    import pyarrow

    narrow = pyarrow.py_buffer(stops.astype(numpy.int32))
    return pyarrow.Array.from_buffers(kind, len(stops) - 1, [None, narrow, body])
