"""Which groups a check judges: those whose guarantees promise it.

A group has its guarantee by name (`GroupNamed`); one that was named twice is judged by what both promise. What groups
without a name promise stands in the metadata of the trace (`TraceWriter(promises=...)`): all, if it says nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from vivum.guarantees import promises_of


@dataclass(frozen=True)
class Scope:
    """These groups, or all others."""

    groups: frozenset[int] = frozenset()
    are_others: bool = True

    def of(self, rows: DataFrame) -> DataFrame:
        """Return the rows of these groups, by their column `group`."""
        if not self.groups:
            return rows if self.are_others else rows.limit(0)
        named = rows.sparkSession.createDataFrame([(each,) for each in sorted(self.groups)], "group bigint")
        return rows.join(F.broadcast(named), "group", "left_anti" if self.are_others else "left_semi")

    def mask(self, groups: Any) -> Any:
        """Return which of an array of groups are in it."""
        return numpy.isin(groups, list(self.groups), invert=self.are_others)


EVERYTHING = Scope()


def scopes_of(
    checks: Collection[str], named: Mapping[int, Collection[str]], promised: Collection[str] | None
) -> dict[str, Scope]:
    """Return what each check judges; one that judges nothing is left out.

    `named` has the names of each group's guarantees, `promised` what groups without a name promise, None for all.
    """
    promises = {group: set.intersection(*(set(promises_of(each)) for each in names)) for group, names in named.items()}
    found: dict[str, Scope] = {}
    for check in checks:
        judged = frozenset(group for group, mine in promises.items() if check in mine)
        if promised is None or check in promised:
            found[check] = Scope(frozenset(promises) - judged, are_others=True)
        elif judged:
            found[check] = Scope(judged, are_others=False)
    return found
