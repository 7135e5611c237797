"""The audit finds what the checkers find, in the same histories."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from planted.history import History
from planted.judged import check_history
from planted.planted import CORRECT, VIOLATIONS, Planted
from unit.kv.test_register import BAD, GOOD
from vivum.checkers.checker import Violation
from vivum.checkers.registry import CheckerSet, make_checkers
from vivum.cli.app import main
from vivum.core.errors import UsageError
from vivum.guarantees import GUARANTEES, RELIABLE, Guarantee, all_promises, promises_of
from vivum.observe.trace import KeyOperationAnswered, KeyOperationIssued, TraceRecord
from vivum.pipeline.audit import CHECKS, audit
from vivum.pipeline.audit.plain import DOUBTS, ORDER
from vivum.pipeline.audit.screen import screened
from vivum.pipeline.audit.tables import TraceTables
from vivum.storage.errors import StorageError
from vivum.storage.traces import TraceWriter, read_trace

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


def test_the_screen_lets_plain_histories_pass_and_nothing_that_breaks_a_guarantee(spark, tmp_path):
    names = list(PLANTED)
    every = [moved(record, number) for number, each in enumerate(PLANTED.values(), 1) for record in each.records]
    doubts = dict.fromkeys(names, 0)
    for row in screened(spark, TraceTables(spark, write(tmp_path / "trace", every)).pieces).collect():
        doubts[names[row.group // APART - 1]] |= row.doubts
    for name, planted in PLANTED.items():
        for check in planted.caught_by & DOUBTS.keys():
            assert doubts[name] & DOUBTS[check], (name, check)
    assert doubts["everything_in_order"] == doubts["late_joiner"] == 0
    # Who crashed had delivered one more than the others, so they do not ride along one sequence.
    assert doubts["survivors_agree"] == ORDER


def test_a_simulated_run_is_judged_alike_and_only_for_what_it_promised(spark, tmp_path):
    assert main(["sim", "run", "split", "--trace", str(tmp_path / "trace"), "--json"]) == 0
    assert audit(tmp_path / "trace", spark).counts == {"no_duplicate": 0, "no_creation": 0, "fifo": 0}
    names = ["no_creation", "fifo", "total_order", "virtual_synchrony"]
    checkers = CheckerSet(make_checkers(names))
    for record in read_trace(tmp_path / "trace"):
        checkers(record)
    checkers.finish()
    assert checkers.violation_count > 0
    verdict = audit(tmp_path / "trace", spark, checks=names, out=tmp_path / "violations")
    assert verdict.counts == checkers.counts()
    assert spark.read.parquet(str(tmp_path / "violations")).count() == verdict.violation_count


def troubled(history: History, group: int) -> None:
    """Break the order of one sender, the agreement of two receivers, and a key in a group."""
    for life in ("1.1", "2.1"):
        history.join(life, group)
    for sender in ("1.1", "2.1"):
        for sequence in (1, 2, 3, 4):
            history.send(sender, sequence, group=group)
    for receiver, senders in (("1.1", ("1.1", "2.1")), ("2.1", ("2.1", "1.1"))):
        for sender in senders:
            for sequence in (1, 4, 3):
                history.deliver(receiver, sender, sequence, group=group)
            history.key(receiver, sender, 3, 77, group=group)


def test_each_group_is_judged_by_what_its_guarantee_promises(spark, tmp_path, monkeypatch):
    """A new entry with one more promise is checked for its groups and for no others, as by the checkers."""
    ordered = Guarantee("ordered", "qsm", (), (*RELIABLE.promises, "total_order", "causal"), (), "", "")
    monkeypatch.setitem(GUARANTEES, "ordered", ordered)
    history = History()
    for group, name in enumerate(("best_effort", "reliable", "keyed", "ordered"), 1):
        history.named("1.1", group, name)
        history.named("2.1", group, name)
        troubled(history, group)
    verdict = audit(write(tmp_path / "named", history.records, promises=()), spark)
    found = {(each.checker, each.witnesses[0].group) for each in verdict.violations}
    expected = check_history(history.records, all_promises(), promises_of=promises_of)
    assert found == {(each.checker, each.witnesses[0].group) for each in expected}
    assert found == {
        ("sender_order", 1), ("fifo", 2), ("fifo", 3), ("keys_once", 3), ("fifo", 4), ("total_order", 4), ("causal", 4),
    }  # fmt: skip
    assert set(verdict.counts) == set(all_promises()) & set(CHECKS)

    # A group without a name promises what the trace says of such groups.
    troubled(history, 5)
    verdict = audit(write(tmp_path / "mixed", history.records, promises=["keys_once", "total_order"]), spark)
    mixed = {(each.checker, each.witnesses[0].group) for each in verdict.violations}
    assert mixed == found | {("keys_once", 5), ("total_order", 5)}
    # Checks that are named judge all groups.
    verdict = audit(tmp_path / "mixed", spark, checks=["keys_once"])
    assert {each.witnesses[0].group for each in verdict.violations} == {1, 2, 3, 4, 5}


def test_what_is_no_trace_is_told_in_one_sentence(spark, tmp_path):
    with pytest.raises(StorageError, match=r"cannot read the trace .*: No such file"):
        audit(tmp_path / "nowhere", spark)
    with pytest.raises(StorageError, match="holds no trace"):
        audit(tmp_path, spark)
    (tmp_path / "sim-000000.parquet").write_bytes(b"no Parquet")
    with pytest.raises(StorageError, match="cannot read the trace"):
        audit(tmp_path, spark)
    with pytest.raises(UsageError, match="there is no check 'order'; checks are no_duplicate"):
        audit(tmp_path, spark, checks=["order"])


def test_the_audit_judges_the_keys_of_a_store_as_the_checker_does(spark, tmp_path: Path) -> None:
    histories = [*GOOD.values(), *BAD.values()]
    records: list[tuple[int, TraceRecord]] = []
    for group, history in enumerate(histories, 1):
        for number, each in enumerate(history):
            what = (each.kind, 7, each.value, each.expected)
            issued = KeyOperationIssued(each.called, 1, 1, group, 1, number, *what)
            records.append((each.called, issued))
            if each.answered is not None:
                outcome = "done" if each.succeeded else "failed"
                answer = KeyOperationAnswered(each.answered, 1, 1, group, 1, number, outcome, each.seen, 0)
                records.append((each.answered, answer))
    every = [record for _, record in sorted(records, key=lambda each: each[0])]
    verdict = audit(write(tmp_path / "trace", every), spark, checks=["key_linearizable"])
    found = {each.witnesses[-1].group: each.what for each in verdict.violations}
    assert sorted(found) == list(range(len(GOOD) + 1, len(histories) + 1))
    (mine,) = [each for each in verdict.violations if "which nobody wrote" in each.what]
    assert mine.what.startswith("key 7 of group ")
    assert isinstance(mine.witnesses[-1], KeyOperationIssued)
