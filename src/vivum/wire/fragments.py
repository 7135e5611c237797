"""Messages larger than a frame: cut on the way out, joined on the way in (`docs/design/wire.md`, Fragments).

Knows frames under construction and runs of messages, nothing of streams: whoever feeds a `Joiner` has put the
frames of each sender in order first.

Invariants of a `Joiner`: at most `joins_open_max` joins are open; the lengths that their first fragments
stated add up to `bytes_reserved`, at most `join_bytes_max`; each holds fewer bytes than was stated for it.
"""

from vivum.core.errors import UsageError
from vivum.core.ids import Member
from vivum.core.limits import Limits
from vivum.observe.counters import Counters
from vivum.wire.codec import FLAG_CONTINUES, FLAG_MORE, FrameBuilder
from vivum.wire.layout import HEADER_BYTES, LENGTH_BYTES, RUN_HEADER_BYTES, TOTAL, TOTAL_BYTES

FRAGMENT_OVERHEAD_BYTES = RUN_HEADER_BYTES + LENGTH_BYTES

# A first fragment goes into a frame that has other messages already only if it gets this part of it: smaller ones
# cost a run header and a Python object on every receiver for little.
_WORTHWHILE_PART = 8


class MessagePacker:
    """Puts messages into a builder, and cuts those that are larger than a frame across several.

    When a method reports that not everything went in, seal the builder and call again with the same message:

        while not packer.pack(group, sequence, payload):
            frames.append(builder.seal(...))
    """

    __slots__ = ("_builder", "_done", "_group", "_sequence")

    def __init__(self, builder: FrameBuilder) -> None:
        self._builder = builder
        # Bytes of the message under way that are in frames already; 0: none is under way.
        self._done = 0
        self._group = self._sequence = 0

    @property
    def is_cutting(self) -> bool:
        """Whether a message is partly in frames: it must be packed to its end before any other."""
        return self._done > 0

    def pack(self, group: int, sequence: int, payload: bytes) -> bool:
        """Put a message in, or the next piece of it; True when all of it is in, False when a new frame is needed."""
        if self._done:
            return self._continue(group, sequence, payload)
        builder = self._builder
        if builder.append(group, sequence, payload):
            return True
        if len(payload) <= builder.capacity - HEADER_BYTES - FRAGMENT_OVERHEAD_BYTES:
            return False
        room = builder.capacity - builder.size - FRAGMENT_OVERHEAD_BYTES - TOTAL_BYTES
        if room >= builder.capacity // _WORTHWHILE_PART or builder.empty:
            piece = memoryview(payload)[:room]
            builder.append_fragment(group, sequence, FLAG_MORE, piece, total=len(payload))
            self._group, self._sequence, self._done = group, sequence, room
        return False

    def pack_all(self, group: int, first_sequence: int, payloads: list[bytes], start: int = 0) -> int:
        """Put messages in from index `start` on; return the index of the first that is not wholly in."""
        index = start
        while index < len(payloads):
            if not self._done:
                index = self._builder.extend(group, first_sequence, payloads, index)
                if index == len(payloads):
                    break
            if not self.pack(group, first_sequence + index, payloads[index]):
                break
            index += 1
        return index

    def _continue(self, group: int, sequence: int, payload: bytes) -> bool:
        if group != self._group or sequence != self._sequence or len(payload) <= self._done:
            raise UsageError(
                f"message {self._sequence} of group {self._group} is partly in frames; pack the rest of it"
                f" before message {sequence} of group {group}"
            )
        builder = self._builder
        room = builder.capacity - builder.size - FRAGMENT_OVERHEAD_BYTES
        if room <= 0:
            return False
        piece = memoryview(payload)[self._done : self._done + room]
        is_last = self._done + len(piece) == len(payload)
        flags = FLAG_CONTINUES if is_last else FLAG_CONTINUES | FLAG_MORE
        builder.append_fragment(group, sequence, flags, piece)
        self._done = 0 if is_last else self._done + len(piece)
        return is_last


class _Join:
    """One large message under way."""

    __slots__ = ("pieces", "received", "sequence", "total")

    def __init__(self, sequence: int, total: int) -> None:
        self.sequence = sequence
        self.total = total
        self.received = 0
        self.pieces: list[bytes] = []


class Joiner:
    """Makes whole messages of runs that come in order for each sender and group.

    Nothing that a peer sends raises. A message whose fragments are over a limit or out of order is given up and counted
    once in `joins_refused`; the messages after it are not affected.
    """

    __slots__ = ("_bytes_reserved", "_counters", "_joins", "_limits", "_refused")

    def __init__(self, limits: Limits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self._joins: dict[tuple[Member, int], _Join] = {}
        self._bytes_reserved = 0
        # Which message was refused last, so that its later fragments are not counted again. Bounded: the
        # oldest entry goes, and the worst is a refusal that counts twice.
        self._refused: dict[tuple[Member, int], int] = {}

    @property
    def open_count(self) -> int:
        """How many messages are under way."""
        return len(self._joins)

    @property
    def bytes_reserved(self) -> int:
        """How many bytes those will have."""
        return self._bytes_reserved

    def take(
        self, sender: Member, group: int, first_sequence: int, flags: int, payloads: list[bytes]
    ) -> list[bytes]:
        """Take a run as `Frame.messages` gives it; return what is whole now, beginning at `first_sequence`."""
        key = (sender, group)
        if not flags:
            if self._joins and key in self._joins:
                self._give_up(key)
            return payloads
        if flags & FLAG_CONTINUES:
            return self._continue(key, first_sequence, flags, payloads[0])
        if key in self._joins:
            self._give_up(key)
        self._begin(key, first_sequence, payloads[0])
        return []

    def forget(self, sender: Member) -> None:
        """Drop all that is under way from a sender, whose life ended."""
        for key in [key for key in self._joins if key[0] == sender]:
            self._close(key)
        for key in [key for key in self._refused if key[0] == sender]:
            del self._refused[key]

    def _begin(self, key: tuple[Member, int], sequence: int, payload: bytes) -> None:
        limits = self._limits
        (total,) = TOTAL.unpack_from(payload)
        piece = payload[TOTAL_BYTES:]
        if (
            total > limits.message_bytes_max
            or len(piece) >= total
            or len(self._joins) >= limits.joins_open_max
            or self._bytes_reserved + total > limits.join_bytes_max
        ):
            self._refuse(key, sequence)
            return
        join = self._joins[key] = _Join(sequence, total)
        join.pieces.append(piece)
        join.received = len(piece)
        self._bytes_reserved += total

    def _continue(self, key: tuple[Member, int], sequence: int, flags: int, piece: bytes) -> list[bytes]:
        join = self._joins.get(key)
        if join is None:
            self._refuse(key, sequence)
            return []
        received = join.received + len(piece)
        is_last = not flags & FLAG_MORE
        if sequence != join.sequence:
            self._give_up(key)
            self._refuse(key, sequence)
            return []
        if received != join.total if is_last else received >= join.total:
            self._give_up(key)
            return []
        join.pieces.append(piece)
        join.received = received
        if not is_last:
            return []
        self._close(key)
        return [b"".join(join.pieces)]

    def _close(self, key: tuple[Member, int]) -> _Join:
        join = self._joins.pop(key)
        self._bytes_reserved -= join.total
        return join

    def _give_up(self, key: tuple[Member, int]) -> None:
        self._refuse(key, self._close(key).sequence)

    def _refuse(self, key: tuple[Member, int], sequence: int) -> None:
        if self._refused.pop(key, None) != sequence:
            self._counters.joins_refused += 1
        self._refused[key] = sequence
        if len(self._refused) > self._limits.joins_open_max:
            del self._refused[next(iter(self._refused))]
