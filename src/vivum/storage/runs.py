"""Runs of recorded messages: what a log is given.

A run is what a node delivers at a time: messages of one sender in one topic, numbered one after the other. All that
its messages have in common is kept once for the run.
"""

from collections.abc import Sequence

import msgspec

from vivum.core.errors import UsageError
from vivum.storage._packing_twin import Part
from vivum.storage.segment_format import SEGMENT_ROWS_MAX
from vivum.wire.codec import PackedRun, measure

NUMBER_MAX = (1 << 63) - 1
"""The largest number or time that a log has. Frames have larger ones, which nobody reaches who means well."""

BATCH_VALUE_BYTES_MAX = 1 << 30
"""Payloads of one batch, or topics. Arrow's columns of bytes end at 2 GiB; a writer that is asked for more refuses."""


class RecordedRun(msgspec.Struct, frozen=True, gc=False):
    """Messages as a receiver got them: `payloads[i]` has `first_sequence + i`, and `first_position + i` if ordered.

    Payloads that are a `PackedRun` are never cut: they go from what was received to the log.
    """

    topic: str
    sender: int
    incarnation: int
    first_sequence: int
    view: int
    sent_ns: int
    delivered_ns: int
    payloads: Sequence[bytes]
    first_position: int | None = None

    @property
    def fits(self) -> bool:
        """Whether its numbers are such that a log can have."""
        return self.sent_ns <= NUMBER_MAX and self.first_sequence <= NUMBER_MAX - len(self.payloads)


def parts_of(runs: Sequence[RecordedRun]) -> list[Part]:
    """List the payloads of all runs, cut or not, in a list that nobody else has."""
    parts: list[Part] = []
    for run in runs:
        payloads = run.payloads
        parts += payloads.pieces if isinstance(payloads, PackedRun) else payloads
    return parts


def payload_size(payloads: Sequence[bytes]) -> int:
    """Add up the bytes of payloads."""
    if isinstance(payloads, PackedRun):
        return payloads.payload_bytes
    return measure(payloads if isinstance(payloads, list) else list(payloads))[0]


def check_size(rows: int, value_bytes: int) -> None:
    """Refuse more than one batch can have."""
    if rows > SEGMENT_ROWS_MAX or value_bytes > BATCH_VALUE_BYTES_MAX:
        raise UsageError(
            f"{rows} messages with {value_bytes} bytes are too many for one batch of a log, which takes "
            f"{SEGMENT_ROWS_MAX} messages and {BATCH_VALUE_BYTES_MAX} bytes; append fewer at a time"
        )
