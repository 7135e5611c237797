"""Sequence windows in plain Python; `_codec_twin` exports them.

Same names and same behaviour as `_window.pyx`; change both or neither.
"""

from typing import final

from vivum.core.ranges import RangeSet
from vivum.wire import refusals
from vivum.wire._arguments import require
from vivum.wire.layout import BEYOND, DUPLICATE, NEW, SEQUENCE_MAX, U64_MAX, WINDOW_MAX


@final
class SequenceWindow:
    """Which frames of one stream were received: a prefix, and any of the `capacity` numbers from there on.

    Invariants: `prefix` itself was not received; `prefix <= stop`; `held < capacity`.
    Numbers go to `SEQUENCE_MAX`, 2**64 - 2; the one number above is always `BEYOND`.
    """

    __slots__ = ("_capacity", "_held", "_prefix", "_stop")

    def __init__(self, first: int, capacity: int) -> None:
        self._prefix = self._stop = require(first, "first", 0, U64_MAX)
        self._capacity = require(capacity, "capacity", 1, WINDOW_MAX)
        self._held = RangeSet()

    @property
    def capacity(self) -> int:
        """How many numbers from `prefix` on can be kept; 1 to `WINDOW_MAX`."""
        return self._capacity

    @property
    def prefix(self) -> int:
        """Every number below was received or skipped."""
        return self._prefix

    @property
    def stop(self) -> int:
        """One past the highest number that is known to exist, by `add` or `announce`."""
        return self._stop

    @property
    def held(self) -> int:
        """How many were received beyond the prefix."""
        return self._held.count()

    def _advance(self) -> None:
        if self._held and self._held.first() == self._prefix:
            self._prefix = next(self._held.ranges())[1]
            self._held.discard_range(0, self._prefix)

    def add(self, sequence: int) -> int:
        """Note one frame as received: `NEW`, `DUPLICATE`, or `BEYOND` if `sequence >= prefix + capacity`.

        Only `NEW` changes anything. After `BEYOND`, `announce(sequence + 1)` lets the frame be asked for.
        """
        require(sequence, "sequence", 0, U64_MAX)
        if sequence < self._prefix:
            return DUPLICATE
        if sequence - self._prefix >= self._capacity or sequence > SEQUENCE_MAX:
            return BEYOND
        if not self._held.add(sequence):
            return DUPLICATE
        self._advance()
        self._stop = max(self._stop, sequence + 1)
        return NEW

    def add_run(self, first: int, stop: int) -> bool:
        """Note the frames `first <= n < stop` as received if all are beyond those that were, and within the window.

        Otherwise return False and change nothing: they are for `add`, one by one.
        """
        require(first, "first", 0, U64_MAX)
        require(stop, "stop", 0, U64_MAX)
        top = self._held.bounds()[-1] if self._held else self._prefix
        if not top <= first < stop or stop - self._prefix > self._capacity or stop > SEQUENCE_MAX:
            return False
        self._held.add_range(first, stop)
        self._advance()
        self._stop = max(self._stop, stop)
        return True

    def announce(self, stop: int) -> None:
        """Note that the sender has come this far. Never lowers `stop`, and may raise it past the window.

        More than 64 bits are cut to 2**64 - 1. A lying sender can make a window expect much, but only in its
        own stream, and a gap costs one range however long it is.
        """
        if isinstance(stop, int):
            stop = min(stop, U64_MAX)
        self._stop = max(self._stop, require(stop, "stop", 0, U64_MAX))

    def missing(self, ranges_max: int) -> list[int]:
        """List the gaps in `prefix <= n < stop`, lowest first, as flat bounds (`RangeSet.from_bounds`)."""
        if not isinstance(ranges_max, int):
            raise refusals.not_an_int("ranges_max", ranges_max)
        gaps = RangeSet([(self._prefix, self._stop)])
        gaps.difference_update(self._held)
        return gaps.bounds()[: 2 * max(ranges_max, 0)]

    def skip_to(self, sequence: int) -> int:
        """Give up every number below `sequence`; return how many were never received. Never goes back."""
        sequence = require(sequence, "sequence", 0, U64_MAX)
        if sequence <= self._prefix:
            return 0
        held_before = self._held.count()
        self._held.discard_range(0, sequence)
        given_up = sequence - self._prefix - (held_before - self._held.count())
        self._prefix = sequence
        self._advance()
        self._stop = max(self._stop, self._prefix)
        return given_up

    def __contains__(self, sequence: int) -> bool:
        """Return whether a number is done: received, skipped, or before the first."""
        if not isinstance(sequence, int):
            raise refusals.not_an_int("sequence", sequence)
        return 0 <= sequence < self._prefix or sequence in self._held

    def __repr__(self) -> str:
        return f"SequenceWindow(prefix={self._prefix}, stop={self._stop}, held={self.held}, capacity={self._capacity})"


def measure(payloads: list[bytes] | tuple[bytes, ...], start: int = 0, stop: int | None = None) -> tuple[int, int]:
    """Add up the sizes of messages `start <= n < stop` and find the largest. Refuses what is not `bytes`."""
    if not isinstance(payloads, (list, tuple)):
        raise refusals.not_a_list(payloads)
    stop = len(payloads) if stop is None else require(stop, "stop", 0, len(payloads))
    total = largest = 0
    for payload in payloads[require(start, "start", 0, stop) : stop]:
        if not isinstance(payload, bytes):
            raise refusals.not_bytes("payload", payload)
        total += len(payload)
        largest = max(largest, len(payload))
    return total, largest
