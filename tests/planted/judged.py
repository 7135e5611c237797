"""Judges a whole history at once."""

from collections.abc import Iterable

from vivum.checkers.checker import Violation
from vivum.checkers.clocks import in_causal_order
from vivum.checkers.registry import CheckerSet, PromisesOf, make_checkers
from vivum.observe.trace import TraceRecord


def check_history(
    records: Iterable[TraceRecord],
    names: Iterable[str],
    *,
    promises_of: PromisesOf | None = None,
    several_clocks: bool = False,
) -> list[Violation]:
    """Run checkers over a whole history, with `promises_of` each over the groups that promise it.

    Pass `several_clocks=True` for traces of real nodes, where a time is only that node's opinion.
    """
    checkers = CheckerSet(make_checkers(names), promises_of)
    for record in in_causal_order(records) if several_clocks else records:
        checkers(record)
    return checkers.finish()
