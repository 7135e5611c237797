"""The tables for the checks of the audit, made from a trace in one sort.

Column names are short because expressions use them often:

| column | meaning |
|---|---|
| `w`, `p` | Writer and position of a record. Each life has one writer; positions give the order of its records |
| `g` | Group |
| `r` | Receiver: a life as one number, node in the upper and incarnation in the lower 32 bits |
| `stay` | Number of earlier joins and leaves of that life in that group: tells its stays apart |
| `s`, `q` | Sender's life, and sequence |
| `v`, `d` | View and digest of a delivery or a send |

`docs/design/checkers.md` defines the guarantees; nothing here knows them.
"""

from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from vivum.core.errors import UsageError
from vivum.pipeline.audit.columns import (
    DELIVERED,
    HALF,
    INSTALLED,
    JOINED,
    JUDGED,
    KEY,
    LEFT,
    SENT,
    pieces_of,
    writer_of,
)
from vivum.pipeline.audit.scope import EVERYTHING, Scope
from vivum.storage.errors import StorageError
from vivum.storage.trace_schema import arrow
from vivum.storage.traces import trace_files

_COLUMNS = (
    "w", "position", "kind", "node", "incarnation", "group", "sender", "sender_incarnation", "sequence", "stop", "view",
    "digest", "members",
)  # fmt: skip

_COMPUTED = ("sends", "installed", "deliveries", "steps", "stay_starts", "kinds", "keys", "operations")

STREAM = ("g", "r", "stay", "s")
"""What one stay saw of one sender's life."""


def life(node: str, incarnation: str) -> Column:
    """Return a life as one number."""
    return F.col(node) * F.lit(HALF) + F.col(incarnation)


def life_words(number: int) -> str:
    """Write a life for a person."""
    return f"{number // HALF}.{number % HALF}"


def life_column(number: str) -> Column:
    """Write a life for a person, in Spark."""
    node = F.shiftright(F.col(number), 32)
    return F.concat_ws(".", node.cast("string"), F.col(number).bitwiseAND(F.lit(HALF - 1)).cast("string"))


class TraceTables:
    """A trace, and tables computed from it once for several checks."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark = spark
        self.files = [str(each) for each in trace_files(path)]
        pyarrow = arrow()
        try:
            metadata = [pyarrow.parquet.read_metadata(each) for each in self.files]
        except (OSError, pyarrow.ArrowException) as error:
            raise StorageError(f"cannot read the trace {path}: {error}; remove the damaged file") from error
        counts = [each.num_rows for each in metadata]
        self.records = sum(counts)
        self.writers = sorted({writer_of(each) for each in self.files})
        self.pieces = pieces_of(self.files, counts)
        every = spark.read.parquet(*self.files)
        name = F.element_at(F.split(F.input_file_name(), "/"), -1)
        # Parsing the writer from the file's name costs as much as a check, so do it only if there are several files.
        writer = (
            F.lit(self.writers[0]) if len(self.writers) == 1 else F.regexp_extract(name, r"^(.*)-[0-9]+\.parquet$", 1)
        )
        self._every = every.withColumn("w", writer)
        self.judged = self._every.filter(F.col("kind").isin(*JUDGED))
        self.scope = EVERYTHING
        self._kept: list[DataFrame] = []
        self._check_lives(metadata)

    def within(self, scope: Scope) -> "TraceTables":
        """Return the same trace with only the groups of a scope."""
        if scope == EVERYTHING:
            return self
        rest = copy(self)
        for name in _COMPUTED:
            rest.__dict__.pop(name, None)
        rest.scope, rest._every, rest.judged = scope, scope.of(self._every), scope.of(self.judged)
        return rest

    def only(self, groups: DataFrame) -> "TraceTables":
        """Return the same trace with only these groups: a table with the column `group`."""
        rest = copy(self)
        for name in _COMPUTED:
            rest.__dict__.pop(name, None)
        # Cached: every check reads them several times, and most often they are few.
        chosen = self.judged.select(*_COLUMNS).join(F.broadcast(groups.select("group")), "group", "left_semi")
        rest.judged = self.keep(chosen)
        return rest

    @cached_property
    def kinds(self) -> set[str]:
        """The kinds of records in the trace."""
        return {row.kind for row in self.judged.select("kind").distinct().collect()}

    def _check_lives(self, metadata: list[Any]) -> None:
        """Refuse lives that do not fit into one number each. Reads only the statistics in the files."""
        limits = {"node": HALF // 2, "incarnation": HALF, "sender": HALF // 2, "sender_incarnation": HALF}
        for file in metadata:
            for group in range(file.num_row_groups):
                row_group = file.row_group(group)
                for place in range(row_group.num_columns):
                    column = row_group.column(place)
                    limit = limits.get(column.path_in_schema)
                    told = column.statistics if limit else None
                    if told is None or not told.has_min_max:
                        continue
                    if not 0 <= told.min <= told.max < limit:
                        raise UsageError(
                            "the trace has node ids or incarnations of 32 bits or more, which the audit does not take"
                        )

    @cached_property
    def sends(self) -> DataFrame:
        """Every send."""
        return self.judged.filter(F.col("kind") == SENT).select(
            "w", F.col("position").alias("p"), F.col("group").alias("g"), life("node", "incarnation").alias("s"),
            F.col("sequence").alias("q"), F.col("digest").alias("d"),
        )  # fmt: skip

    @cached_property
    def keys(self) -> DataFrame:
        """Every key of a message that was delivered."""
        return self._every.filter(F.col("kind") == KEY).select(
            "w", F.col("position").alias("p"), F.col("group").alias("g"), life("node", "incarnation").alias("r"),
            life("sender", "sender_incarnation").alias("s"), F.col("sequence").alias("q"), "key",
        )  # fmt: skip

    @cached_property
    def operations(self) -> DataFrame:
        """Every operation on a key of a store: when it was asked for, and when it was answered."""
        return self._every.filter(F.col("kind").startswith("key_operation_"))

    @cached_property
    def installed(self) -> DataFrame:
        """Every view that was installed."""
        return self.judged.filter(F.col("kind") == INSTALLED).select(
            "w", F.col("position").alias("p"), F.col("group").alias("g"), life("node", "incarnation").alias("r"),
            F.col("view").alias("v"), "members",
        )  # fmt: skip

    @cached_property
    def deliveries(self) -> DataFrame:
        """Every delivery with its stay, the view that was installed last, and the delivery before it in the stay.

        Also has `b`, the position of the join or leave that began the stay, and `left`, whether it was a leave.
        """
        if not self.kinds & {JOINED, LEFT, INSTALLED}:
            return self.keep(self._plain_deliveries())
        kind = F.col("kind")
        boundary, delivered = kind.isin(JOINED, LEFT), kind == DELIVERED
        rows = self.judged.filter(kind.isin(DELIVERED, JOINED, LEFT, INSTALLED)).select(
            "w", F.col("position").alias("p"), F.col("group").alias("g"), life("node", "incarnation").alias("r"),
            life("sender", "sender_incarnation").alias("s"), F.col("sequence").alias("q"), F.col("view").alias("v"),
            F.col("digest").alias("d"), delivered.alias("is_delivery"),
            F.when(boundary, 1).otherwise(0).alias("boundary"),
            F.when(boundary, F.col("position")).alias("boundary_p"),
            F.when(kind == LEFT, F.col("position")).alias("left_p"),
            F.when(kind == INSTALLED, F.col("position")).alias("view_p"),
            F.when(kind == INSTALLED, F.col("view")).alias("view_v"),
        )  # fmt: skip
        order = Window.partitionBy("g", "r").orderBy("p")
        until = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        before = order.rowsBetween(Window.unboundedPreceding, -1)
        numbered = rows.select(
            "w", "p", "g", "r", "s", "q", "v", "d", "is_delivery",
            F.sum("boundary").over(until).alias("stay"),
            F.max("boundary_p").over(until).alias("b"),
            F.max("left_p").over(until).alias("left_p"),
            F.max("view_p").over(until).alias("view_p"),
            F.last("view_v", ignorenulls=True).over(until).alias("view_v"),
            F.last(F.when(F.col("is_delivery"), F.col("p")), ignorenulls=True).over(before).alias("before_p"),
            F.last("s", ignorenulls=True).over(before).alias("before_s"),
            F.last(F.when(F.col("is_delivery"), F.col("q")), ignorenulls=True).over(before).alias("before_q"),
        ).filter("is_delivery")  # fmt: skip
        start = F.coalesce(F.col("b"), F.lit(-1))
        same_stay = F.col("before_p") > start
        has_view = F.col("view_p") > start
        return self.keep(
            numbered.select(
                "w", "p", "g", "r", "s", "q", "v", "d", "stay", "b",
                (F.col("left_p") == F.col("b")).alias("left"),
                F.when(has_view, F.col("view_v")).alias("in_view"),
                F.when(has_view, F.col("view_p")).alias("in_view_p"),
                F.when(same_stay, F.col("before_p")).alias("before_p"),
                F.when(same_stay, F.col("before_s")).alias("before_s"),
                F.when(same_stay, F.col("before_q")).alias("before_q"),
            )
        )  # fmt: skip

    def _plain_deliveries(self) -> DataFrame:
        """Make the same table for a trace without joins, leaves and views: one stay for each life, in no view."""
        order = Window.partitionBy("g", "r").orderBy("p")
        nothing, never = F.lit(None).cast("long"), F.lit(False)
        return self.judged.filter(F.col("kind") == DELIVERED).select(
            "w", F.col("position").alias("p"), F.col("group").alias("g"), life("node", "incarnation").alias("r"),
            life("sender", "sender_incarnation").alias("s"), F.col("sequence").alias("q"), F.col("view").alias("v"),
            F.col("digest").alias("d"), F.lit(0).cast("long").alias("stay"), nothing.alias("b"), never.alias("left"),
            nothing.alias("in_view"), nothing.alias("in_view_p"),
        ).select(
            "*", F.lag("p").over(order).alias("before_p"), F.lag("s").over(order).alias("before_s"),
            F.lag("q").over(order).alias("before_q"),
        )  # fmt: skip

    @cached_property
    def steps(self) -> DataFrame:
        """Deliveries that are not the next of their stream: late, or after a hole. `top` is the highest before."""
        order = Window.partitionBy(*STREAM).orderBy("p").rowsBetween(Window.unboundedPreceding, -1)
        numbered = self.deliveries.select("w", "p", "q", *STREAM).withColumn("top", F.max("q").over(order))
        return self.keep(numbered.filter("q <> top + 1"))

    @cached_property
    def stay_starts(self) -> DataFrame:
        """Every join and leave: where stays begin, and which of the two it is."""
        order = Window.partitionBy("g", "r").orderBy("p")
        return (
            self.judged.filter(F.col("kind").isin(JOINED, LEFT))
            .select(
                "w", F.col("position").alias("p"), F.col("group").alias("g"), life("node", "incarnation").alias("r"),
                (F.col("kind") == LEFT).alias("left"),
            )
            .withColumn("stay", F.row_number().over(order).cast("long"))
        )  # fmt: skip

    def placed(self, rows: DataFrame) -> DataFrame:
        """Give rows with `g`, `r` and `p` their `stay`, and whether the life had left. For tables of few rows."""
        starts = self.stay_starts.select("g", "r", F.col("p").alias("start_p"), "stay", "left")
        keys = rows.columns
        joined = rows.alias("x").join(
            starts.alias("y"),
            (F.col("x.g") == F.col("y.g")) & (F.col("x.r") == F.col("y.r")) & (F.col("y.start_p") < F.col("x.p")),
            "left",
        )
        return joined.groupBy(*[F.col(f"x.{each}") for each in keys]).agg(
            F.coalesce(F.max("y.stay"), F.lit(0)).alias("stay"),
            F.coalesce(F.max_by("y.left", "y.start_p"), F.lit(False)).alias("left"),
        )

    def keep(self, frame: DataFrame) -> DataFrame:
        """Compute a table once and keep it. What does not fit into memory goes to disk."""
        self._kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return self._kept[-1]

    def forget(self) -> None:
        """Release the kept tables."""
        for each in self._kept:
            each.unpersist()


def witness(writer: str | Column, position: str | Column) -> Column:
    """Return the reference to a record as a witness, to be looked up when the violation is shown."""
    w = F.col(writer) if isinstance(writer, str) else writer
    p = F.col(position) if isinstance(position, str) else position
    return F.struct(w.alias("w"), p.alias("p"))


def violations(rows: DataFrame, check: str, what: Column, *witnesses: Column) -> DataFrame:
    """Make the table that every check returns. `at`, the position of the last witness, orders violations."""
    return rows.select(
        F.lit(check).alias("check"),
        what.alias("what"),
        F.filter(F.array(*witnesses), lambda each: each["p"].isNotNull()).alias("witnesses"),
        witnesses[-1]["p"].alias("at"),
    )


SCHEMA = "check string, what string, witnesses array<struct<w string, p bigint>>, at bigint"
"""The table that every check returns."""


def message_words() -> Column:
    """Name the message in `q`, `s` and `g` for a person."""
    return F.concat(
        F.lit("message "), F.col("q").cast("string"), F.lit(" of "), life_column("s"), F.lit(" in group "),
        F.col("g").cast("string"),
    )  # fmt: skip


def rows_of(table: Any) -> list[dict[str, Any]]:
    """Return the rows of a small Arrow table."""
    found: list[dict[str, Any]] = table.to_pylist()
    return found
