"""`format("vivum")` for writing: results of Spark as messages of topics, in batches and from streams.

`write` runs on executors: it encodes rows and stages them on disk. `commit` runs on the driver: it seals the batch,
publishes it, and notes that it did. A batch that Spark replays after a crash is published from what was sealed, under
the same keys, or not at all if it was published; so topics with the guarantee `KEYED` hand each result over once. Rows
that such a batch has beyond what was sealed are published behind them; if it lacks some, the query stops.
`docs/design/pipeline.md` says what that promises and what not.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow
from pyspark.sql import datasource

from vivum.core.errors import UsageError
from vivum.core.topic_names import check_name, is_pattern
from vivum.pipeline.sink.digests import ALL_BITS
from vivum.pipeline.sink.options import SinkOptions, message_type_of
from vivum.pipeline.sink.publisher import publish
from vivum.pipeline.sink.staging import STAGED_SCHEMA, SinkFolder, SinkState, StagedPart
from vivum.pipeline.typed import PayloadEncoder
from vivum.storage.errors import StorageError

ONLY_BATCH = 0
"""The number of the batch of a query that has one."""


class _Writing:
    """What both writers do."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    @property
    def folder(self) -> SinkFolder:
        """What is kept on disk; of a table without a name only until it is published."""
        is_temporary = not (self.options.is_stream or self.options.is_named)
        return SinkFolder(self.options.folder, is_private=is_temporary)

    def write(self, iterator: Iterator[Any]) -> StagedPart:
        """Encode and stage the rows of a task."""
        return self.folder.stage(self._staged(iterator))

    def _staged(self, batches: Iterator[Any]) -> Iterator[Any]:
        options = self.options
        encoder = None
        if options.type_name is not None:
            encoder = PayloadEncoder(message_type_of(options.type_name), list(options.fields))
        for batch in batches:
            if len(batch) == 0:
                continue
            if options.topic is not None:
                topics = pyarrow.repeat(pyarrow.scalar(options.topic), len(batch))
            else:
                topics = batch.column("topic").cast(pyarrow.string())
                for each in topics.unique().to_pylist():
                    _check_topic(each)
            if encoder is None:
                payloads = batch.column("payload").cast(pyarrow.binary())
                if payloads.null_count:
                    raise UsageError("a row has no payload; filter such rows out before the sink")
            else:
                payloads = pyarrow.array(encoder.payloads(_values(batch, options)), pyarrow.binary())
            yield pyarrow.RecordBatch.from_arrays([topics, payloads], schema=STAGED_SCHEMA)

    def publish_batch(self, messages: list[Any], batch: int, *, keep: bool) -> None:
        """Publish a batch, unless that was done; first of all the one before, if that was left half-way."""
        options, folder = self.options, self.folder
        parts = [each for each in messages if each is not None]
        with folder.locked(options.link.timeout_s):
            state = folder.state()
            # What was left half-way is finished first, whatever comes next.
            if state is not None and not state.is_published:
                publish(options.link, folder, options.query.bytes, state, keep=keep)
                state = folder.note_published(state)
            if state is not None and batch <= state.batch:
                # Spark runs it again: what was sealed counts, and what it has beyond that is published too.
                rest = [] if options.trusts_replays else self._beyond(folder, state, batch, parts)
                folder.discard(messages)
                parts = rest
                if not any(each.file for each in parts):
                    return
            state = folder.seal(batch, parts, state)
            if not state.is_published:
                publish(options.link, folder, options.query.bytes, state, keep=keep)
                folder.note_published(state)

    def _beyond(self, folder: SinkFolder, state: SinkState, batch: int, parts: list[StagedPart]) -> list[StagedPart]:
        """Return what Spark has of a batch beyond what was published. Raises `StorageError` if it has other rows."""
        if batch == state.batch:
            rest = folder.unsealed(state, parts)
            if rest is not None:
                return rest
            what = "other rows than now"
        else:
            rows, digest = state.earlier.get(batch, (-1, 0))
            if (rows, digest) == (sum(each.rows for each in parts), sum(each.digest for each in parts) & ALL_BITS):
                return []
            what = f"others up to batch {state.batch} after it, and Spark begins again"
        folder.discard(parts)
        raise StorageError(
            f"batch {batch} was published with {what}: Spark's notes were deleted, or the query gives other rows each "
            f"time; put the checkpoint back, begin with a new one and startingOffset behind what is published, or set "
            f"the option replays to 'trust' to pass over this batch"
        )


def _check_topic(name: str | None) -> None:
    if name is None:
        raise UsageError("a row has no topic; filter such rows out before the sink")
    if is_pattern(name):
        raise UsageError(f"the topic {name!r} of a row is a pattern; a message goes to one topic")
    check_name(name)


def _values(batch: Any, options: SinkOptions) -> Any:
    if not options.in_value:
        return batch
    value = batch.column("value")
    if value.null_count:
        raise UsageError("a row has no value; filter such rows out before the sink")
    return pyarrow.RecordBatch.from_struct_array(value)


class VivumStreamWriter(_Writing, datasource.DataSourceStreamArrowWriter):
    """Publishes the batches of a stream."""

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Publish a batch."""
        self.publish_batch(messages, batchId, keep=self.options.link.linger_s > 0)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803, ARG002
        """Forget what was staged. Spark also calls this when `commit` failed: what is sealed stays."""
        folder = self.folder
        with folder.locked(self.options.link.timeout_s):
            folder.discard(messages)


class VivumWriter(_Writing, datasource.DataSourceArrowWriter):
    """Publishes a table."""

    def commit(self, messages: list[Any]) -> None:
        """Publish it."""
        self.publish_batch(messages, ONLY_BATCH, keep=False)
        if not self.options.is_named:
            self.folder.remove()

    def abort(self, messages: list[Any]) -> None:
        """Forget it; of a write with a name, what is sealed stays for the next attempt."""
        folder = self.folder
        if not self.options.is_named:
            folder.remove()
            return
        with folder.locked(self.options.link.timeout_s):
            folder.discard(messages)
