"""The screen: tells in one pass which groups are beyond doubt, so that the exact checks look only at the others.

Records go to tasks by group, sends first, then everything else in each life's order. A group passes for the basic
checks (no duplicate, no creation, FIFO, virtual synchrony) if everything in it is as plain as can be: each stay's
streams count on by one, every delivery has its send with its digest, in the view that was installed last, and whoever
went from one view to the next had the same ranges. It passes for total order if all stays ride along one and the same
sequence.

Sound, not complete: what breaks a guarantee never passes; what merely looks unusual (a reported loss, a stay that began
beside the sequence) is left to the exact checks. Works on whole columns: nothing is done for each delivery in Python.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy
import pyarrow
from pyspark.sql import functions as F

from vivum.pipeline.audit.tables import DELIVERED, INSTALLED, JOINED, LEFT, LOST, SENT, TraceTables, life

_KINDS = {SENT: 0, DELIVERED: 1, JOINED: 2, LEFT: 3, INSTALLED: 4, LOST: 5}
_COLUMNS = ("k", "w", "p", "g", "r", "s", "q", "v", "d")
_NONE = -1
_SLOTS = 1024


def screened(tables: TraceTables) -> tuple[list[int], list[int]]:
    """Return the groups that need the basic checks, and those that need the check of total order."""
    kind, code = F.col("kind"), F.lit(_KINDS[LOST])
    for name, number in _KINDS.items():
        code = F.when(kind == name, number).otherwise(code)
    sent = kind == SENT
    place = F.array_position(F.array(*[F.lit(each) for each in tables.writers]), F.col("w"))
    rows = tables.judged.select(
        code.cast("long").alias("k"), place.cast("long").alias("w"), F.col("position").alias("p"),
        F.col("group").alias("g"), life("node", "incarnation").alias("r"),
        F.when(sent, life("node", "incarnation")).otherwise(life("sender", "sender_incarnation")).alias("s"),
        F.col("sequence").alias("q"), F.col("view").alias("v"), F.col("digest").alias("d"),
    ).fillna(0)  # fmt: skip
    ordered = rows.repartition("g").sortWithinPartitions(F.col("k") > 0, "w", "p")
    found = ordered.mapInArrow(_screen, "g bigint, basic boolean, order boolean").collect()
    return [row.g for row in found if row.basic], [row.g for row in found if row.order]


def _screen(batches: Iterator[Any]) -> Iterator[Any]:
    groups: dict[int, _Group] = {}
    for batch in batches:
        columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in _COLUMNS}
        # All sends of a batch before its deliveries; of each, rows of one life in one group together, in their order.
        is_send = columns["k"] == 0
        order = numpy.lexsort((columns["r"], columns["g"], ~is_send))
        ordered = {name: column[order] for name, column in columns.items()}
        for low, high in _spans(ordered["k"] == 0, ordered["g"], ordered["r"]):
            part = {name: column[low:high] for name, column in ordered.items()}
            number = int(part["g"][0])
            group = groups.get(number)
            if group is None:
                group = groups[number] = _Group()
            if is_send[order[low]]:
                group.take_sends(part)
            else:
                group.take(part)
    yield pyarrow.RecordBatch.from_pydict(
        {
            "g": pyarrow.array(list(groups), pyarrow.int64()),
            "basic": pyarrow.array([not each.is_plain for each in groups.values()], pyarrow.bool_()),
            "order": pyarrow.array([not each.is_ordered for each in groups.values()], pyarrow.bool_()),
        }
    )


def _spans(*columns: Any) -> Iterator[tuple[int, int]]:
    """Cut sorted columns where any of them changes."""
    size = len(columns[0])
    changes = numpy.zeros(max(size - 1, 0), bool)
    for column in columns:
        changes |= column[1:] != column[:-1]
    cuts = [0, *(numpy.flatnonzero(changes) + 1).tolist(), size]
    return pairwise(cuts) if size else iter(())


class _Column:
    """A column that grows at its end and is read at any place."""

    def __init__(self) -> None:
        self.size = 0
        self._values = numpy.full(_SLOTS, _NONE)

    def reach(self, size: int) -> Any:
        """Return all values, at least so many; new ones are -1."""
        if size > len(self._values):
            grown = numpy.full(max(size, 2 * len(self._values)), _NONE)
            grown[: len(self._values)] = self._values
            self._values = grown
        self.size = max(self.size, size)
        return self._values


class _Sends:
    """What one life sent in a group: the digest and place of each number from `base` on, and its rank in the order."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.next = base
        self.digests, self.places, self.ranks = _Column(), _Column(), _Column()
        self.writer = 0


class _Stay:
    """What a life has in its present stay."""

    def __init__(self) -> None:
        self.next: dict[int, int] = {}
        self.view = 0
        self.ranges: dict[int, list[int]] = {}
        self.rank = _NONE
        self.has_left = False


class _Group:
    def __init__(self) -> None:
        self.is_plain = True
        self.is_ordered = True
        self._sends: dict[int, _Sends] = {}
        self._stays: dict[int, _Stay] = {}
        self._slots = _Column()
        self._ranked = 0
        self._steps: dict[tuple[int, int], dict[int, list[int]]] = {}

    def take(self, part: dict[str, Any]) -> None:
        """Take what one life was given, and what happened to it, in its order."""
        if not self.is_plain and not self.is_ordered:
            return
        receiver = int(part["r"][0])
        kinds = part["k"]
        stay = self._stays.setdefault(receiver, _Stay())
        at = 0
        for event in [*numpy.flatnonzero(kinds > 1).tolist(), len(kinds)]:
            if event > at:
                self._take_deliveries(stay, {name: column[at:event] for name, column in part.items()})
            if event < len(kinds):
                stay = self._take_event(receiver, stay, int(kinds[event]), int(part["v"][event]))
            at = event + 1

    def take_sends(self, part: dict[str, Any]) -> None:
        """Take what one life sent."""
        sender, numbers = int(part["r"][0]), part["q"]
        sends = self._sends.get(sender)
        if sends is None:
            sends = self._sends[sender] = _Sends(int(numbers[0]))
            sends.writer = int(part["w"][0])
        if int(numbers[0]) != sends.next or not _counts_on(numbers):
            self.is_plain = self.is_ordered = False
            return
        low, high = sends.next - sends.base, sends.next - sends.base + len(numbers)
        sends.digests.reach(high)[low:high] = part["d"]
        sends.places.reach(high)[low:high] = part["p"]
        sends.next += len(numbers)

    def _take_event(self, receiver: int, stay: _Stay, kind: int, view: int) -> _Stay:
        if kind in (_KINDS[JOINED], _KINDS[LEFT]):
            stay = self._stays[receiver] = _Stay()
            stay.has_left = kind == _KINDS[LEFT]
        elif kind == _KINDS[INSTALLED]:
            if stay.view and self._steps.setdefault((stay.view, view), stay.ranges) != stay.ranges:
                self.is_plain = False
            stay.view, stay.ranges = view, {}
        else:
            self.is_plain = False
        return stay

    def _take_deliveries(self, stay: _Stay, part: dict[str, Any]) -> None:
        if stay.has_left or not (part["v"] == stay.view).all():
            self.is_plain = False
        known = numpy.full(len(part["q"]), _NONE)
        by_sender = numpy.argsort(part["s"], kind="stable")
        senders = part["s"][by_sender]
        for low, high in _spans(senders):
            places = by_sender[low:high]
            sender, numbers = int(senders[low]), part["q"][places]
            sends = self._sends.get(sender)
            first, last = int(numbers[0]), int(numbers[-1])
            if stay.next.get(sender, first) != first or not _counts_on(numbers):
                self.is_plain = self.is_ordered = False
                return
            if sends is None or first < sends.base or last >= sends.next:
                self.is_plain = self.is_ordered = False
                return
            start, stop = first - sends.base, last + 1 - sends.base
            digests = sends.digests.reach(stop)[start:stop]
            here = part["w"][places] == sends.writer
            late = sends.places.reach(stop)[start:stop] >= part["p"][places]
            if (digests != part["d"][places]).any() or (late & here).any():
                self.is_plain = False
            stay.next[sender] = last + 1
            stay.ranges.setdefault(sender, [first, last])[1] = last
            known[places] = sends.ranks.reach(stop)[start:stop]
        if self.is_ordered:
            self._rank(stay, part, known)

    def _rank(self, stay: _Stay, part: dict[str, Any], known: Any) -> None:
        """Compare the order of these deliveries with the one that the group has, and carry that one on."""
        if stay.rank == _NONE:
            if known[0] == _NONE and self._ranked:
                self.is_ordered = False
                return
            stay.rank = 0 if known[0] == _NONE else int(known[0])
        expected = numpy.arange(stay.rank, stay.rank + len(known))
        stay.rank += len(known)
        new = known == _NONE
        slots = self._slots.reach(stay.rank)
        if (known[~new] != expected[~new]).any() or (slots[expected[new]] != _NONE).any():
            self.is_ordered = False
            return
        slots[expected[new]] = 1
        self._ranked = max(self._ranked, stay.rank)
        for sender in numpy.unique(part["s"][new]).tolist():
            mine = new & (part["s"] == sender)
            sends = self._sends[sender]
            sends.ranks.reach(int(part["q"][mine][-1]) + 1 - sends.base)[part["q"][mine] - sends.base] = expected[mine]


def _counts_on(numbers: Any) -> bool:
    return bool((numbers[1:] - numbers[:-1] == 1).all())
