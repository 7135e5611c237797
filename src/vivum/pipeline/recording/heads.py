"""Strip the heads of keyed topics from the rows of a log, by columns. A log keeps them for sending messages again."""

from collections.abc import Collection
from typing import Any

import numpy
import pyarrow
import pyarrow.compute

from vivum.protocols.keyed.keys import HEAD_BYTES, PLAIN_HEAD


def without_heads(batch: Any, headed: Collection[str]) -> Any:
    """Return rows whose payloads are the messages themselves; `headed` are the topics whose payloads have heads."""
    if not headed or len(batch) == 0:
        return batch
    topics = batch.column("topic")
    there = [each for each in topics.unique().to_pylist() if each in headed]
    if not there:
        return batch
    is_headed = pyarrow.compute.is_in(topics, pyarrow.array(there, pyarrow.string())).to_numpy(zero_copy_only=False)
    place, field = batch.schema.get_field_index("payload"), batch.schema.field("payload")
    return batch.set_column(place, field, _cut(batch.column("payload"), is_headed))


def _cut(payloads: Any, is_headed: Any) -> Any:
    _, stops, body = payloads.buffers()
    first, rows = payloads.offset, len(payloads)
    bounds = numpy.frombuffer(stops, numpy.int32)[first : first + rows + 1].astype(numpy.int64)
    data = numpy.frombuffer(body, numpy.uint8)[bounds[0] : bounds[-1]] if body is not None else numpy.empty(0, "u1")
    bounds -= bounds[0]
    begins, sizes = bounds[:-1], numpy.diff(bounds)
    # No head is empty, so every payload that has one has a first byte.
    kind = numpy.full(rows, PLAIN_HEAD[0], numpy.uint8)
    kind[is_headed] = data[begins[is_headed]]
    heads = numpy.where(is_headed, numpy.where(kind == PLAIN_HEAD[0], len(PLAIN_HEAD), HEAD_BYTES), 0)
    heads = numpy.minimum(heads, sizes)
    is_kept = numpy.ones(len(data), bool)
    within = numpy.arange(heads.sum()) - numpy.repeat(heads.cumsum() - heads, heads)
    is_kept[numpy.repeat(begins, heads) + within] = False
    ends = numpy.zeros(rows + 1, numpy.int32)
    (sizes - heads).cumsum(out=ends[1:])
    buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(data[is_kept])]
    return pyarrow.Array.from_buffers(payloads.type, rows, buffers)
