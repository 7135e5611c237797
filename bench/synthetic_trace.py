"""A trace of any size in which every guarantee holds, written a file at a time: 8 groups of 10 nodes, 2 that send."""

from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet

from vivum.storage.trace_schema import trace_schema
from vivum.storage.traces import ROWS_PER_FILE

GROUPS, NODES, SENDERS = 8, 10, 2
BLOCK = 1 + NODES
"""A send and its deliveries."""


def write_trace(directory: Path, records: int) -> int:
    """Write this many records, or a few less; return how many."""
    count = max(1, records // BLOCK) * BLOCK
    directory.mkdir()
    schema = trace_schema()
    words = [each.name for each in schema if each.type == pyarrow.string()]
    for number, start in enumerate(range(0, count, ROWS_PER_FILE)):
        positions = numpy.arange(start, min(start + ROWS_PER_FILE, count))
        columns = _columns(positions)
        arrays = [
            pyarrow.array(columns[field.name]).cast(field.type)
            if field.name in columns
            else pyarrow.nulls(len(positions), field.type)
            for field in schema
        ]
        path = directory / f"sim-{number:06}.parquet"
        table = pyarrow.Table.from_arrays(arrays, schema=schema)
        # As `TraceWriter` writes it.
        pyarrow.parquet.write_table(table, path, compression="zstd", use_dictionary=words)
    return count


def _columns(positions: Any) -> dict[str, Any]:
    message, place = positions // BLOCK, positions % BLOCK
    is_send = place == 0
    sender = message // GROUPS % SENDERS + 1
    ones = numpy.ones(len(positions), "int64")
    return {
        "position": positions,
        "kind": pyarrow.array(["message_sent", "message_delivered"]).take(pyarrow.array(1 - is_send.astype("int64"))),
        "time_ns": positions * 1000,
        "node": numpy.where(is_send, sender, place),
        "incarnation": ones,
        "group": message % GROUPS + 1,
        "view": 0 * ones,
        "sequence": message // (GROUPS * SENDERS) + 1,
        "digest": message * 2654435761 % (1 << 32),
        "sender": pyarrow.array(sender, mask=is_send),
        "sender_incarnation": pyarrow.array(ones, mask=is_send),
        "sent_ns": pyarrow.array(message * BLOCK * 1000, mask=is_send),
    }
