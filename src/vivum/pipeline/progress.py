"""How far a stream is behind the logs that it reads. Spark takes no metrics from a Python source but its offsets."""

import json
from pathlib import Path
from typing import Any

from vivum.storage.segment_reader import LogReader


def rows_behind(query: Any) -> dict[str, int]:
    """Return for each log of a streaming query how many of its rows are not read yet; none before the first batch."""
    report = query.lastProgress
    found: dict[str, int] = {}
    for source in report["sources"] if report is not None else ():
        # A report does not name the format; the offsets of this source are known by their shape.
        reached = source["endOffset"]
        offsets = json.loads(reached) if isinstance(reached, str) else reached
        for each in offsets.values() if isinstance(offsets, dict) else ():
            if isinstance(each, dict) and {"path", "offset", "mark"} <= each.keys() and Path(each["path"]).is_dir():
                found[each["path"]] = rows_from(each["path"], each["offset"])
    return found


def rows_from(directory: str, offset: int) -> int:
    """Count the rows of a log from an offset on. Offsets jump after a crash, so they cannot just be subtracted."""
    return sum(
        max(0, summary.stop_offset - max(offset, summary.first_offset))
        for _, summary in LogReader(directory).summaries()
    )
