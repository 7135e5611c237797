"""Messages in pieces, joined on the way in (`docs/design/wire.md`, Fragments); `FrameBuilder.seal_parts` cuts them.

Knows runs of messages, nothing of streams: the caller of a `Joiner` puts the frames of each sender in order first.

Invariants of a `Joiner`: at most `joins_open_max` joins are open; the lengths that their first fragments
stated add up to `bytes_reserved`, at most `join_bytes_max`; each holds fewer bytes than was stated for it.
"""

from vivum.core.ids import Member
from vivum.core.limits import Limits
from vivum.observe.counters import Counters
from vivum.wire.codec import FLAG_CONTINUES, FLAG_MORE
from vivum.wire.layout import TOTAL, TOTAL_BYTES


class _Join:
    """One message under way."""

    __slots__ = ("pieces", "received", "sequence", "total")

    def __init__(self, sequence: int, total: int) -> None:
        self.sequence = sequence
        self.total = total
        self.received = 0
        self.pieces: list[bytes] = []


class Joiner:
    """Makes whole messages of fragments that come in order for each sender and group.

    Nothing that a peer sends raises. A message whose fragments are over a limit or out of order is given up
    and counted once in `joins_refused`; the messages after it are not affected.
    """

    __slots__ = ("_counters", "_limits", "_refused", "bytes_reserved", "joins")

    def __init__(self, limits: Limits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self.joins: dict[tuple[Member, int], _Join] = {}
        """Messages that are under way."""

        self.bytes_reserved = 0
        """How many bytes those will have."""

        # Which message was refused last, so that its later fragments are not counted again. Bounded: the
        # oldest goes, and the worst is a refusal that counts twice.
        self._refused: dict[tuple[Member, int], int] = {}

    @property
    def message_bytes_max(self) -> int:
        """Bytes of the largest message that is joined."""
        return self._limits.message_bytes_max

    def add(
        self, sender: Member, group: int, first_sequence: int, flags: int, payloads: list[bytes]
    ) -> tuple[int, list[bytes]]:
        """Take a run that has flags; return its whole messages and the sequence of the first of them.

        A message that ends here is the first of them, or, if it cannot be made whole, passed over: the sequence is
        then one past it, also when nothing whole follows.
        """
        key = (sender, group)
        start, stop = 0, len(payloads)
        joined = None
        if flags & FLAG_CONTINUES:
            is_last = stop > 1 or not flags & FLAG_MORE
            joined = self._continue(key, first_sequence, is_last, payloads[0])
            if not is_last:
                return first_sequence, []
            if joined is None:
                start = 1
        elif key in self.joins:
            self._give_up(key)
        if flags & FLAG_MORE:
            stop -= 1
            self._begin(key, first_sequence + stop, payloads[stop])
        whole = payloads[start:stop]
        if joined is not None:
            whole[0] = joined
        return first_sequence + start, whole

    def forget(self, sender: Member, group: int | None = None) -> None:
        """Drop what is under way from a sender, in one group or in all; it is not counted."""
        keys = self.joins.keys() | self._refused.keys() if group is None else [(sender, group)]
        for key in keys:
            if key[0] == sender:
                self._refused.pop(key, None)
                if key in self.joins:
                    self._close(key)

    def forget_below(self, sender: Member, group: int, sequence: int) -> None:
        """Drop the message that is under way if its number is below: its rest will not come. It is not counted."""
        key = (sender, group)
        if self._refused.get(key, sequence) < sequence:
            del self._refused[key]
        join = self.joins.get(key)
        if join is not None and join.sequence < sequence:
            self._close(key)

    def _begin(self, key: tuple[Member, int], sequence: int, payload: bytes) -> None:
        limits = self._limits
        (total,) = TOTAL.unpack_from(payload)
        piece = payload[TOTAL_BYTES:]
        if (
            total > limits.message_bytes_max
            or len(piece) >= total
            or len(self.joins) >= limits.joins_open_max
            or self.bytes_reserved + total > limits.join_bytes_max
        ):
            self._refuse(key, sequence)
            return
        join = self.joins[key] = _Join(sequence, total)
        join.pieces.append(piece)
        join.received = len(piece)
        self.bytes_reserved += total

    def _continue(self, key: tuple[Member, int], sequence: int, is_last: bool, piece: bytes) -> bytes | None:
        join = self.joins.get(key)
        if join is None:
            self._refuse(key, sequence)
            return None
        received = join.received + len(piece)
        if sequence != join.sequence:
            self._give_up(key)
            self._refuse(key, sequence)
            return None
        if received != join.total if is_last else received >= join.total:
            self._give_up(key)
            return None
        join.pieces.append(piece)
        join.received = received
        if not is_last:
            return None
        self._close(key)
        return b"".join(join.pieces)

    def _close(self, key: tuple[Member, int]) -> _Join:
        join = self.joins.pop(key)
        self.bytes_reserved -= join.total
        return join

    def _give_up(self, key: tuple[Member, int]) -> None:
        self._refuse(key, self._close(key).sequence)

    def _refuse(self, key: tuple[Member, int], sequence: int) -> None:
        if self._refused.pop(key, None) != sequence:
            self._counters.joins_refused += 1
        self._refused[key] = sequence
        if len(self._refused) > self._limits.joins_open_max:
            del self._refused[next(iter(self._refused))]
