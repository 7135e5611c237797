"""Append runs of messages to a log in threads of their own, a batch at a time.

The producer waits neither for the disk nor for a batch to be made. One thread makes a batch while another one writes
the batch before; both take about as long. Runs wait until there are `BATCH_BYTES` of them or `LINGER_NS` has passed.
Above `held_bytes_max` runs are refused, and the caller counts them.

Above half of that limit the producer waits up to `GIVE_WAY_S` for the writer: where processors are scarce it would
otherwise take them all, only to receive messages that have to be refused. If the disk makes no progress in that time,
the producer does not wait again until it does.

The two sides share a deque, and counters that only one side changes, so there is no lock. Copying, checksums and writes
release the interpreter lock, so the threads take little time from the producer.
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
"""The size at which a batch is written. Handing a batch from thread to thread waits several times for the interpreter
lock: with 4 MiB that was half of the threads' time."""

MESSAGE_BYTES = 64
"""What a message takes beside its payload, about the same in memory and in the columns of a batch."""

HELD_BYTES_MAX = 256 * 1024 * 1024
"""What may wait for the disk: a third of a second at a recorder's highest rate."""

GIVE_WAY_S = 0.02
"""How long the producer waits for a batch to be written: a few times what one takes."""

_IDLE_S = 1.0


class LogWriter:
    """Writes to a log. One thread calls `run`, which starts another; the producer's thread calls all else."""

    def __init__(
        self,
        log: SegmentLog,
        on_written: Callable[[Sequence[RecordedRun]], None],
        held_bytes_max: int = HELD_BYTES_MAX,
    ) -> None:
        """Prepare. `on_written` is called in the writing thread with what was appended."""
        self._log = log
        self._on_written = on_written
        self._held_bytes_max = held_bytes_max
        self._held: deque[tuple[int, RecordedRun]] = deque()
        self._declared: deque[TopicDeclaration] = deque()
        self._wake = Event()
        self._has_written = Event()
        self._is_stopping = False
        self._writing: Future[None] | None = None
        # The producer changes the first three, the thread that makes batches the next, the writing thread the last two.
        self._put_bytes = 0
        self._put_messages = 0
        self._stood_still_at = -1
        self._taken_bytes = 0
        self._written_bytes = 0
        self._written_messages = 0

    def put(self, run: RecordedRun, *, must: bool = False) -> bool:
        """Take a run to write; return False if too much is waiting. With `must` it is taken all the same."""
        payloads = run.payloads
        if isinstance(payloads, PackedRun):
            # A packed run is held with all that came in its frames.
            size = payloads.held_bytes
        else:
            size = measure(payloads)[0] if isinstance(payloads, list) else sum(map(len, payloads))
        size += MESSAGE_BYTES * len(payloads)
        if not must:
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
        """Take declarations of topics, to keep them beside the log."""
        self._declared.extend(declared)
        self._wake.set()

    def stop(self) -> None:
        """Let the thread end when it has written everything."""
        self._is_stopping = True
        self._wake.set()

    @property
    def unwritten(self) -> int:
        """Messages that were taken and are not in the log yet."""
        return self._put_messages - self._written_messages

    def run(self) -> None:
        """Write until `stop`. Raises `StorageError` when the log cannot be written."""
        with ThreadPoolExecutor(1, "vivum-log") as disk:
            while True:
                # Clear before looking: a run that arrives after the look sets it again.
                self._wake.clear()
                if self._declared:
                    self._finish()
                    # Take all that are there now: the file is written once for them.
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
                        # Nothing arrives: write now what is not on the disk yet.
                        self._log.sync_if_due()

    def _finish(self) -> None:
        """Wait until the batch under way is in the log. Raises the error of writing it."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _append(self, disk: ThreadPoolExecutor) -> None:
        """Append what is held, up to a batch or one run more. Makes it while the batch before is being written."""
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
