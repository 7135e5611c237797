"""What makes a group plain: judged on whole columns, so that only the others need the exact checks.

Everything in a plain group is as simple as can be: each stay's streams count on by one; every delivery has its send
with its digest, in the view that was installed last and that the message was sent in; views agree and rise, a sender's
too; lives that went from one view to the next had the same ranges; and all stays follow one and the same sequence.

A group has doubts, one bit for each kind of check. Sound, not complete: what breaks a guarantee always leaves its
doubt; what merely looks unusual (a reported loss, a stay that began beside the sequence) may leave one too.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy

from vivum.pipeline.audit.columns import (
    CODES,
    DELIVERED,
    INSTALLED,
    JOINED,
    LEFT,
    LOST,
    D,
    G,
    K,
    P,
    Q,
    R,
    S,
    V,
    W,
    order_by,
)
from vivum.pipeline.audit.tables import life_words

STREAMS, CREATION, SYNCHRONY, ORDER, VIEWS, FIRST = 1, 2, 4, 8, 16, 32
EVERYTHING = STREAMS | CREATION | SYNCHRONY | ORDER | VIEWS | FIRST

DOUBTS = {
    "no_duplicate": STREAMS,
    "fifo": STREAMS,
    "sender_order": STREAMS,
    "no_creation": CREATION,
    "virtual_synchrony": SYNCHRONY,
    "total_order": ORDER,
    "view_agreement": VIEWS,
    "views_first": FIRST,
}
"""Which doubt a check is for."""

MEMBERS_BETWEEN = "\x1f"
"""Between the members of a view, where they are one string."""

_DELIVERED, _JOINED, _LEFT, _INSTALLED, _LOST = (CODES[each] for each in (DELIVERED, JOINED, LEFT, INSTALLED, LOST))
_NONE = -1
_SLOTS = 1024


class PlainGroups:
    """The groups of one task. First come all blocks of sends and events, then all of deliveries and events."""

    def __init__(self) -> None:
        self._groups: dict[int, _Group] = {}
        self._members: dict[str, tuple[frozenset[str], bool]] = {}

    def take_sends(self, block: Any, members: dict[tuple[int, int], str]) -> None:
        """Take sends and events, each life's in its order; `members` by writer and position of a view."""
        for group, part in self._parts(block):
            group.take_sends(part, members, self)

    def take_deliveries(self, block: Any) -> None:
        """Take deliveries and events, each life's in its order."""
        for group, part in self._parts(block):
            group.take(part)

    def doubtful(self) -> dict[int, int]:
        """Return the doubts of each group that has any."""
        return {number: each.doubts for number, each in self._groups.items() if each.doubts}

    def lives_of(self, members: str) -> tuple[frozenset[str], bool]:
        """Return the members of a view, and whether one is listed twice. Most views are installed by many."""
        known = self._members.get(members)
        if known is None:
            lives = members.split(MEMBERS_BETWEEN)
            known = self._members[members] = frozenset(lives), len(set(lives)) < len(lives)
        return known

    def _parts(self, block: Any) -> "Iterator[tuple[_Group, Any]]":
        ordered = block[:, order_by(block[G], block[R])]
        for low, high in _spans(ordered[G], ordered[R]):
            number = int(ordered[G, low])
            group = self._groups.get(number)
            if group is None:
                group = self._groups[number] = _Group()
            if group.doubts != EVERYTHING:
                yield group, ordered[:, low:high]


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

    def __init__(self, kind: str = "int64") -> None:
        self._values = numpy.full(_SLOTS, _NONE, kind)

    def reach(self, size: int) -> Any:
        """Return all values, at least this many; new ones are -1."""
        if size > len(self._values):
            grown = numpy.full(max(size, 2 * len(self._values)), _NONE, self._values.dtype)
            grown[: len(self._values)] = self._values
            self._values = grown
        return self._values


class _Sends:
    """What one life sent in a group: digest, place and view of each number from `base` on, its rank in the order."""

    def __init__(self, base: int, writer: int) -> None:
        self.base = self.next = base
        self.writer = writer
        self.digests, self.places, self.ranks = _Column(), _Column(), _Column()
        # Views rarely change: where each began, and its number.
        self.view_starts: list[int] = []
        self.views: list[int] = []


class _Sender:
    """The view that a life sends in (0: none yet in its stay), and the last one that it ever installed."""

    def __init__(self) -> None:
        self.present = 0
        self.last = 0


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
        self.doubts = 0
        self._senders: dict[int, _Sender] = {}
        self._sends: dict[int, _Sends] = {}
        self._stays: dict[int, _Stay] = {}
        # The highest view that each life has installed, whatever its stay.
        self._newest: dict[int, int] = {}
        # The highest view that each receiver's life has delivered of each sender's life, whatever its stay.
        self._newest_of: dict[tuple[int, int], int] = {}
        self._views: dict[int, str] = {}
        self._slots = _Column("int8")
        self._ranked = 0
        self._steps: dict[tuple[int, int], dict[int, list[int]]] = {}

    def take_sends(self, part: Any, members: dict[tuple[int, int], str], all_groups: PlainGroups) -> None:
        """Take what one life sent and what happened to it, in its order."""
        life = int(part[R, 0])
        sender = self._senders.setdefault(life, _Sender())
        for run, event in _runs(part):
            if run is not None:
                self._take_run_of_sends(life, sender, run)
            if event is not None and event[K] == _LEFT:
                sender.present = 0
            elif event is not None and event[K] == _INSTALLED:
                listed = members[int(event[W]), int(event[P])]
                self._take_view(life, sender, int(event[V]), listed, *all_groups.lives_of(listed))

    def _take_view(
        self, life: int, sender: _Sender, view: int, listed: str, lives: frozenset[str], is_doubled: bool
    ) -> None:
        if self._views.setdefault(view, listed) != listed or view <= sender.last or is_doubled:
            self.doubts |= VIEWS
        if life_words(life) not in lives:
            self.doubts |= VIEWS
        if view <= sender.last:
            self.doubts |= FIRST
        sender.last = sender.present = view

    def _take_run_of_sends(self, life: int, sender: _Sender, part: Any) -> None:
        numbers = part[Q]
        sends = self._sends.get(life)
        if sends is None:
            sends = self._sends[life] = _Sends(int(numbers[0]), int(part[W, 0]))
        if int(numbers[0]) != sends.next or not _counts_on(numbers):
            self.doubts = EVERYTHING
            return
        views = part[V]
        if sender.present and (views != sender.present).any():
            self.doubts |= VIEWS
        for place in [0, *(numpy.flatnonzero(views[1:] != views[:-1]) + 1).tolist()]:
            if not sends.views or sends.views[-1] != int(views[place]):
                sends.view_starts.append(int(numbers[place]))
                sends.views.append(int(views[place]))
        low, high = sends.next - sends.base, sends.next - sends.base + len(numbers)
        sends.digests.reach(high)[low:high] = part[D]
        sends.places.reach(high)[low:high] = part[P]
        sends.next += len(numbers)

    def take(self, part: Any) -> None:
        """Take what one life was given, and what happened to it, in its order."""
        receiver = int(part[R, 0])
        stay = self._stays.setdefault(receiver, _Stay())
        for run, event in _runs(part):
            if run is not None:
                if (run[V] > self._newest.get(receiver, 0)).any():
                    self.doubts |= FIRST
                self._take_deliveries(stay, run)
            if event is not None:
                stay = self._take_event(receiver, stay, int(event[K]), int(event[V]))

    def _take_event(self, receiver: int, stay: _Stay, kind: int, view: int) -> _Stay:
        if kind in (_JOINED, _LEFT):
            stay = self._stays[receiver] = _Stay()
            stay.has_left = kind == _LEFT
        elif kind == _INSTALLED:
            if stay.view and self._steps.setdefault((stay.view, view), stay.ranges) != stay.ranges:
                self.doubts |= SYNCHRONY
            stay.view, stay.ranges = view, {}
            self._newest[receiver] = max(view, self._newest.get(receiver, 0))
        else:
            self.doubts |= STREAMS
        return stay

    def _take_deliveries(self, stay: _Stay, part: Any) -> None:
        if stay.has_left:
            self.doubts |= STREAMS
        if (part[V] != stay.view).any():
            self.doubts |= SYNCHRONY
        known = numpy.full(part.shape[1], _NONE)
        by_sender = numpy.argsort(part[S], kind="stable")
        senders = part[S][by_sender]
        for low, high in _spans(senders):
            places = by_sender[low:high]
            sender, numbers = int(senders[low]), part[Q][places]
            sends = self._sends.get(sender)
            first, last = int(numbers[0]), int(numbers[-1])
            counts_on = stay.next.get(sender, first) == first and _counts_on(numbers)
            if not counts_on or sends is None or first < sends.base or last >= sends.next:
                self.doubts = EVERYTHING
                return
            start, stop = first - sends.base, last + 1 - sends.base
            is_late = sends.places.reach(stop)[start:stop] >= part[P][places]
            is_other = sends.digests.reach(stop)[start:stop] != part[D][places]
            # Across writers there is no common order, so a delivery that seems to come first means nothing.
            if is_other.any() or (is_late.any() and int(part[W, 0]) == sends.writer):
                self.doubts |= CREATION
            views = part[V][places]
            if not _in_their_views(sends, numbers, views):
                self.doubts |= VIEWS
            stream = int(part[R, 0]), sender
            newest = numpy.maximum.accumulate(numpy.append(self._newest_of.get(stream, 0), views))
            if ((views < newest[1:]) & (views > 0)).any():
                self.doubts |= FIRST
            self._newest_of[stream] = int(newest[-1])
            stay.next[sender] = last + 1
            stay.ranges.setdefault(sender, [first, last])[1] = last
            known[places] = sends.ranks.reach(stop)[start:stop]
        if not self.doubts & ORDER:
            self._rank(stay, part, known)

    def _rank(self, stay: _Stay, part: Any, known: Any) -> None:
        """Compare the order of these deliveries with the one that the group has, and carry that one on."""
        if stay.rank == _NONE:
            if known[0] == _NONE and self._ranked:
                self.doubts |= ORDER
                return
            stay.rank = 0 if known[0] == _NONE else int(known[0])
        expected = numpy.arange(stay.rank, stay.rank + len(known))
        stay.rank += len(known)
        new = known == _NONE
        slots = self._slots.reach(stay.rank)
        if (known[~new] != expected[~new]).any() or (slots[expected[new]] != _NONE).any():
            self.doubts |= ORDER
            return
        slots[expected[new]] = 1
        self._ranked = max(self._ranked, stay.rank)
        for sender in numpy.unique(part[S][new]).tolist():
            mine = new & (part[S] == sender)
            sends = self._sends[sender]
            numbers = part[Q][mine]
            sends.ranks.reach(int(numbers[-1]) + 1 - sends.base)[numbers - sends.base] = expected[mine]


def _runs(part: Any) -> Iterator[tuple[Any, Any]]:
    """Cut a life's records into runs of sends or deliveries, each with the event that ends it; either may be None."""
    kinds = part[K]
    at = 0
    for event in numpy.flatnonzero(kinds > _DELIVERED).tolist():
        yield (part[:, at:event] if event > at else None), part[:, event]
        at = event + 1
    if at < len(kinds):
        yield part[:, at:], None


def _in_their_views(sends: _Sends, numbers: Any, views: Any) -> bool:
    """Return whether these messages of a stream were delivered as of the views that they were sent in."""
    if len(sends.views) == 1:
        return bool((views == sends.views[0]).all())
    places = numpy.searchsorted(sends.view_starts, numbers, "right") - 1
    return bool((numpy.array(sends.views)[places] == views).all())


def _counts_on(numbers: Any) -> bool:
    return bool((numbers[1:] - numbers[:-1] == 1).all())
