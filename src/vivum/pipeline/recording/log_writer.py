"""Threads that append to a log what others hand over, a batch at a time.

Who hands over does not wait for the disk, nor for the making of a batch. One thread makes a batch while another one
writes the batch before: either takes about as long. Runs wait until there are `BATCH_BYTES` of
them or `LINGER_NS` went by. What would be more than `held_bytes_max` is refused, and the caller counts it.

Past half of that limit who hands over lets the thread get on first, `GIVE_WAY_S` at most: where both are short of
processors the caller would else take them all, to fetch what has to be refused. A thread that does not get on, since
the disk stands still, is not waited for again before it does.

Between the sides are a deque and counters that only one side changes, so there is no lock. Copying, checksums and
writes let go of the interpreter, so the threads take little from who hands over.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

from vivum.core.time import MILLISECOND, SECOND
from vivum.storage.runs import RecordedRun
from vivum.storage.segment_log import PreparedBatch, SegmentLog, TopicDeclaration
from vivum.wire.codec import PackedRun, measure

LINGER_NS = 50 * MILLISECOND
"""How long messages wait for others to share a batch with. Less makes more and smaller batches, and rows sooner."""

BATCH_BYTES = 16 * 1024 * 1024
"""A batch of so much is written at once. To hand a batch from thread to thread takes a few turns of waiting for the
interpreter: at 4 MiB that was half of the time of the threads."""

MESSAGE_BYTES = 64
"""What a message takes in memory beside its payload, or in the columns of a batch: about the same."""

HELD_BYTES_MAX = 256 * 1024 * 1024
"""What may wait for the disk: a third of a second of what a recorder can take at most."""

GIVE_WAY_S = 0.02
"""How long who hands over waits for a batch to be written: a few times what one takes."""

_IDLE_S = 1.0


class LogWriter:
    """Writes to a log. One thread calls `run`, another one all the rest; `run` starts one more."""

    def __init__(
        self,
        log: SegmentLog,
        on_written: Callable[[Sequence[RecordedRun]], None],
        held_bytes_max: int = HELD_BYTES_MAX,
    ) -> None:
        """Prepare. `on_written` is told, in the thread that writes, what was appended."""
        self._log = log
        self._on_written = on_written
        self._held_bytes_max = held_bytes_max
        self._held: deque[tuple[int, RecordedRun]] = deque()
        self._declared: deque[TopicDeclaration] = deque()
        self._wake = Event()
        self._has_written = Event()
        self._is_stopping = False
        self._writing: Future[None] | None = None
        # Three are changed by who hands over, the next by who makes batches, the last two by who writes them.
        self._put_bytes = 0
        self._put_messages = 0
        self._stood_still_at = -1
        self._taken_bytes = 0
        self._written_bytes = 0
        self._written_messages = 0

    def put(self, run: RecordedRun) -> bool:
        """Take a run to write; False if too much is waiting."""
        payloads = run.payloads
        if isinstance(payloads, PackedRun):
            # What came is held as it came, with all that is in it.
            size = payloads.held_bytes
        else:
            size = measure(payloads)[0] if isinstance(payloads, list) else sum(map(len, payloads))
        size += MESSAGE_BYTES * len(payloads)
        if self._put_bytes - self._written_bytes > self._held_bytes_max // 2:
            self._give_way()
        held = self._put_bytes - self._written_bytes
        if held and held + size > self._held_bytes_max:
            return False
        waiting = self._put_bytes - self._taken_bytes
        self._held.append((size, run))
        self._put_bytes += size
        self._put_messages += len(run.payloads)
        if waiting == 0 or waiting < BATCH_BYTES <= waiting + size:
            self._wake.set()
        return True

    def _give_way(self) -> None:
        if self._stood_still_at != self._written_bytes:
            self._has_written.clear()
            if not self._has_written.wait(GIVE_WAY_S):
                self._stood_still_at = self._written_bytes

    def declare(self, declared: Iterable[TopicDeclaration]) -> None:
        """Take what is known of topics, to keep it beside the log."""
        self._declared.extend(declared)
        self._wake.set()

    def stop(self) -> None:
        """Let the thread end when it has written all that it was given."""
        self._is_stopping = True
        self._wake.set()

    @property
    def unwritten(self) -> int:
        """Messages that were taken and are not in the log."""
        return self._put_messages - self._written_messages

    def run(self) -> None:
        """Write until `stop`. Raises `StorageError` when the log cannot be written."""
        with ThreadPoolExecutor(1, "vivum-log") as disk:
            while True:
                # Cleared before looking: what comes after the look wakes again.
                self._wake.clear()
                if self._declared:
                    self._finish()
                    # All that are there now: the file is written once for them.
                    self._log.declare_all([self._declared.popleft() for _ in range(len(self._declared))])
                elif self._is_stopping or self._taken_bytes + BATCH_BYTES <= self._put_bytes:
                    if not self._held:
                        self._finish()
                        return
                    self._append(disk)
                elif self._held:
                    self._wake.wait(LINGER_NS / SECOND)
                    self._append(disk)
                else:
                    self._finish()
                    if not self._wake.wait(_IDLE_S):
                        # Nothing comes: what is not on the disk yet goes there now.
                        self._log.sync_if_due()

    def _finish(self) -> None:
        """Wait until the batch that is on its way is in the log. Raises what kept it out."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _append(self, disk: ThreadPoolExecutor) -> None:
        """Append what is held, up to a batch or a run more. It is made here while the batch before is being written."""
        runs = []
        taken = messages = 0
        while self._held and taken < BATCH_BYTES:
            size, run = self._held.popleft()
            runs.append(run)
            taken += size
            messages += len(run.payloads)
        self._taken_bytes += taken
        batch = self._log.prepare(runs)
        self._finish()
        self._writing = disk.submit(self._write, batch, runs, taken, messages)

    def _write(self, batch: PreparedBatch, runs: list[RecordedRun], taken: int, messages: int) -> None:
        self._log.append_prepared(batch)
        self._written_bytes += taken
        self._written_messages += messages
        self._has_written.set()
        self._on_written(runs)
