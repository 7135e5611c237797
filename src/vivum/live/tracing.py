"""The trace of a live node: what it sent, delivered and installed, in Parquet files for `vivum audit`.

Writing costs some microseconds for each message, and a pause of some 50 ms for each file: for runs that are to be
judged. Records of topics that promise nothing (best effort) are left out: there is nothing to judge.
"""

import re
from contextlib import suppress
from pathlib import Path

from vivum.core.ids import GroupId, Member
from vivum.observe.trace import NodeStarted, NodeStopped, TraceRecord
from vivum.storage.errors import StorageError
from vivum.storage.traces import TraceWriter

ROWS_PER_FILE = 32_768
"""Records held before a file is written: what a crash can lose, and how long the node is busy writing them."""

PROMISES = ("no_duplicate", "no_creation", "fifo", "view_agreement", "virtual_synchrony")
"""What every reliable topic promises, as the audit names it."""


class NodeTrace:
    """A tracer for one node."""

    def __init__(self, folder: Path, name: str) -> None:
        """Begin a trace. The node's name, which no other start of it has, tells its files from those of others."""
        label = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "node"
        self._writer = TraceWriter(folder, label, rows_per_file=ROWS_PER_FILE, promises=PROMISES)
        self._unjudged: set[int] = set()
        self._life: Member | None = None

    def __call__(self, record: TraceRecord) -> None:
        """Take one record."""
        if not self._unjudged or getattr(record, "group", None) not in self._unjudged:
            # A disk that is full must not stop the node in the middle of its work: `close` tells what is missing.
            with suppress(StorageError):
                self._writer(record)

    def leave_out(self, group: GroupId) -> None:
        """Do not write what concerns a group."""
        self._unjudged.add(group)

    def on_life(self, now_ns: int, life: Member) -> None:
        """The process has its first life; the client of the membership tells of later ones."""
        if self._life is None:
            self(NodeStarted(now_ns, *life))
        self._life = life

    def close(self, now_ns: int) -> None:
        """Write the rest. Raises `StorageError` if that fails or something is missing. May be called again."""
        life, self._life = self._life, None
        if life is not None:
            self(NodeStopped(now_ns, *life, "closed"))
        self._writer.close()
