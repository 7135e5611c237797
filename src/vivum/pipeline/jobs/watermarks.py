"""How far event time has come: the watermark of a stream, as Spark keeps it in the stream's checkpoint.

A watermark trails the latest event time that a stream had by a delay. Spark uses it to forget state; here it tells
which rows are late and which windows are complete. Spark notes it before a batch begins, so a batch that is done again
has the same one, and calls the same rows late. It tells it to nobody while a batch runs, hence this look into its
notes.
"""

import json
from pathlib import Path
from typing import Any

from vivum.core.errors import UsageError
from vivum.core.time import MILLISECOND, parse_duration_ns
from vivum.storage.errors import StorageError

WATERMARK_DELAY = "60s"
"""How far messages may come out of order before they count as late. To repair a member, or to find one dead, takes
seconds. More makes windows final later, less makes more rows late; none is lost by either."""

_DELAY_MAX_MS = 366 * 86_400 * 1_000


def delay_ms(text: str) -> int:
    """Read a delay that a person wrote. Raises `UsageError`."""
    found = parse_duration_ns(text) // MILLISECOND
    if found > _DELAY_MAX_MS:
        raise UsageError(f"--watermark {text}: must be a year at most")
    return found


def batch_watermark_ms(checkpoint: str, number: int) -> int:
    """Return the watermark with which a batch of a stream runs, in ms since 1970; 0 where there is none yet."""
    return _noted(Path(checkpoint) / "offsets" / str(number), "batchWatermarkMs")


def reached_watermark_ms(checkpoint: str) -> int:
    """Return the watermark after all finished batches of a stream, in ms since 1970; 0 where there is none yet."""
    done = [int(each.name) for each in (Path(checkpoint) / "commits").glob("*") if each.name.isdecimal()]
    return _noted(Path(checkpoint) / "commits" / str(max(done)), "nextBatchWatermarkMs") if done else 0


def _noted(path: Path, key: str) -> int:
    try:
        # The first line is the version of the file.
        told: dict[str, Any] = json.loads(path.read_text().splitlines()[1])
        return max(0, int(told[key]))
    except (OSError, LookupError, ValueError, TypeError) as error:
        raise StorageError(f"cannot read the watermark in {path}: {error}") from error
