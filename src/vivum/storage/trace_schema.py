"""The wide table of a trace: one column for each field name of any record, made from the types of the
records.

| column | type | meaning |
|---|---|---|
| `position` | int64 | Place of the record in its writer's order, from 0; times may be equal, positions not |
| `kind` | string | Which record; the other columns that it has are its fields, the rest are null |
| every field name | int64, string or list of strings | As in `vivum.observe.trace` |

All plain types that Spark reads: no unsigned integers, no timestamps (Spark's have microseconds, ours
nanoseconds). This is the only place that knows the mapping.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from vivum.core.extras import missing_library
from vivum.observe.trace import RECORD_TYPES, Record

POSITION = "position"
KIND = "kind"

FORMAT_KEY = b"vivum.trace"
FORMAT = b"1"
"""Version of the table, in each file's metadata. Raised when a column's meaning changes, not for new ones."""

PROMISES_KEY = b"vivum.promises"
"""In a file's metadata: what groups without a name promise, by the names of checkers, separated by commas."""

FIELDS: dict[type[Record], tuple[str, ...]] = {each: each.__struct_fields__ for each in RECORD_TYPES.values()}
"""The columns of each type of record, in the order of its arguments."""


def arrow() -> Any:
    """Import pyarrow, or say how to get it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise missing_library(error, "traces and logs need") or error from error
    return pyarrow


def column_types() -> dict[str, Any]:
    """List the type of each column, in order: position, kind, then field names as the records bring them."""
    columns: dict[str, Any] = {POSITION: int, KIND: str}
    for record_type in RECORD_TYPES.values():
        for each in msgspec.structs.fields(record_type):
            known = columns.setdefault(each.name, each.type)
            if known != each.type:
                raise TypeError(f"{record_type.__name__}.{each.name} is {each.type}, but {known} in other records")
    return columns


def trace_schema(promises: Iterable[str] | None = None) -> Any:
    """Make the Arrow schema of the table, with what groups without a name promise, if that is known."""
    pyarrow = arrow()
    types = {int: pyarrow.int64(), str: pyarrow.string(), tuple[str, ...]: pyarrow.list_(pyarrow.string())}
    always = {POSITION, KIND, *Record.__struct_fields__}
    return pyarrow.schema(
        [pyarrow.field(name, types[each], nullable=name not in always) for name, each in column_types().items()],
        metadata={FORMAT_KEY: FORMAT} | ({} if promises is None else {PROMISES_KEY: ",".join(promises).encode()}),
    )
