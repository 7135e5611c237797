"""The audit finds what the checkers find, in the same histories."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from planted.planted import CORRECT, VIOLATIONS, Planted
from vivum.checkers.checker import Violation
from vivum.checkers.registry import check_history
from vivum.observe.trace import TraceRecord
from vivum.pipeline.audit import CHECKS, audit
from vivum.storage.traces import TraceWriter

pytestmark = pytest.mark.slow

PLANTED = {make.__name__: make() for make in VIOLATIONS + CORRECT}
APART = 1000
"""Between the node ids, and the groups, of one history and the next, so that all fit into one trace."""


def write(directory: Path, records: list[TraceRecord], label: str = "sim", **more: Any) -> Path:
    with TraceWriter(directory, label, **more) as trace:
        for record in records:
            trace(record)
    return directory


def moved(record: TraceRecord, number: int) -> TraceRecord:
    """The same record with nodes and groups of its own. Times stay: they are compared nowhere."""
    by = APART * number
    changes: dict[str, Any] = {
        name: getattr(record, name) + by for name in ("node", "group", "sender") if getattr(record, name, 0)
    }
    if hasattr(record, "members"):
        lives = [each.split(".") for each in record.members]
        changes["members"] = tuple(f"{int(node) + by}.{incarnation}" for node, incarnation in lives)
    return msgspec.structs.replace(record, **changes)


@pytest.fixture(scope="module")
def judged(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Violation]]:
    """What the audit found in one trace of all histories, by history: Spark starts its jobs once, not 33 times."""
    directory = tmp_path_factory.mktemp("audit") / "trace"
    every = [moved(record, number) for number, each in enumerate(PLANTED.values(), 1) for record in each.records]
    verdict = audit(write(directory, every), spark)
    assert verdict.records == len(every)
    assert verdict.violation_count == len(verdict.violations)
    names = list(PLANTED)
    found: dict[str, list[Violation]] = {name: [] for name in names}
    for each in verdict.violations:
        number = each.witnesses[0].node // APART
        back = tuple(moved(witness, -number) for witness in each.witnesses)
        found[names[number - 1]].append(Violation(each.checker, each.what, back))
    return found


@pytest.mark.parametrize("name", PLANTED)
def test_the_audit_catches_what_the_checkers_catch_with_the_same_witnesses(judged, name):
    planted: Planted = PLANTED[name]
    assert {each.checker for each in judged[name]} == planted.caught_by & CHECKS.keys()
    for check in planted.caught_by & CHECKS.keys():
        mine = [each.witnesses for each in judged[name] if each.checker == check]
        theirs = [each.witnesses for each in check_history(planted.records, [check])]
        assert mine == theirs


def test_every_check_has_a_planted_violation() -> None:
    assert {each.checker for each in PLANTED.values()} >= CHECKS.keys()
