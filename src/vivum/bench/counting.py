"""What is sent and how arrivals are checked: the same for every system, and nothing for each message.

A sender goes round a short cycle of payloads that begin with their place in it, so it makes none while it is
measured. A receiver looks at the first and the last number of every batch and at its length, which shows whatever is
missing, twice or moved between batches; every `FULL_EVERY`th batch is compared whole, to the last byte. Only a batch
that is not as expected is looked at message by message.
"""

import math
import os
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

NUMBER = Struct("<Q")
NUMBER_BYTES = NUMBER.size

CYCLE_BYTES = 1 << 20
"""Bytes of all payloads of a cycle: they stay in the processor's cache, as payloads just made would."""

CYCLE_MESSAGES_MIN = 256
CYCLE_MESSAGES_MAX = 16_384
BATCH_MESSAGES = 512
"""The longest batch that is checked at once; systems that get single messages gather this many."""

FULL_EVERY = 16

SLOT_S = 0.02
"""Receivers count what comes in slots of this length."""

SETTLED_SLOTS = 5
"""A rate is looked at over this many slots: senders send in bursts, and a first one is no rate yet."""

SETTLED_SHARE = 0.8


def payload_cycle(size: int) -> list[bytes]:
    """Make the payloads of one size that senders go round, twice over so that every batch is one slice."""
    count = min(CYCLE_MESSAGES_MAX, max(CYCLE_MESSAGES_MIN, CYCLE_BYTES // size))
    filling = bytes(number % 251 for number in range(size))
    cycle = [NUMBER.pack(number) + filling[NUMBER_BYTES:] for number in range(count)]
    return cycle + cycle


class Source:
    """Where a sender gets its messages: for each group the next ones of the cycle."""

    __slots__ = ("_cycle", "_length", "_next", "sent")

    def __init__(self, size: int, groups: int = 1, make: Callable[[bytes], Any] = bytes) -> None:
        """Begin at the start of the cycle. `make` makes a message of a payload, once for each of them."""
        self._cycle = list(map(make, payload_cycle(size)))
        self._length = len(self._cycle) // 2
        self._next = [0] * groups
        self.sent = 0

    def batch(self, count: int, group: int = 0) -> list[Any]:
        """Take the next messages of a group, at most a cycle of them. They count as sent."""
        start = self._next[group]
        self._next[group] = (start + count) % self._length
        self.sent += count
        return self._cycle[start : start + count]


class Tally:
    """What a receiver got: how many, and what was wrong with it."""

    __slots__ = ("_back", "_cycle", "_length", "_looks", "_next", "duplicated", "missing", "out_of_order", "received")

    def __init__(self, size: int, groups: int = 1, *, only_forward: bool = False) -> None:
        """Begin with nothing. `only_forward` is for what never repeats or reorders: every step is then a loss."""
        self._cycle = payload_cycle(size)
        self._length = len(self._cycle) // 2
        self._next = [0] * groups
        self._back = self._length if only_forward else self._length // 2
        self._looks = 0
        self.received = 0
        self.duplicated = 0
        self.out_of_order = 0
        # Numbers that were passed over so far; one that comes later is out of order, and not missing any more.
        self.missing = 0

    def skip(self, batch: Sequence[bytes], group: int = 0) -> None:
        """Go on with what comes next, after a loss of which the receiver was told: as wide as a cycle, or wider."""
        (self._next[group],) = NUMBER.unpack_from(batch[0])

    def take(self, batch: Sequence[bytes], group: int = 0) -> None:
        """Count a batch of one group and check it."""
        count = len(batch)
        if count > self._length:
            for at in range(0, count, self._length):
                self.take(batch[at : at + self._length], group)
            return
        if not count:
            return
        self.received += count
        start = self._next[group]
        self._looks += 1
        if self._looks % FULL_EVERY == 0:
            whole = batch == self._cycle[start : start + count]
        else:
            whole = batch[0][:NUMBER_BYTES] == self._cycle[start][:NUMBER_BYTES] and (
                batch[-1][:NUMBER_BYTES] == self._cycle[start + count - 1][:NUMBER_BYTES]
            )
        if whole:
            self._next[group] = (start + count) % self._length
        else:
            self._look_closely(batch, group)

    def _look_closely(self, batch: Sequence[bytes], group: int) -> None:
        """Find out, message by message, what is wrong. A step of more than half a cycle counts as one back."""
        length = self._length
        expected = self._next[group]
        for payload in batch:
            (number,) = NUMBER.unpack_from(payload)
            step = (number - expected) % length
            if number >= length or payload != self._cycle[number]:
                raise ValueError(f"a message came that nobody sent: it begins with {payload[:16]!r}")
            if step == 0:
                expected = (expected + 1) % length
            elif step <= self._back:
                self.missing += step
                expected = (number + 1) % length
            elif self.missing:
                self.missing -= 1
                self.out_of_order += 1
            else:
                self.duplicated += 1
        self._next[group] = expected

    def lost(self, sent: int) -> int:
        """Return how many of the sent messages did not arrive."""
        return max(0, sent - (self.received - self.duplicated))


class Timeline:
    """When a receiver got what: messages in each slot of time, and inside the window by group; and pauses in it.

    Times are in seconds on one clock. Slots go from `began` to `stop`, with one that begins with the window.
    """

    __slots__ = ("_last", "_start", "_stop", "by_group", "longest_pause_s", "slots", "slots_before")

    def __init__(self, began: float, start: float, stop: float, groups: int = 1) -> None:
        self._start, self._stop = start, stop
        self._last = start
        self.by_group = [0] * groups
        self.longest_pause_s = 0.0
        self.slots_before = max(0, math.ceil((start - began) / SLOT_S))
        self.slots = [0] * (self.slots_before + math.ceil((stop - start) / SLOT_S))

    def take(self, now: float, count: int, group: int = 0) -> None:
        """Count messages of a group that came now."""
        if now < self._stop:
            slot = math.floor((now - self._start) / SLOT_S) + self.slots_before
            self.slots[min(max(0, slot), len(self.slots) - 1)] += count
            if now >= self._start:
                self.by_group[group] += count
        self.end_pause(now)

    def end_pause(self, now: float) -> None:
        """End a pause: because something came, or because nothing more will. What lies in the window counts."""
        until = min(now, self._stop)
        if until > self._last:
            self.longest_pause_s = max(self.longest_pause_s, until - self._last)
            self._last = until


def settled_s(slots: Sequence[int], slots_before: int, first_sent_s: float) -> float | None:
    """Return the time from the first send until a receiver had `SETTLED_SHARE` of the steady rate, in seconds.

    `slots` are the messages in each slot, of which `slots_before` lie before the window. `first_sent_s` is the time of
    the first send after the beginning of the window, so mostly below 0. The steady rate is that of the second half of
    the window; None if nothing came then.
    """
    half = slots[slots_before + (len(slots) - slots_before) // 2 :]
    wanted = sum(half) / len(half) * SETTLED_SHARE * SETTLED_SLOTS if half else 0.0
    if not wanted:
        return None
    for at in range(len(slots) - SETTLED_SLOTS + 1):
        if sum(slots[at : at + SETTLED_SLOTS]) >= wanted:
            return max(0.0, (at - slots_before) * SLOT_S - first_sent_s)
    return None


def resident_kb(pid: int | None = None) -> int:
    """Return the resident memory of a process, by default this one, in KiB; 0 if it is gone."""
    try:
        with open(f"/proc/{pid or 'self'}/statm", encoding="ascii") as statm:
            pages = int(statm.read().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024
