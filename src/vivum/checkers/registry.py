"""The one list of checkers, by the names that scenario files use, and sets of them behind one tracer.

In a set, a record goes to the handlers of its type and to nobody else; one that no checker wants costs one
dictionary lookup. That matters because most records of a simulation are frames, which no checker reads.

Groups may promise different things. A record of a group that has a name (`GroupNamed`) goes to the checkers that its
guarantee promises, one of no group to all. A group without a name is judged by all checkers of the set.
"""

from collections.abc import Callable, Collection, Iterable

from vivum.checkers.all_delivered import AllDelivered
from vivum.checkers.bounded_queues import BoundedQueues
from vivum.checkers.causal import Causal
from vivum.checkers.checker import Checker, Handler, Violation
from vivum.checkers.failures_explained import FailuresExplained
from vivum.checkers.fifo import Fifo
from vivum.checkers.keys_once import KeysOnce
from vivum.checkers.lives_explained import LivesExplained
from vivum.checkers.lost_with_sender import LostWithSender
from vivum.checkers.no_creation import NoCreation
from vivum.checkers.no_duplicate import NoDuplicate
from vivum.checkers.sender_order import SenderOrder
from vivum.checkers.total_order import TotalOrder
from vivum.checkers.view_agreement import ViewAgreement
from vivum.checkers.views_first import ViewsFirst
from vivum.checkers.virtual_synchrony import VirtualSynchrony
from vivum.core.errors import UsageError
from vivum.observe.trace import GroupNamed, Record, TraceRecord

CHECKERS: dict[str, type[Checker]] = {
    each.name: each
    for each in (
        NoDuplicate,
        NoCreation,
        SenderOrder,
        Fifo,
        KeysOnce,
        Causal,
        TotalOrder,
        ViewAgreement,
        ViewsFirst,
        VirtualSynchrony,
        BoundedQueues,
        AllDelivered,
        LostWithSender,
        FailuresExplained,
        LivesExplained,
    )
}
"""Every checker by name: promises, weakest first, then the bounds of simulations."""


def make_checkers(names: Iterable[str]) -> list[Checker]:
    """Make fresh checkers of these names, each once, in the order given."""
    wanted = list(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in CHECKERS]
    if unknown:
        raise UsageError(f"there is no checker {', '.join(map(repr, unknown))}; checkers are {', '.join(CHECKERS)}")
    return [CHECKERS[name]() for name in wanted]


PromisesOf = Callable[[str], Collection[str]]
"""Returns the names of the checkers that a guarantee of this name promises."""


class CheckerSet:
    """A tracer that feeds checkers."""

    __slots__ = ("_by_group", "_by_guarantee", "_handlers", "_promises_of", "checkers")

    def __init__(self, checkers: Iterable[Checker], promises_of: PromisesOf | None = None) -> None:
        """Begin. With `promises_of`, groups that have names are judged by what their guarantees promise."""
        self.checkers = list(checkers)
        self._promises_of = promises_of
        self._handlers = self._handlers_of([each.name for each in self.checkers])
        self._by_guarantee: dict[str, dict[type[Record], list[Handler]]] = {}
        self._by_group: dict[int | None, dict[type[Record], list[Handler]]] = {}

    def _handlers_of(self, names: Collection[str]) -> dict[type[Record], list[Handler]]:
        found: dict[type[Record], list[Handler]] = {}
        for checker in self.checkers:
            for record_type, handler in checker.handlers.items() if checker.name in names else ():
                found.setdefault(record_type, []).append(handler)
        return found

    def __call__(self, record: TraceRecord) -> None:
        """Hand a record to the checkers that want its type, and judge its group."""
        if type(record) is GroupNamed and self._promises_of is not None:
            known = self._by_guarantee.get(record.guarantee)
            if known is None:
                known = self._by_guarantee[record.guarantee] = self._handlers_of(self._promises_of(record.guarantee))
            self._by_group[record.group] = known
        by_type = self._handlers
        if self._by_group:
            by_type = self._by_group.get(getattr(record, "group", None), by_type)
        handlers = by_type.get(type(record))
        if handlers is not None:
            for handler in handlers:
                handler(record)

    @property
    def wanted(self) -> frozenset[type[Record]]:
        """The types of record that any checker wants; others need not be made."""
        return frozenset(self._handlers)

    @property
    def violation_count(self) -> int:
        """How many violations were found so far. Some are found only by `finish()`."""
        return sum(checker.violation_count for checker in self.checkers)

    def finish(self) -> list[Violation]:
        """End the history and return the violations of all, those of one checker together."""
        return [violation for checker in self.checkers for violation in checker.finish()]

    def counts(self) -> dict[str, int]:
        """Return how many violations each checker found, also those that were not kept."""
        return {checker.name: checker.violation_count for checker in self.checkers}
