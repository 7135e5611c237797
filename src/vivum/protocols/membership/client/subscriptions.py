"""The subscriptions of one client on their way to the service: what is wanted, what was asked for, what is under way.

One request is under way at a time. It has a number of its own and is repeated unchanged until the service says that
it was applied, so it is applied once however often it arrives; what the application wants meanwhile goes into the next
one. Numbers begin anew with each life, and so does what was asked for: what is wanted stays.
"""

from vivum.core.ranges import RangeSet
from vivum.wire.membership import SUBSCRIBE_RANGES_MAX, Subscribe


class Subscriptions:
    """The next request, and the one before it that is not answered."""

    __slots__ = ("_applied", "_next_applied", "number", "under_way", "wanted")

    def __init__(self) -> None:
        self.wanted = RangeSet()
        self.under_way: Subscribe | None = None
        self.number = 0
        # What the service has when all answered requests, and also the one under way, are applied.
        self._applied = RangeSet()
        self._next_applied = RangeSet()

    def begin(self) -> bool:
        """Make the next request, as much of the difference as fits one; False if one is under way or none is needed."""
        if self.under_way is not None or self.wanted == self._applied:
            return False
        remove = self._applied.copy()
        remove.difference_update(self.wanted)
        remove = remove.lowest(SUBSCRIBE_RANGES_MAX)
        add = self.wanted.copy()
        add.difference_update(self._applied)
        add = add.lowest(SUBSCRIBE_RANGES_MAX - remove.range_count)
        self.number += 1
        self.under_way = Subscribe(self.number, tuple(add.bounds()), tuple(remove.bounds()))
        self._next_applied = self._applied.copy()
        self._next_applied.difference_update(remove)
        self._next_applied.update(add)
        return True

    def on_applied(self, number: int) -> bool:
        """Note that the service applied all requests up to this one; True if that is news."""
        if self.under_way is None or number != self.number:
            return False
        self.under_way = None
        self._applied = self._next_applied
        return True

    def on_life_ended(self) -> None:
        """Begin again: the next life has no groups yet."""
        self.under_way = None
        self.number = 0
        self._applied = RangeSet()
