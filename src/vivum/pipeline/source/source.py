"""`format("vivum")`: segment logs as Spark tables, in batches and as streams.

Spark calls the reader on the driver to plan and on workers to read; both are made from `SourceOptions`, which is plain
data. Nothing of the log passes through the driver. An offset of a stream is a number for each directory.

Follows the Python Data Source API of Spark 4.3: filters are pushed down, columns are not (hence the option
`columns`), and a stream admits by one limit (hence both of ours are looked at when Spark gives any).
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow
from pyspark.sql import datasource, types
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from vivum.core.errors import UsageError
from vivum.pipeline.recording.heads import without_heads
from vivum.pipeline.sink.options import read_sink_options
from vivum.pipeline.sink.sink import VivumStreamWriter, VivumWriter
from vivum.pipeline.source.options import LATEST, SourceOptions, read_options
from vivum.pipeline.typed import PayloadDecoder, spark_struct
from vivum.storage.errors import StorageError
from vivum.storage.segment_files import SegmentFile
from vivum.storage.segment_reader import LogReader, read_segment
from vivum.storage.topic_types import TopicTypes

PARTITION_BYTES_MIN = 8 * 1024 * 1024
"""Less is not worth a task of its own: starting one takes as long as reading this."""

PARTITION_BYTES_MAX = 128 * 1024 * 1024
"""More is always shared by several tasks."""

ROWS_PER_YIELD = 8192
"""Smaller batches, as a log of few messages has them, are joined before they go to Spark."""

NO_END = 1 << 62

Offsets = dict[str, int]
"""For each directory, the offset of the next row."""


class Span(NamedTuple):
    """Rows of one segment. `at` is where the first batch begins in the file, if the driver looked."""

    path: str
    segment_first: int
    start: int
    stop: int
    at: int | None
    bytes: int


@dataclass(frozen=True)
class Piece(datasource.InputPartition):
    """What one task reads: spans, of them all topics or one shard of them."""

    spans: tuple[Span, ...]
    shard: int | None = None


class VivumSource(datasource.DataSource):
    """What `format("vivum")` means."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._read_options: SourceOptions | None = None

    @property
    def wanted(self) -> SourceOptions:
        """The options for reading. Checked here, since the same class is made for writing too."""
        if self._read_options is None:
            self._read_options = read_options(self.options)
        return self._read_options

    @classmethod
    def name(cls) -> str:
        """The word in `format(...)`."""
        return "vivum"

    def schema(self) -> types.StructType:
        """The columns that the options ask for."""
        plain: dict[str, types.DataType] = {
            "topic": types.StringType(),
            "payload": types.BinaryType(),
            "refused": types.StringType(),
        }
        if self.wanted.message_type is not None:
            plain["value"] = spark_struct(self.wanted.message_type)
        may_be_null = ("position", "value", "refused")
        return types.StructType(
            [
                types.StructField(each, plain.get(each, types.LongType()), each in may_be_null)
                for each in self.wanted.columns
            ]
        )

    def reader(self, schema: types.StructType) -> "VivumReader":
        """Read once."""
        return VivumReader(self.wanted, schema)

    def streamReader(self, schema: types.StructType) -> "VivumStreamReader":  # noqa: N802
        """Read as a stream."""
        return VivumStreamReader(self.wanted, schema)

    def writer(self, schema: types.StructType, overwrite: bool) -> VivumWriter:
        """Publish once."""
        _must_append(overwrite)
        return VivumWriter(read_sink_options(self.options, schema, stream=False))

    def streamWriter(self, schema: types.StructType, overwrite: bool) -> VivumStreamWriter:  # noqa: N802
        """Publish as a stream."""
        _must_append(overwrite)
        return VivumStreamWriter(read_sink_options(self.options, schema, stream=True))


def _must_append(overwrite: bool) -> None:
    if overwrite:
        raise UsageError("what was published cannot be overwritten; use the mode 'append'")


class _Reading:
    """What both readers do: plan pieces on the driver, read them on workers."""

    def __init__(self, options: SourceOptions, schema: types.StructType) -> None:
        self.options = options
        self.spark_schema = schema
        self.logs = {each: LogReader(each) for each in options.directories}
        self.only_topics: frozenset[str] | None = None

    def starts(self) -> Offsets:
        """Where the options say to begin."""
        found = {}
        for directory, log in self.logs.items():
            if self.options.starting_time_ns is not None:
                found[directory] = log.offset_at(self.options.starting_time_ns)
            elif self.options.starting_offset == LATEST:
                found[directory] = log.stop_offset()
            elif isinstance(self.options.starting_offset, int):
                found[directory] = self.options.starting_offset
            else:
                found[directory] = log.first_offset()
        return found

    def spans(self, directory: str, start: int, stop: int, delivered_ns_min: int = 0) -> Iterator[Span]:
        """Cut a range of offsets into spans that are small enough to be shared out."""
        log = self.logs[directory]
        for segment, summary in log.summaries():
            low, high = max(start, summary.first_offset), min(stop, summary.stop_offset)
            if low >= high or summary.delivered_ns_max < delivered_ns_min:
                continue
            share = summary.bytes * (high - low) // (summary.stop_offset - summary.first_offset)
            if share <= PARTITION_BYTES_MIN and low == summary.first_offset:
                yield Span(str(segment.path), segment.first_offset, low, high, None, share)
                continue
            at, began, size = None, low, 0
            for entry in log.entries(segment):
                if entry.stop_offset <= low or entry.first_offset >= high:
                    continue
                if at is not None and size + entry.body_bytes > PARTITION_BYTES_MIN:
                    yield Span(str(segment.path), segment.first_offset, began, entry.first_offset, at, size)
                    at, began, size = None, entry.first_offset, 0
                at = entry.at if at is None else at
                size += entry.body_bytes
            yield Span(str(segment.path), segment.first_offset, began, high, at, size)

    def read(self, partition: Any) -> Iterator[Any]:
        """Read one piece on a worker."""
        # Spark makes up one piece without anything when there is none.
        if not isinstance(partition, Piece):
            return
        schema = to_arrow_schema(self.spark_schema, timezone="UTC")
        decoder = None
        if self.options.message_type is not None and {"value", "refused"} & set(schema.names):
            value_type = to_arrow_schema(
                types.StructType([types.StructField("value", spark_struct(self.options.message_type))]), timezone="UTC"
            )
            decoder = PayloadDecoder(self.options.message_type, value_type.field("value").type)
        held: list[Any] = []
        rows = 0
        headed: dict[Path, set[str]] = {}
        for span in partition.spans:
            # Read here and now: topics may have come since the query began.
            directory = Path(span.path).parent
            if directory not in headed:
                headed[directory] = TopicTypes.read(directory).headed
        for directory, batch in chain.from_iterable(map(_read_span, partition.spans)):
            chosen = without_heads(self._chosen(batch, partition.shard), headed[directory])
            if len(chosen) == 0:
                continue
            held.append(_columns_of(chosen, schema, decoder))
            rows += len(chosen)
            if rows >= ROWS_PER_YIELD:
                yield _joined(held)
                held, rows = [], 0
        if held:
            yield _joined(held)

    def pieces(self, spans: Iterable[Span]) -> list[Piece]:
        """Share spans out: by their place in the log, or by topic if the options say so."""
        shards = self.options.topic_shards
        if shards is None:
            return pack(spans)
        every = tuple(spans)
        return [Piece(every, shard) for shard in range(shards)] if every else []

    def _chosen(self, batch: Any, shard: int | None) -> Any:
        """Keep the rows of wanted topics, of one shard of them if there are several."""
        pattern, only, shards = self.options.topics, self.only_topics, self.options.topic_shards
        if pattern.is_everything and only is None and shards is None:
            return batch
        topics = batch.column("topic")
        there = topics.unique().to_pylist()
        wanted = [each for each in pattern.chosen(there) if only is None or each in only]
        if shards is not None:
            # A checksum, not a hash: workers must agree.
            wanted = [each for each in wanted if crc32(each.encode()) % shards == shard]
        if len(wanted) == len(there):
            return batch
        if not wanted:
            return batch.slice(0, 0)
        return batch.filter(pyarrow.compute.is_in(topics, pyarrow.array(wanted, pyarrow.string())))


class VivumReader(_Reading, datasource.DataSourceReader):
    """Reads what is in the log when the query is planned."""

    def __init__(self, options: SourceOptions, schema: types.StructType) -> None:
        super().__init__(options, schema)
        self.low, self.high = 0, NO_END
        self.delivered_ns_min = 0

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:  # noqa: N802
        """Take filters on topics and offsets, and use those on time to leave out segments."""
        return [each for each in filters if not self._takes(each)]

    def _takes(self, each: Any) -> bool:
        column = each.attribute if hasattr(each, "attribute") else ()
        if column == ("topic",) and isinstance(each, datasource.EqualTo | datasource.In):
            topics = frozenset([each.value] if isinstance(each, datasource.EqualTo) else each.value)
            self.only_topics = topics if self.only_topics is None else self.only_topics & topics
            return True
        if column == ("offset",) and not isinstance(each, datasource.In):
            return self._narrow(each)
        if column == ("delivered_ns",) and isinstance(each, datasource.GreaterThan | datasource.GreaterThanOrEqual):
            self.delivered_ns_min = max(self.delivered_ns_min, each.value)
        return False

    def _narrow(self, each: Any) -> bool:
        value = getattr(each, "value", None)
        if not isinstance(value, int):
            return False
        bounds = {
            datasource.EqualTo: (value, value + 1),
            datasource.GreaterThan: (value + 1, NO_END),
            datasource.GreaterThanOrEqual: (value, NO_END),
            datasource.LessThan: (0, value),
            datasource.LessThanOrEqual: (0, value + 1),
        }.get(type(each))
        if bounds is None:
            return False
        self.low, self.high = max(self.low, bounds[0]), min(self.high, bounds[1])
        return True

    def partitions(self) -> Sequence[datasource.InputPartition]:
        """Plan one task or more for each segment."""
        return self.pieces(
            span
            for directory, start in self.starts().items()
            for span in self.spans(directory, max(start, self.low), self.high, self.delivered_ns_min)
        )


class VivumStreamReader(_Reading, datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on as the log grows."""

    def __init__(self, options: SourceOptions, schema: types.StructType) -> None:
        super().__init__(options, schema)
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802
        """Where a new query begins."""
        return self.starts()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit for Spark, which knows one kind at a time; `latestOffset` respects both."""
        if self.options.rows_max is None and self.options.bytes_max is None:
            return ReadAllAvailable()
        return ReadMaxRows(self.options.rows_max or NO_END)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """How far the next micro-batch goes."""
        found = {}
        for directory, log in self.logs.items():
            begin = start.get(directory)
            begin = log.first_offset() if begin is None else begin
            stop = log.stop_offset()
            if self._target is not None:
                stop = min(stop, self._target[directory])
            if isinstance(limit, ReadAllAvailable):
                found[directory] = max(begin, stop)
            else:
                found[directory] = self._admitted(log, begin, max(begin, stop))
        return found

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember where the log ends now: the query goes so far and stops."""
        self._target = {directory: log.stop_offset() for directory, log in self.logs.items()}

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        """Return how far the query could be, for its progress report."""
        return {directory: log.stop_offset() for directory, log in self.logs.items()}

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[datasource.InputPartition]:
        """Plan one task or more for each segment of a micro-batch."""
        planned: list[Span] = []
        for directory, stop in end.items():
            log = self.logs.get(directory)
            if log is None:
                raise UsageError(f"the checkpoint is of the log {directory}, which this query does not read")
            begin = start.get(directory, 0)
            oldest = log.first_offset()
            # A number that somebody wrote may lie before all that ever was; a checkpoint does not.
            promised = self.options.fail_on_data_loss and begin != self.options.starting_offset
            if begin < min(oldest, stop) and promised:
                raise StorageError(
                    f"offsets {begin} to {min(oldest, stop) - 1} of the log {directory} were deleted before they were "
                    f"read; keep more, or set failOnDataLoss to false to go on without them"
                )
            planned += self.spans(directory, begin, stop)
        return self.pieces(planned)

    def _admitted(self, log: LogReader, start: int, stop: int) -> int:
        """Return the offset up to which rows and bytes keep within their limits, at least one batch further."""
        shares = len(self.logs)
        rows = max(1, self.options.rows_max // shares) if self.options.rows_max else NO_END
        size = max(1, self.options.bytes_max // shares) if self.options.bytes_max else NO_END
        reached = start
        for segment, summary in log.summaries():
            low, high = max(start, summary.first_offset), min(stop, summary.stop_offset)
            if low >= high:
                continue
            if summary.bytes <= size and high - low <= rows:
                # The whole segment fits: no need to look at its batches.
                rows, size, reached = rows - (high - low), size - summary.bytes, high
                continue
            for entry in log.entries(segment):
                if entry.stop_offset <= low or entry.first_offset >= high:
                    continue
                here = min(entry.stop_offset, high) - max(entry.first_offset, low)
                # Rows can be cut inside a batch, bytes not.
                if entry.body_bytes > size and reached > start:
                    return reached
                if here > rows:
                    return max(entry.first_offset, low) + rows
                rows, size, reached = rows - here, size - entry.body_bytes, min(entry.stop_offset, high)
                if rows <= 0 or size <= 0:
                    return reached
        return stop if reached == start else reached


def pack(spans: Iterable[Span]) -> list[Piece]:
    """Join neighbouring spans to pieces: about one for each core, or more where they would be too large."""
    every = list(spans)
    wanted = sum(each.bytes for each in every) / (os.cpu_count() or 1)
    limit = min(max(wanted, PARTITION_BYTES_MIN), PARTITION_BYTES_MAX)
    pieces: list[list[Span]] = []
    size = 0
    for each in every:
        if not pieces or size >= limit:
            pieces.append([])
            size = 0
        pieces[-1].append(each)
        size += each.bytes
    return [Piece(tuple(each)) for each in pieces]


def _read_span(span: Span) -> Iterator[tuple[Path, Any]]:
    path = Path(span.path)
    batches = read_segment(SegmentFile(path, span.segment_first), span.start, span.stop, span.at)
    return ((path.parent, batch) for batch in batches)


def _columns_of(batch: Any, schema: Any, decoder: PayloadDecoder | None) -> Any:
    arrays = {name: batch.column(name) for name in schema.names if name not in ("value", "refused")}
    if decoder is not None:
        arrays["value"], arrays["refused"] = decoder.columns(batch.column("payload"))
    return pyarrow.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _joined(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pyarrow.concat_batches(batches)
