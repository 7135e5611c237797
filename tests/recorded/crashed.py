"""Logs whose writer was killed, or ran out of room."""

import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from vivum.storage.segment_files import find_segments
from vivum.storage.segment_format import BatchEntry
from vivum.storage.segment_log import SegmentLog


def crash(log: SegmentLog) -> None:
    """Leave the files as kill -9 would."""
    log._let_go()


class KilledLog(NamedTuple):
    """The one segment that a killed writer left: its place, its bytes, and its batches."""

    directory: Path
    segment: Path
    whole: bytes
    entries: list[BatchEntry]

    def cut(self, size: int) -> Path:
        """Make the log anew, as if only so many bytes had reached the disk; return its directory."""
        shutil.rmtree(self.directory)
        self.directory.mkdir()
        self.segment.write_bytes(self.whole[:size])
        return self.directory


def kill_writer(log: SegmentLog) -> KilledLog:
    """Kill the writer of a log of one segment."""
    crash(log)
    (segment,) = find_segments(log.directory)
    return KilledLog(log.directory, segment.path, segment.path.read_bytes(), segment.entries())


def write_with_little_room(program: str, directory: Path, file_bytes_max: int) -> list[str]:
    """Run a writer for which a file has so many bytes at most; return what it printed.

    Such a limit stands in for a full disk: writes are cut short in the same way.
    """
    done = subprocess.run(
        [sys.executable, "-c", program, str(directory)],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max)),
    )
    return done.stdout.splitlines()
