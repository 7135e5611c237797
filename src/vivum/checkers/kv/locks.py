"""Locks and the leases under them, as their clients rely on them."""

from vivum.checkers.checker import Checker
from vivum.observe.trace import LeaseAsked, LeaseKept, LeaseOver, LockReleased, LockTaken

CLOCKS_DIFFER = 0.03
"""By this share of its time a lease may end early: the clock of a leader is faster, that of the judge slower."""


class LockExclusion(Checker):
    """A lock is never held by two at once, and its fencing tokens rise; its holder may doubt and be sure again."""

    name = "lock_exclusion"

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[tuple[int, int], LockTaken] = {}
        self._last: dict[tuple[int, int], LockTaken] = {}

    def on_lock_taken(self, record: LockTaken) -> None:
        """Compare with who holds it, and with who held it last."""
        place = (record.group, record.key)
        held = self._held.get(place)
        if held is not None and held.token != record.token:
            self.report(f"lock {record.key:x} is held with tokens {held.token} and {record.token}", held, record)
        last = self._last.get(place)
        if last is not None and (last.token, last.node) != (record.token, record.node) and last.token >= record.token:
            self.report(f"lock {record.key:x} was taken with token {last.token} and later {record.token}", last, record)
        self._held[place] = self._last[place] = record

    def on_lock_released(self, record: LockReleased) -> None:
        """Note that it is free."""
        held = self._held.get((record.group, record.key))
        if held is not None and held.token == record.token:
            del self._held[record.group, record.key]


class LeaseTime(Checker):
    """A lease does not end before its time, counted from when its holder last asked for it with success."""

    name = "lease_time"

    def __init__(self) -> None:
        super().__init__()
        self._asked: dict[tuple[int, int], LeaseAsked] = {}
        self._kept: dict[tuple[int, int], tuple[LeaseAsked | None, LeaseKept]] = {}

    def on_lease_asked(self, record: LeaseAsked) -> None:
        """Note since when the time may count."""
        self._asked.setdefault((record.group, record.lease), record)

    def on_lease_kept(self, record: LeaseKept) -> None:
        """Note until when it must hold."""
        place = (record.group, record.lease)
        self._kept[place] = (self._asked.pop(place, None), record)

    def on_lease_over(self, record: LeaseOver) -> None:
        """Compare with the time that was granted."""
        asked, kept = self._kept.get((record.group, record.lease), (None, None))
        if asked is None or kept is None:
            return
        held_ns = record.time_ns - asked.time_ns
        if held_ns < kept.lasts_ns * (1 - CLOCKS_DIFFER):
            self.report(
                f"lease {record.lease} of group {record.group} was granted for {kept.lasts_ns / 1e9:.3f} s and was "
                f"over after {held_ns / 1e9:.3f} s",
                asked,
                record,
            )
