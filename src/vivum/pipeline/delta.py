"""Delta tables: executors write Parquet files, the driver commits their list, and a version is read by its list.

    table = DeltaFolder("out/tables/silver/MarketTrade")
    table.append(rows, progress={"bronze": 7})
    table.read(spark)

The log of a table is kept by delta-rs (the package `deltalake`), so any reader of Delta sees the tables: pandas,
Polars, DuckDB, Spark with the jars of Delta. Ours need no jars. A commit is one file, there or not: a killed job leaves
at most Parquet files that no version lists, which `vacuum` removes, and readers see the version before.

*Progress* is what a job noted with the rows that came of it (an application transaction of Delta: a name and a number).
It is in the same commit, so neither can be there without the other. Invariant: one job writes a table at a time; of two
that try, the second one's commit fails.
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.compute
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql.pandas.types import to_arrow_schema

from vivum.core.errors import UsageError
from vivum.core.extras import missing_library
from vivum.storage.errors import StorageError

ROWS_PER_GROUP = 131_072
"""Rows that a task holds before it writes them as one row group. More packs better, and takes more memory."""

KEEP_HOURS = 168
"""How long files stay that the newest version does not need. Less frees space, and breaks readers that are slower."""

_WRITTEN = "path string, size bigint, rows bigint, flagged bigint, stats string, at map<string,string>"


class AddedRows(NamedTuple):
    """What a commit added: rows, and how many of them have the flag that was asked for."""

    rows: int
    flagged: int


class DeltaFolder:
    """One table. Looks at its log when it is asked, and keeps nothing open."""

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    def exists(self) -> bool:
        """Whether a version of it was ever committed."""
        return (Path(self.path) / "_delta_log").is_dir() and _delta().DeltaTable.is_deltatable(self.path)

    def version(self) -> int:
        """Return the number of the newest version; -1 if there is none."""
        return int(self._open().version()) if self.exists else -1

    def progress(self, name: str, default: int = -1) -> int:
        """Return what a job noted last under a name."""
        found = self._open().transaction_version(name) if self.exists else None
        return default if found is None else int(found)

    def schema(self) -> types.StructType:
        """Return its columns."""
        return types.StructType.fromJson(json.loads(self._open().schema().to_json()))

    def read(self, spark: SparkSession, version: int | None = None) -> DataFrame:
        """Read a version, the newest if not told otherwise."""
        table = self._open(version)
        found = types.StructType.fromJson(json.loads(table.schema().to_json()))
        return self._files(spark, table.file_uris(), found)

    def added(self, spark: SparkSession, after: int, upto: int) -> DataFrame:
        """Read the rows that versions brought behind one and up to another. Compaction brings none."""
        files: list[str] = []
        for number in range(after + 1, upto + 1):
            name = Path(self.path) / "_delta_log" / f"{number:020}.json"
            try:
                actions = [json.loads(line) for line in name.read_text().splitlines()]
            except OSError as error:
                raise StorageError(
                    f"cannot read version {number} of {self.path}: {error.strerror}; the tables that are made of it "
                    f"must be made anew: remove them"
                ) from error
            brought = [each["add"] for each in actions if "add" in each]
            files += [str(Path(self.path) / each["path"]) for each in brought if each["dataChange"]]
        return self._files(spark, files, self.schema())

    def _files(self, spark: SparkSession, files: list[str], schema: types.StructType) -> DataFrame:
        if not files:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).option("basePath", self.path).parquet(*files)

    def append(
        self, rows: DataFrame, *, partition_by: Sequence[str] = (), progress: Mapping[str, int] | None = None,
        flag: str | None = None,
    ) -> AddedRows:  # fmt: skip
        """Add rows and note progress, in one commit. Columns that are new are added to the table."""
        base = self.version()
        files = self._write(rows, partition_by, flag)
        if base >= 0 and self._widen(rows.schema):
            base += 1
        self._commit(rows.schema, files, "append", partition_by, progress, base)
        return _sum(files)

    def replace(
        self, rows: DataFrame, *, partition_by: Sequence[str] = (), only: tuple[str, Sequence[str]] | None = None,
        progress: Mapping[str, int] | None = None,
    ) -> AddedRows:  # fmt: skip
        """Put rows in the place of all that are there, or of those partitions `only` names, in one commit."""
        base = self.version()
        files = self._write(rows, partition_by, None)
        self._commit(rows.schema, files, "overwrite", partition_by, progress, base, only)
        return _sum(files)

    def optimize(self, keep_hours: int) -> dict[str, int]:
        """Join small files, and remove files that no version of the last hours lists."""
        table = self._open()
        told = table.optimize.compact()
        removed = self._open().vacuum(keep_hours, dry_run=False, enforce_retention_duration=False)
        return {"joined": told["numFilesRemoved"], "into": told["numFilesAdded"], "removed": len(removed)}

    def _open(self, version: int | None = None) -> Any:
        if not self.exists:
            raise UsageError(f"{self.path} is no table; run the job that makes it first")
        return _delta().DeltaTable(self.path, version=version)

    def _write(self, rows: DataFrame, partition_by: Sequence[str], flag: str | None) -> list[Any]:
        """Write rows as Parquet files, each task its own; return what is to be known of each."""
        schema = to_arrow_schema(rows.schema, timezone="UTC")
        writer = _FileWriter(self.path, schema, tuple(partition_by), flag)
        return rows.mapInArrow(writer, _WRITTEN).collect()

    def _widen(self, wanted: types.StructType) -> bool:
        """Add columns that the table does not have, also inside of structs; return whether that made a version."""
        if _has_all(self.schema(), wanted):
            return False
        empty = to_arrow_schema(wanted, timezone="UTC").empty_table()
        try:
            _delta().write_deltalake(self.path, empty, mode="append", schema_mode="merge")
        except _errors() as error:
            raise StorageError(f"the rows for {self.path} do not fit the table: {error}") from error
        return True

    def _commit(
        self, schema: types.StructType, files: list[Any], mode: str, partition_by: Sequence[str],
        progress: Mapping[str, int] | None, base: int, only: tuple[str, Sequence[str]] | None = None,
    ) -> None:  # fmt: skip
        deltalake = _delta()
        from deltalake.transaction import AddAction, create_table_with_add_actions

        now_ms = time.time_ns() // 1_000_000
        actions = [AddAction(each.path, each.size, dict(each.at), now_ms, True, each.stats) for each in files]
        transactions = [deltalake.Transaction(name, number) for name, number in (progress or {}).items()]
        properties = deltalake.CommitProperties(app_transactions=transactions, max_commit_retries=0)
        described = deltalake.Schema.from_arrow(to_arrow_schema(schema, timezone="UTC"))
        try:
            if base < 0:
                Path(self.path).mkdir(parents=True, exist_ok=True)
                create_table_with_add_actions(
                    self.path, described, actions, partition_by=list(partition_by), commit_properties=properties
                )
                return
            filters = None if only is None else [(only[0], "in", list(only[1]))]
            table = deltalake.DeltaTable(self.path, version=base)
            kept = table.schema() if mode == "append" else described
            table.create_write_transaction(
                actions, mode, kept, list(partition_by), filters, commit_properties=properties
            )
        except _errors() as error:
            raise StorageError(
                f"cannot commit to {self.path}: {error}; another job may have written it meanwhile, run this one again"
            ) from error


class _FileWriter:
    """Writes the rows of a task, a file for each partition, and tells the driver of each. Travels to workers."""

    def __init__(self, path: str, schema: Any, partition_by: tuple[str, ...], flag: str | None) -> None:
        self._path = path
        self._schema = schema
        self._partition_by = partition_by
        self._flag = flag

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        held: dict[tuple[str, ...], list[Any]] = {}
        files: dict[tuple[str, ...], _OpenFile] = {}
        counts: dict[tuple[str, ...], int] = {}
        for batch in batches:
            for at, rows in self._parted(batch.cast(self._schema)):
                held.setdefault(at, []).append(rows)
                counts[at] = counts.get(at, 0) + len(rows)
                if counts[at] >= ROWS_PER_GROUP:
                    self._flush(files, at, held.pop(at))
                    counts[at] = 0
        for at, waiting in held.items():
            self._flush(files, at, waiting)
        found = [each.close(dict(zip(self._partition_by, at, strict=True))) for at, each in files.items()]
        yield pyarrow.RecordBatch.from_pylist(
            found,
            pyarrow.schema(
                [
                    ("path", pyarrow.string()), ("size", pyarrow.int64()), ("rows", pyarrow.int64()),
                    ("flagged", pyarrow.int64()), ("stats", pyarrow.string()),
                    ("at", pyarrow.map_(pyarrow.string(), pyarrow.string())),
                ]
            ),
        )  # fmt: skip

    def _parted(self, batch: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Split a batch by the columns of partitions, which are in the names of folders and not in the files."""
        parts: list[tuple[tuple[str, ...], Any]] = [((), batch)] if len(batch) else []
        for name in self._partition_by:
            parts = [
                ((*at, str(value)), rows.filter(pyarrow.compute.equal(rows.column(name), value)))
                for at, rows in parts
                for value in rows.column(name).unique().to_pylist()
            ]
        for at, rows in parts:
            yield at, rows.drop_columns(list(self._partition_by)) if self._partition_by else rows

    def _flush(self, files: "dict[tuple[str, ...], _OpenFile]", at: tuple[str, ...], rows: list[Any]) -> None:
        if at not in files:
            inside = "".join(f"{name}={value}/" for name, value in zip(self._partition_by, at, strict=True))
            files[at] = _OpenFile(self._path, f"{inside}{uuid.uuid4()}.parquet", rows[0].schema, self._flag)
        files[at].add(pyarrow.Table.from_batches(rows))


class _OpenFile:
    """One Parquet file while it is being written."""

    def __init__(self, table: str, name: str, schema: Any, flag: str | None) -> None:
        self._name = name
        self._place = Path(table) / name
        self._flag = flag
        self._rows = self._flagged = 0
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pyarrow.parquet.ParquetWriter(self._place, schema)

    def add(self, rows: Any) -> None:
        """Write rows as a row group."""
        self._rows += len(rows)
        if self._flag is not None:
            self._flagged += pyarrow.compute.sum(rows.column(self._flag)).as_py() or 0
        self._writer.write_table(rows)

    def close(self, at: dict[str, str]) -> dict[str, Any]:
        """End the file; return what the driver needs to know of it."""
        self._writer.close()
        return {
            "path": self._name, "size": self._place.stat().st_size, "rows": self._rows, "flagged": self._flagged,
            "stats": json.dumps({"numRecords": self._rows}), "at": list(at.items()),
        }  # fmt: skip


def _has_all(known: types.DataType, wanted: types.DataType) -> bool:
    if isinstance(known, types.StructType) and isinstance(wanted, types.StructType):
        there = {each.name: each.dataType for each in known}
        return all(each.name in there and _has_all(there[each.name], each.dataType) for each in wanted)
    return True


def _sum(files: list[Any]) -> AddedRows:
    return AddedRows(sum(each.rows for each in files), sum(each.flagged for each in files))


def _delta() -> Any:
    try:
        import deltalake
    except ImportError as error:
        raise missing_library(error, "tables need") or error from error
    return deltalake


def _errors() -> tuple[type[Exception], ...]:
    from deltalake.exceptions import DeltaError

    return DeltaError, OSError
