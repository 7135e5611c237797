"""The audit: which checks, run over a trace, and what they found.

    verdict = audit("out/trace")
    print(verdict.violation_count, verdict.counts)

Each group is judged by what its guarantee promises (`scope.py`), unless checks are named: these judge all groups.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from vivum.checkers.checker import VIOLATIONS_KEPT_MAX, Violation
from vivum.core.errors import UsageError
from vivum.observe.trace import TraceRecord
from vivum.pipeline.audit.causal import causal
from vivum.pipeline.audit.creation import no_creation
from vivum.pipeline.audit.keys import keys_once
from vivum.pipeline.audit.order import total_order
from vivum.pipeline.audit.plain import DOUBTS
from vivum.pipeline.audit.scope import EVERYTHING, Scope, scopes_of
from vivum.pipeline.audit.screen import screened
from vivum.pipeline.audit.stores import key_linearizable
from vivum.pipeline.audit.streams import fifo, no_duplicate, sender_order
from vivum.pipeline.audit.tables import SCHEMA, TraceTables
from vivum.pipeline.audit.views import view_agreement, views_first, virtual_synchrony
from vivum.storage.traces import read_guarantees, read_promises, records_at

CHECKS: dict[str, Callable[[TraceTables], DataFrame]] = {
    "no_duplicate": no_duplicate,
    "no_creation": no_creation,
    "sender_order": sender_order,
    "fifo": fifo,
    "keys_once": keys_once,
    "causal": causal,
    "total_order": total_order,
    "view_agreement": view_agreement,
    "views_first": views_first,
    "virtual_synchrony": virtual_synchrony,
}
"""Every check by the name of its promise, as the checkers have them."""


STORE_CHECKS: dict[str, Callable[[TraceTables], DataFrame]] = {"key_linearizable": key_linearizable}
"""Checks of key-value stores, run when they are named: their traces have no topics, and other traces no keys."""

_EVERY_CHECK = CHECKS | STORE_CHECKS


@dataclass(frozen=True)
class AuditVerdict:
    """What an audit found. `violations` has the first of each check in full; `counts` has all."""

    records: int
    counts: dict[str, int]
    violations: list[Violation]

    @property
    def violation_count(self) -> int:
        """How many violations there are in all."""
        return sum(self.counts.values())


def chosen_checks(path: Path, names: Iterable[str] | None) -> dict[str, Scope]:
    """Return the checks to run and what they judge: those named judge all, else each what the trace promises."""
    if names is None:
        return scopes_of(list(CHECKS), read_guarantees(path), read_promises(path))
    wanted = list(dict.fromkeys(names))
    for each in wanted:
        if each not in _EVERY_CHECK:
            raise UsageError(f"there is no check {each!r}; checks are {', '.join(_EVERY_CHECK)}")
    return dict.fromkeys(wanted, EVERYTHING)


def audit(
    path: Path,
    spark: SparkSession,
    *,
    checks: Iterable[str] | None = None,
    out: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> AuditVerdict:
    """Check a trace. With `out`, all violations go there as a Parquet table."""
    scopes = chosen_checks(path, checks)
    tables = TraceTables(spark, path)
    try:
        counts: dict[str, int] = {}
        kept: list[Any] = []
        every: list[DataFrame] = []
        with ThreadPoolExecutor(1) as aside:
            # The walk of `causal` keeps one core busy; the other checks go on beside it.
            walking = aside.submit(_look, tables.within(scopes["causal"]), "causal") if "causal" in scopes else None
            if progress is not None:
                progress("the screen")
            of_checks = _doubtful(tables, {name: scope for name, scope in scopes.items() if name in DOUBTS})
            for name in ("keys_once", *STORE_CHECKS):
                if name in scopes:
                    of_checks[name] = tables.within(scopes[name])
            for name in scopes:
                if progress is not None:
                    progress(name)
                found, count, first = (
                    walking.result() if name == "causal" and walking else _look(of_checks.get(name), name)
                )
                if found is not None:
                    every.append(found)
                counts[name] = count
                kept += first
        if out is not None:
            _write(every or [spark.createDataFrame([], SCHEMA)], out)
        return AuditVerdict(tables.records, counts, _with_witnesses(path, kept))
    finally:
        tables.forget()


def _doubtful(tables: TraceTables, scopes: dict[str, Scope]) -> dict[str, TraceTables]:
    """Return for each check that cannot be left out the trace of those groups that are not beyond doubt."""
    if not scopes:
        return {}
    doubtful = tables.keep(screened(tables.spark, tables.pieces))
    found: dict[str, TraceTables] = {}
    for scope in dict.fromkeys(scopes.values()):
        here = scope.of(doubtful)
        doubts = reduce(or_, (row.doubts for row in here.select("doubts").distinct().collect()), 0)
        wanted = [name for name, each in scopes.items() if each == scope and DOUBTS[name] & doubts]
        bits = reduce(or_, (DOUBTS[name] for name in wanted), 0)
        rest = tables.only(here.filter(F.col("doubts").bitwiseAND(F.lit(bits)) != 0))
        found |= dict.fromkeys(wanted, rest)
    return found


def _look(tables: TraceTables | None, name: str) -> tuple[DataFrame | None, int, list[Any]]:
    """Run one check: its table, how many violations, and the first of them. What is beyond doubt needs none."""
    if tables is None:
        return None, 0, []
    found = tables.keep(_EVERY_CHECK[name](tables))
    first = found.orderBy("at").limit(VIOLATIONS_KEPT_MAX).collect()
    count = len(first) if len(first) < VIOLATIONS_KEPT_MAX else found.count()
    return found, count, first


def _write(every: list[DataFrame], out: Path) -> None:
    whole = reduce(DataFrame.unionByName, every)
    whole.select("check", "what", F.col("witnesses").alias("witness_records")).coalesce(1).write.mode(
        "overwrite"
    ).parquet(str(out))


def _with_witnesses(path: Path, rows: list[Any]) -> list[Violation]:
    """Look the witnesses up in the trace."""
    wanted = {(each.w, each.p) for row in rows for each in row.witnesses}
    known: dict[tuple[str, int], TraceRecord] = records_at(path, wanted)
    return [
        Violation(
            row.check, row.what, tuple(known[each.w, each.p] for each in row.witnesses if (each.w, each.p) in known)
        )
        for row in rows
    ]
