"""The trace of a live node: what it sent, delivered and installed, in Parquet files for `vivum audit`.

Writing costs some microseconds for each message: for runs that are to be judged. A thread writes the files. At most
`FILES_WAITING_MAX` of them wait for it; then the node waits too, since a trace with a hole is of no use. Records of
topics that promise nothing (best effort) are left out: there is nothing to judge.
"""

import re
from contextlib import suppress
from pathlib import Path
from queue import Queue
from threading import Thread

from vivum.core.ids import GroupId, Member
from vivum.observe.trace import NodeStarted, NodeStopped, TraceRecord
from vivum.storage.errors import StorageError
from vivum.storage.traces import TraceWriter

ROWS_PER_FILE = 32_768
"""Records held before a file is written: a crash can lose so many, and those of files that wait."""

FILES_WAITING_MAX = 4
"""Files whose records wait for the disk, some 8 MB each."""

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
        self._held: list[TraceRecord] = []
        self._full: Queue[list[TraceRecord] | None] = Queue(FILES_WAITING_MAX)
        self._is_closed = False
        self._thread = Thread(target=self._write_on, name="trace", daemon=True)
        self._thread.start()

    def __call__(self, record: TraceRecord) -> None:
        """Take one record."""
        if not self._unjudged or getattr(record, "group", None) not in self._unjudged:
            held = self._held
            held.append(record)
            if len(held) >= ROWS_PER_FILE:
                self._held = []
                self._full.put(held)

    def _write_on(self) -> None:
        while (records := self._full.get()) is not None:
            # A disk that is full must not stop the node in the middle of its work: `close` tells what is missing.
            with suppress(StorageError):
                self._writer.extend(records)

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
        if not self._is_closed:
            self._is_closed = True
            self._full.put(self._held)
            self._full.put(None)
            self._thread.join()
        self._writer.close()
