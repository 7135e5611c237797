"""How far a stream is behind the logs that it reads. Spark takes no metrics from a Python source but its offsets."""

import json
from typing import Any

from vivum.storage.segment_reader import LogReader


def rows_behind(query: Any) -> dict[str, int]:
    """Tell for each log of a streaming query how many of its rows are not read yet; none before the first batch."""
    report = query.lastProgress
    found: dict[str, int] = {}
    for source in report["sources"] if report is not None else ():
        reached = source["endOffset"]
        reached = json.loads(reached) if isinstance(reached, str) else reached
        if "VivumSource" in source["description"] or "vivum" in source["description"].lower():
            for directory, offset in (reached or {}).items():
                found[directory] = rows_from(directory, offset)
    return found


def rows_from(directory: str, offset: int) -> int:
    """Count the rows of a log from an offset on. Offsets jump after a crash, so they cannot just be subtracted."""
    return sum(
        max(0, summary.stop_offset - max(offset, summary.first_offset))
        for _, summary in LogReader(directory).summaries()
    )
