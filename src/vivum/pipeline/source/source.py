"""`format("vivum")`: segment logs as Spark tables, in batches and as streams.

Spark calls the reader on the driver to plan and on workers to read; both are made from `SourceOptions`, which is plain
data. Nothing of the log passes through the driver. Offsets of a stream name logs, not directories (`following`).

What a log had and cannot give any more is an error, or, with `failOnDataLoss` false, a row of the topic of gaps.

Follows the Python Data Source API of Spark 4.3: filters are pushed down, columns are not (hence the option
`columns`), and a stream admits by one limit (hence both of ours are looked at when Spark gives any).
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
import pyarrow
import pyarrow.compute
from pyspark.sql import datasource, types
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from vivum.core.errors import UsageError
from vivum.pipeline.recording.heads import without_heads
from vivum.pipeline.sink.options import read_sink_options
from vivum.pipeline.sink.sink import VivumStreamWriter, VivumWriter
from vivum.pipeline.source.following import FollowedLogs, LogPlace, Offsets
from vivum.pipeline.source.options import LATEST, SourceOptions, read_options
from vivum.pipeline.typed import PayloadDecoder, spark_struct
from vivum.storage.gaps import GAPS_TOPIC, LOST, Gap, encode_gap
from vivum.storage.segment_files import SegmentFile
from vivum.storage.segment_format import log_schema
from vivum.storage.segment_reader import LogReader, LostRows, read_rows
from vivum.storage.topic_types import TopicTypes

PARTITION_BYTES_MIN = 8 * 1024 * 1024
"""Less is not worth a task of its own: starting one takes as long as reading this."""

PARTITION_BYTES_MAX = 128 * 1024 * 1024
"""More is always shared by several tasks."""

ROWS_PER_YIELD = 8192
"""Smaller batches, as a log of few messages has them, are joined before they go to Spark."""

NO_END = 1 << 62

_NO_VALUE = pyarrow.scalar(b"\xc1", pyarrow.binary())
"""A payload that is of no type: the one byte that neither msgpack nor JSON has."""


class Span(NamedTuple):
    """Rows of one segment. `at` is where the first batch begins in the file, if the driver looked."""

    path: str
    segment_first: int
    start: int
    stop: int
    at: int | None
    bytes: int
    near_ns: int
    """A time of delivery near those of its rows."""

    lost: LostRows | None = None
    """Of rows that the driver knows to be lost: these, and nothing is to be read."""


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
        self.followed = FollowedLogs(options.directories, fails_on_loss=options.fail_on_data_loss)
        self.logs: dict[str, LogReader] = self.followed.readers
        self.only_topics: frozenset[str] | None = None

    def starts(self) -> dict[str, int]:
        """Where the options say to begin, in each directory."""
        found: dict[str, int] = {}
        for directory, log in self.logs.items():
            if self.options.starting_time_ns is not None:
                found[directory] = log.offset_at(self.options.starting_time_ns)
            elif self.options.starting_offset == LATEST:
                found[directory] = log.stop_offset()
            elif isinstance(self.options.starting_offset, int):
                # A number that somebody wrote may lie before all that ever was.
                found[directory] = max(self.options.starting_offset, log.first_offset())
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
            path, first, near_ns = str(segment.path), segment.first_offset, summary.delivered_ns_max
            share = summary.bytes * (high - low) // (summary.stop_offset - summary.first_offset)
            if share <= PARTITION_BYTES_MIN and low == summary.first_offset:
                yield Span(path, first, low, high, None, share, near_ns)
                continue
            at, began, size = None, low, 0
            for entry in log.entries(segment):
                if entry.stop_offset <= low or entry.first_offset >= high:
                    continue
                if at is not None and size + entry.body_bytes > PARTITION_BYTES_MIN:
                    yield Span(path, first, began, entry.first_offset, at, size, near_ns)
                    at, began, size = None, entry.first_offset, 0
                at = entry.at if at is None else at
                size += entry.body_bytes
            yield Span(path, first, began, high, at, size, near_ns)

    def lost(self, directory: str, rows: Iterable[LostRows]) -> list[Span]:
        """Plan rows that are lost: each is told once, by a task."""
        return [self._lost_span(directory, each) for each in rows]

    def _lost_span(self, directory: str, rows: LostRows) -> Span:
        summaries = self.logs[directory].summaries()
        near_ns = next((each.delivered_ns_min for _, each in summaries if each.first_offset >= rows.stop), 0)
        return Span(str(Path(directory) / "lost"), rows.start, rows.start, rows.stop, None, 0, near_ns, rows)

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
        for span in partition.spans:
            for batch in self._rows_of(span):
                chosen = without_heads(self._chosen(batch, partition.shard), headed[Path(span.path).parent])
                if len(chosen) == 0:
                    continue
                held.append(_columns_of(chosen, schema, decoder))
                rows += len(chosen)
                if rows >= ROWS_PER_YIELD:
                    yield _joined(held)
                    held, rows = [], 0
        if held:
            yield _joined(held)

    def _rows_of(self, span: Span) -> Iterator[Any]:
        """Read a span; what is lost of it is raised, or told by a row and on standard error."""
        segment = SegmentFile(Path(span.path), span.segment_first)
        for each in [span.lost] if span.lost else read_rows(segment, span.start, span.stop, span.at):
            if not isinstance(each, LostRows):
                yield each
                continue
            if self.options.fail_on_data_loss:
                raise each.error()
            sys.stderr.write(f"vivum: {each.error()}\n")
            yield _gap_row(each, span)

    def pieces(self, spans: Iterable[Span]) -> list[Piece]:
        """Share spans out: by their place in the log, or by topic if the options say so."""
        shards = self.options.topic_shards
        if shards is None:
            return pack(spans, self.options.min_partitions)
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
        planned: list[Span] = []
        for directory, start in self.starts().items():
            low = max(start, self.low)
            planned += self.lost(directory, self.followed.lost_between(directory, low, self.high, since_oldest=True))
            planned += self.spans(directory, low, self.high, self.delivered_ns_min)
        return self.pieces(planned)


class VivumStreamReader(_Reading, datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on as the log grows."""

    def __init__(self, options: SourceOptions, schema: types.StructType) -> None:
        super().__init__(options, schema)
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802
        """Where a new query begins."""
        return self.followed.offsets(self.starts(), {})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit for Spark, which knows one kind at a time; `latestOffset` respects both."""
        if self.options.rows_max is None and self.options.bytes_max is None:
            return ReadAllAvailable()
        return ReadMaxRows(self.options.rows_max or NO_END)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """How far the next micro-batch goes."""
        places = self.followed.follow(start)
        found: dict[str, int] = {}
        for directory, log in self.logs.items():
            begin, stop = places[directory].offset, log.stop_offset()
            if self._target is not None:
                stop = min(stop, self._target[directory])
            if isinstance(limit, ReadAllAvailable):
                found[directory] = max(begin, stop)
            else:
                found[directory] = self._admitted(log, begin, max(begin, stop))
        kept = {directory: None if place.lost else place.kept for directory, place in places.items()}
        return self.followed.offsets(found, kept)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember where the log ends now: the query goes so far and stops."""
        self._target = {directory: log.stop_offset() for directory, log in self.logs.items()}

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        """Return how far the query could be, for its progress report."""
        return self.followed.offsets({directory: log.stop_offset() for directory, log in self.logs.items()}, {})

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[datasource.InputPartition]:
        """Plan one task or more for each segment of a micro-batch."""
        begins, ends = self.followed.follow(start), self.followed.follow(end)
        planned: list[Span] = []
        for directory in self.logs:
            # A log that the end of the batch does not name came later.
            if ends[directory].kept is not None:
                planned += self._planned(directory, begins[directory], ends[directory].offset)
        return self.pieces(planned)

    def _planned(self, directory: str, begin: LogPlace, stop: int) -> list[Span]:
        rows = self.followed.lost_between(directory, begin.offset, stop, since_oldest=False)
        return [*self.lost(directory, [*begin.lost, *rows]), *self.spans(directory, begin.offset, stop)]

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


def pack(spans: Iterable[Span], pieces_min: int | None = None) -> list[Piece]:
    """Join neighbouring spans to pieces: about as many as asked for, or more where they would be too large."""
    every = list(spans)
    wanted = sum(each.bytes for each in every) / (pieces_min or os.cpu_count() or 1)
    limit = min(max(wanted, 0 if pieces_min else PARTITION_BYTES_MIN), PARTITION_BYTES_MAX)
    pieces: list[list[Span]] = []
    size = 0
    for each in every:
        if not pieces or size >= limit:
            pieces.append([])
            size = 0
        pieces[-1].append(each)
        size += each.bytes
    return [Piece(tuple(each)) for each in pieces]


def _gap_row(lost: LostRows, span: Span) -> Any:
    """Make the row that stands for rows that are lost."""
    gap = Gap(LOST, first=lost.start, count=lost.stop - lost.start, text=lost.reason)
    row = dict.fromkeys(log_schema().names, 0) | {
        "offset": lost.start, "topic": GAPS_TOPIC, "position": None, "sent_ns": span.near_ns,
        "delivered_ns": span.near_ns, "payload": encode_gap(gap),
    }  # fmt: skip
    return pyarrow.RecordBatch.from_pylist([row], log_schema())


def _columns_of(batch: Any, schema: Any, decoder: PayloadDecoder | None) -> Any:
    arrays = {name: batch.column(name) for name in schema.names if name not in ("value", "refused")}
    if decoder is not None:
        arrays["value"], arrays["refused"] = _decoded(batch, decoder)
    return pyarrow.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _decoded(batch: Any, decoder: PayloadDecoder) -> tuple[Any, Any]:
    """Decode payloads. Gaps are no values of the type, whatever that is: they are refused with what they tell."""
    payloads = batch.column("payload")
    is_gap = pyarrow.compute.equal(batch.column("topic"), GAPS_TOPIC)
    if decoder.is_of_gaps or not pyarrow.compute.any(is_gap).as_py():
        return decoder.columns(payloads)
    told = pyarrow.array([f"gap: {msgspec.msgpack.decode(each)}" for each in payloads.filter(is_gap).to_pylist()])
    value, refused = decoder.columns(pyarrow.compute.if_else(is_gap, _NO_VALUE, payloads))
    return value, pyarrow.compute.replace_with_mask(refused, is_gap, told)


def _joined(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pyarrow.concat_batches(batches)
