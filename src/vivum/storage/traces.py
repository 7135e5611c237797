"""Traces in Parquet files: a tracer that writes them, and a reader that gives the records back.

    with TraceWriter(directory, "node-3.1") as trace:
        node.trace = trace
        ...
    for record in read_trace(directory):
        ...

A writer holds records in memory until there are `rows_per_file` of them, then writes one file,
`<label>-000000.parquet` and so on. A file is written under a hidden name, forced to the disk, and renamed:
under its final name it is always whole. So a crash loses the records not yet written, at most
`rows_per_file`, and nothing else; who wants to lose less calls `flush()` now and then, which makes more
and smaller files.

When the disk is full or the directory goes away, the call that should have written raises `StorageError`.
The writer keeps what it holds and tries again at the next `flush()` or `close()`; until that works,
further records are dropped and counted. A trace with a hole is never closed in silence: `close()` raises
if anything was dropped.

Does not know what records mean. `vivum.storage.trace_schema` has the columns.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import merge
from itertools import chain, repeat
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any

from vivum.core.errors import UsageError
from vivum.observe.trace import RECORD_TYPES, GroupNamed, Record, TraceRecord
from vivum.storage.errors import StorageError
from vivum.storage.trace_schema import (
    FIELDS,
    FORMAT,
    FORMAT_KEY,
    KIND,
    POSITION,
    PROMISES_KEY,
    arrow,
    trace_schema,
)

ROWS_PER_FILE = 262_144
"""Records held before a file is written: 60 MB of memory or so, 2 MB of file, and what a crash can lose."""

ROWS_PER_READ = 65_536
"""Records of each file that a reader holds at a time."""

_FILE = re.compile(r"(?P<label>[A-Za-z0-9][A-Za-z0-9._-]*)-(?P<number>[0-9]{6,})\.parquet")


class TraceWriter:
    """A tracer that writes Parquet files. A directory holds one run; each writer has its own label."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        label: str,
        *,
        rows_per_file: int = ROWS_PER_FILE,
        promises: Iterable[str] | None = None,
    ) -> None:
        if _FILE.fullmatch(f"{label}-000000.parquet") is None:
            raise UsageError(f"{label!r} cannot be the label of a trace; use letters, digits, '.', '_' and '-'")
        if rows_per_file < 1:
            raise UsageError(f"rows_per_file is {rows_per_file}; it must be at least 1")
        self.directory = Path(directory)
        self.label = label
        self.records_written = 0
        self.records_dropped = 0
        self._rows_per_file = rows_per_file
        self._files = 0
        self._failed = False
        self._closed = False
        self._held: list[TraceRecord] = []
        self._schema = trace_schema(promises)
        self._words = [each.name for each in self._schema if each.type == arrow().string()]
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            there = [path for path in self.directory.iterdir() if _label_of(path) == label]
        except OSError as error:
            raise _cannot_write(self.directory, error) from error
        if there:
            raise UsageError(
                f"{self.directory} already holds a trace {label!r} ({there[0].name}); "
                f"choose another directory or remove the old trace"
            )

    def __call__(self, record: TraceRecord) -> None:
        """Take one record. Every so often, this writes a file."""
        if self._failed:
            self.records_dropped += 1
            return
        held = self._held
        held.append(record)
        if len(held) >= self._rows_per_file:
            self.flush()

    def extend(self, records: Sequence[TraceRecord]) -> None:
        """Take many records at once; when there are enough for a file, they all go into it."""
        if self._failed:
            self.records_dropped += len(records)
            return
        self._held += records
        if len(self._held) >= self._rows_per_file:
            self.flush()

    def flush(self) -> None:
        """Write what is held as one file, if there is anything."""
        if self._closed:
            raise UsageError(f"the trace {self.label!r} in {self.directory} is closed")
        if not self._held:
            return
        self._failed = True
        self._write()
        self._failed = False
        self.records_written += len(self._held)
        self._files += 1
        self._held.clear()

    def close(self) -> None:
        """Write the rest. Raises `StorageError` if that fails, or if records were dropped before."""
        if self._closed:
            return
        try:
            self.flush()
        finally:
            self._closed = self._failed = True
            self._held.clear()
        if self.records_dropped:
            raise StorageError(
                f"the trace {self.label!r} in {self.directory} has a hole: {self.records_dropped} records "
                f"came while it could not be written and were dropped; do not judge the run by it"
            )

    def __enter__(self) -> "TraceWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _write(self) -> None:
        """Write one file, whole or not at all."""
        pyarrow = arrow()
        final = self.directory / f"{self.label}-{self._files:06}.parquet"
        hidden = self.directory / f".{final.name}.tmp"
        try:
            table = _table(self._held, self.records_written, self._schema)
            with hidden.open("wb") as file:
                # Dictionaries pay for words; for numbers they cost time and space.
                pyarrow.parquet.write_table(table, file, compression="zstd", use_dictionary=self._words)
                file.flush()
                os.fsync(file.fileno())
            hidden.replace(final)
        except (OSError, OverflowError, pyarrow.ArrowException) as error:
            with suppress(OSError):
                hidden.unlink()
            raise _cannot_write(final, error) from error


def _table(records: list[TraceRecord], first_position: int, schema: Any) -> Any:
    """Turn records into the wide table, in their order."""
    pyarrow = arrow()
    places: dict[type[Record], list[int]] = {}
    by_type: dict[type[Record], list[Record]] = {}
    for place, record in enumerate(records):
        record_type: type[Record] = type(record)
        alike = by_type.get(record_type)
        if alike is None:
            by_type[record_type] = [record]
            places[record_type] = [place]
        else:
            alike.append(record)
            places[record_type].append(place)
    blocks = []
    for record_type, alike in by_type.items():
        count = len(alike)
        arrays = []
        for field in schema:
            if field.name in FIELDS[record_type]:
                values = list(map(attrgetter(field.name), alike))  # Half the time of astuple() and zip().
                arrays.append(pyarrow.array(values, field.type, size=count))
            elif field.name == POSITION:
                arrays.append(pyarrow.array(places[record_type], field.type, size=count))
            elif field.name == KIND:
                arrays.append(pyarrow.repeat(str(record_type.__struct_config__.tag), count))
            else:
                arrays.append(pyarrow.nulls(count, field.type))
        blocks.append(pyarrow.Table.from_arrays(arrays, schema=schema))
    table = pyarrow.concat_tables(blocks)
    if len(blocks) > 1:
        table = table.sort_by(POSITION)
    if first_position:
        moved = pyarrow.compute.add(table[POSITION], first_position)
        table = table.set_column(0, schema.field(POSITION), moved)
    return table


def trace_files(path: str | os.PathLike[str]) -> list[Path]:
    """List the files of a trace: one file, or all of a directory, those of one writer in their order."""
    path = Path(path)
    try:
        path.stat()
        # Shorter names first: number 1,000,000 comes behind 999,999.
        found = sorted(path.iterdir(), key=lambda each: (len(each.name), each.name)) if path.is_dir() else [path]
    except OSError as error:
        raise _cannot_read(path, error) from error
    files = [each for each in found if each == path or _label_of(each) is not None]
    if not files:
        raise StorageError(f"{path} holds no trace; give a directory that a TraceWriter wrote, or one of its files")
    return files


def read_promises(path: str | os.PathLike[str]) -> frozenset[str] | None:
    """Return what groups without a name promise, as all writers of a trace say; None where one of them says nothing."""
    pyarrow = arrow()
    promised: set[str] = set()
    for each in trace_files(path):
        try:
            found = (pyarrow.parquet.read_schema(each).metadata or {}).get(PROMISES_KEY)
        except (OSError, pyarrow.ArrowException) as error:
            raise _cannot_read(each, error) from error
        if found is None:
            return None
        promised.update(filter(None, found.decode().split(",")))
    return frozenset(promised)


def read_guarantees(path: str | os.PathLike[str]) -> dict[int, set[str]]:
    """Return the guarantees of each group that has a name, by theirs: more than one if topics took turns with it."""
    pyarrow = arrow()
    named = [(KIND, "==", str(GroupNamed.__struct_config__.tag))]
    found: dict[int, set[str]] = {}
    for each in trace_files(path):
        try:
            table = pyarrow.parquet.read_table(each, columns=["group", "guarantee"], filters=named)
        except (OSError, pyarrow.ArrowException) as error:
            raise _cannot_read(each, error) from error
        for group, guarantee in zip(*(column.to_pylist() for column in table.columns), strict=True):
            found.setdefault(group, set()).add(guarantee)
    return found


def records_at(path: str | os.PathLike[str], places: Collection[tuple[str, int]]) -> dict[tuple[str, int], TraceRecord]:
    """Return the records at these places, each a writer's label and a position. For few of them."""
    pyarrow = arrow()
    found: dict[tuple[str, int], TraceRecord] = {}
    for each in trace_files(path) if places else []:
        label = _label_of(each) or ""
        wanted = sorted(position for writer, position in places if writer == label)
        if wanted:
            table = pyarrow.parquet.read_table(each, filters=[(POSITION, "in", wanted)])
            for batch in table.to_batches():
                positions = batch.column(POSITION).to_pylist()
                found.update(zip(((label, place) for place in positions), _records(batch, each), strict=True))
    return found


def read_trace(path: str | os.PathLike[str]) -> Iterator[TraceRecord]:
    """Read a file, or all files of a directory, back into records, in order of time.

    Records of one writer keep the order in which they were written, equal times or not; several writers are
    merged by time. Holds one batch of each writer. Raises `StorageError` where a file cannot be read.
    """
    arrow()
    writers: dict[str, list[Path]] = {}
    for each in trace_files(path):
        writers.setdefault(_label_of(each) or each.name, []).append(each)
    streams = [chain.from_iterable(map(_read_file, files)) for files in writers.values()]
    return streams[0] if len(streams) == 1 else merge(*streams, key=attrgetter("time_ns"))


def _read_file(path: Path) -> Iterator[TraceRecord]:
    pyarrow = arrow()
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            version = (file.schema_arrow.metadata or {}).get(FORMAT_KEY)
            if version != FORMAT:
                raise StorageError(
                    f"{path} is not a trace that this version reads: format {version!r}, expected {FORMAT!r}"
                )
            for batch in file.iter_batches(batch_size=ROWS_PER_READ):
                yield from _records(batch, path)
    except (OSError, pyarrow.ArrowException) as error:
        raise _cannot_read(path, error) from error


def _records(batch: Any, path: Path) -> Iterable[TraceRecord]:
    """Turn a batch of the wide table into records, in its order."""
    pyarrow = arrow()
    records: list[Any] = list(repeat(None, len(batch)))
    kinds = batch.column(KIND)
    for kind in kinds.unique().to_pylist():
        record_type = RECORD_TYPES.get(kind)
        if record_type is None:
            raise StorageError(f"{path} has records of kind {kind!r}, which this version does not know; update vivum")
        places = pyarrow.compute.indices_nonzero(pyarrow.compute.equal(kinds, kind))
        alike = batch.take(places)
        columns = [alike.column(name).to_pylist() for name in FIELDS[record_type]]
        if "members" in FIELDS[record_type]:
            at = FIELDS[record_type].index("members")
            columns[at] = [tuple(members) for members in columns[at]]
        for place, record in zip(places.to_pylist(), map(record_type, *columns), strict=True):
            records[place] = record
    return records


def _label_of(path: Path) -> str | None:
    match = _FILE.fullmatch(path.name)
    return None if match is None else match["label"]


def _cannot_write(path: Path, error: Exception) -> StorageError:
    return StorageError(
        f"cannot write the trace {path}: {_cause(error)}; make room or choose a directory that can be written"
    )


def _cannot_read(path: Path, error: Exception) -> StorageError:
    return StorageError(f"cannot read the trace {path}: {_cause(error)}; check the path, or remove the damaged file")


def _cause(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
