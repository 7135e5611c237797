"""A small log of quotes."""

from pathlib import Path

import msgspec

from vivum.storage.runs import RecordedRun
from vivum.storage.segment_log import SegmentLog

SYMBOLS = ("NESN", "ROG", "UBSG")


class Quote(msgspec.Struct):
    symbol: str
    bid: float
    ask: float
    size: int = 0


def write_quotes(directory: Path) -> None:
    """Write 60 rows in several segments: quotes on three topics, and a topic without a type."""
    with SegmentLog(directory, segment_bytes=3000) as log:
        for symbol in SYMBOLS:
            log.declare(f"/swx/{symbol}", Quote)
        for number in range(15):
            sent_ns = 1_000 * number
            runs = []
            for symbol in SYMBOLS:
                payload = msgspec.msgpack.encode(Quote(symbol, 100.0 + number, 101.0 + number, number))
                runs.append(
                    RecordedRun(f"/swx/{symbol}", 1, 1, number + 1, 1, sent_ns, sent_ns + 100, [payload], number)
                )
            log.append([*runs, RecordedRun("/raw", 2, 1, number + 1, 1, 0, sent_ns, [bytes([number])])])
